"""Fill a recursive type: folders that hold folders.

The grammar is really recursive, so the depth is open. max_tokens bounds the whole, and the tree is complete all the
same.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

import structgen as sg


class Folder(BaseModel):
    """A folder and the folders in it."""

    name: str = Field(pattern=r"^[a-z]{1,12}$")
    folders: list[Folder] = Field(max_length=3)


PROMPT = "Write a folder tree for a small Python project as JSON with the keys name and folders."


def show(folder: Folder, depth: int = 0) -> None:
    """Print the tree, two spaces per level."""
    print("  " * depth + folder.name + "/")
    for child in folder.folders:
        show(child, depth + 1)


def main() -> None:
    """Grow one tree and draw it."""
    model = sg.load()
    show(model.generate(Folder, PROMPT, max_tokens=120, seed=3))


if __name__ == "__main__":
    main()
