"""Write the file of automata that the string formats are shipped with. Run it after a change of their patterns."""

from __future__ import annotations

from pathlib import Path

from structgen.grammar.json_schema import format_tables
from structgen.grammar.json_schema.formats import all_patterns


def main() -> None:
    """Write the file beside its module."""
    content = format_tables.packed_file(all_patterns())
    path = Path(format_tables.__file__).with_name(format_tables.FILE)
    path.write_bytes(content)
    print(f"{path}: {len(content)} bytes")


if __name__ == "__main__":
    main()
