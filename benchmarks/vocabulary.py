"""Time to read a vocabulary from a tokenizer, per tokenizer folder.

    python benchmarks/vocabulary.py FOLDER...        default: all under ~/.cache/structgen-bench/tokenizers

"first" reads the tokenizer's model and builds the trie, "again" takes both from the disk cache, "trie" is the trie
alone. Best of three each, in seconds.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from measuring import least_us
from transformers import AutoTokenizer

from structgen.trie import ByteTrie
from structgen.vocabulary import Vocabulary

DEFAULT_FOLDER = Path.home() / ".cache/structgen-bench/tokenizers"
COLUMNS = "{:<16} {:>8} {:>8} {:>6} {:>6} {:>9} {:>6} {:>7} {:>7} {:>7}"


def row(folder: Path) -> str:
    """Measure one tokenizer folder."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    vocabulary = Vocabulary.from_tokenizer(tokenizer, cache_dir=None)
    first = least_us(lambda: Vocabulary.from_tokenizer(tokenizer, cache_dir=None), 3)
    trie = least_us(lambda: ByteTrie.build(vocabulary.table.tokens), 3)
    with tempfile.TemporaryDirectory() as cache:
        Vocabulary.from_tokenizer(tokenizer, cache_dir=cache)
        again = least_us(lambda: Vocabulary.from_tokenizer(tokenizer, cache_dir=cache), 3)
    counts = (len(vocabulary.special_ids), vocabulary.num_added, vocabulary.num_undecodable)
    nodes = (vocabulary.trie.num_nodes, vocabulary.trie.max_depth)
    seconds = (f"{value / 1e6:.3f}" for value in (trie, first, again))
    return COLUMNS.format(folder.name, vocabulary.size, *counts, *nodes, *seconds)


def main() -> None:
    """Print one line per tokenizer."""
    folders = [Path(argument) for argument in sys.argv[1:]] or sorted(DEFAULT_FOLDER.glob("*"))
    if not folders:
        sys.exit("no tokenizer folders: pass some, each with a tokenizer.json")
    heads = ("tokenizer", "size", "special", "added", "undec.", "nodes", "depth", "trie s", "first s", "again s")
    print(COLUMNS.format(*heads))
    for folder in folders:
        print(row(folder))


if __name__ == "__main__":
    main()
