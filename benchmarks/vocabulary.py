"""Time to read a vocabulary from a tokenizer, per tokenizer folder.

    python benchmarks/vocabulary.py FOLDER...        default: all under ~/.cache/structgen-bench/tokenizers

"first" reads the tokenizer's model and builds the trie, "again" takes both from the disk cache, "trie" is the trie
alone. Best of three each, in seconds.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from transformers import AutoTokenizer

from structgen.trie import ByteTrie
from structgen.vocabulary import Vocabulary

DEFAULT_FOLDER = Path.home() / ".cache/structgen-bench/tokenizers"
COLUMNS = "{:<16} {:>8} {:>8} {:>6} {:>6} {:>9} {:>6} {:>7} {:>7} {:>7}"


def best_of_three(work: Callable[[], object]) -> float:
    """Return the shortest of three runs, in seconds."""
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def row(folder: Path) -> str:
    """Measure one tokenizer folder."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    vocabulary = Vocabulary.from_tokenizer(tokenizer, cache_dir=None)
    first = best_of_three(lambda: Vocabulary.from_tokenizer(tokenizer, cache_dir=None))
    trie = best_of_three(lambda: ByteTrie.build(vocabulary.table.tokens))
    with tempfile.TemporaryDirectory() as cache:
        Vocabulary.from_tokenizer(tokenizer, cache_dir=cache)
        again = best_of_three(lambda: Vocabulary.from_tokenizer(tokenizer, cache_dir=cache))
    counts = (len(vocabulary.special_ids), vocabulary.num_added, vocabulary.num_undecodable)
    nodes = (vocabulary.trie.num_nodes, vocabulary.trie.max_depth)
    seconds = (f"{value:.3f}" for value in (trie, first, again))
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
