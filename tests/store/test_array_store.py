"""The store of arrays: what is read is what was written for this key by this code, whatever the disk does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from structgen import array_store
from structgen.array_store import ArrayLayout, ArrayStore

ROOT = Path(__file__).parents[2]
LAYOUT = {"rows": ArrayLayout(np.int32, (None, 3)), "bytes": ArrayLayout(np.uint8, (None,))}
ARRAYS = {"rows": np.arange(12, dtype=np.int32).reshape(4, 3), "bytes": np.frombuffer(b"some text", np.uint8)}


def store_in(folder: Path | None, max_bytes: int = 1 << 20) -> ArrayStore:
    """Return a store whose data depends on one source."""
    return ArrayStore(folder, sources=["trie.py"], max_bytes=max_bytes)


def is_whole(found: array_store.Arrays | None) -> bool:
    """Say whether what was read is ARRAYS, types and shapes included."""
    return found is not None and all(
        found[name].dtype == array.dtype and np.array_equal(found[name], array) for name, array in ARRAYS.items()
    )


def only_file(folder: Path) -> Path:
    """Return the one file below a folder."""
    (path,) = (path for path in folder.rglob("*") if path.is_file())
    return path


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """Arrays come back equal, in another store too, and a Fortran-ordered or strided array is no exception."""
    folder = tmp_path / "made" / "when needed"
    odd = {"rows": np.asfortranarray(ARRAYS["rows"]), "bytes": np.repeat(ARRAYS["bytes"], 2)[::2]}

    assert store_in(folder).read("key", LAYOUT) is None
    assert store_in(folder).write("key", odd)

    found = store_in(folder).read("key", LAYOUT)
    assert is_whole(found)
    assert found is not None
    assert all(array.flags.c_contiguous and not array.flags.writeable for array in found.values())
    only_file(folder)  # and nothing beside it


def test_no_folder_keeps_nothing() -> None:
    """None is a store that is always empty."""
    store = store_in(None)

    assert not store.write("key", ARRAYS)
    assert store.read("key", LAYOUT) is None
    store.prune()


def test_any_changed_byte_is_noticed(tmp_path: Path) -> None:
    """Whatever byte of a file is changed, what is read is what was written, or nothing."""
    store = store_in(tmp_path)
    store.write("key", ARRAYS)
    path = only_file(tmp_path)
    good = path.read_bytes()
    num_used = 0
    for position in range(len(good)):
        path.write_bytes(good[:position] + bytes([good[position] ^ 0x09]) + good[position + 1 :])
        found = store.read("key", LAYOUT)
        assert found is None or is_whole(found)
        num_used += found is not None

    assert num_used == 0


def test_any_cut_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that ends anywhere too early is as good as none, and the log names it."""
    store = store_in(tmp_path)
    store.write("key", ARRAYS)
    path = only_file(tmp_path)
    good = path.read_bytes()
    for length in range(len(good)):
        path.write_bytes(good[:length])
        assert store.read("key", LAYOUT) is None
    assert str(path) in caplog.text

    assert store.write("key", ARRAYS)
    assert is_whole(store.read("key", LAYOUT))


def test_the_text_of_the_key_is_compared(tmp_path: Path) -> None:
    """A file under the name of another key is not used."""
    store = store_in(tmp_path)
    store.write("another key", ARRAYS)
    other = only_file(tmp_path)
    store.write("key", ARRAYS)
    (mine,) = set(tmp_path.iterdir()) - {other}
    other.replace(mine)

    assert store.read("key", LAYOUT) is None


def test_data_of_other_sources_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change in a source neither name nor text of the key is the same; both versions live side by side."""
    store_in(tmp_path).write("key", ARRAYS)
    before = only_file(tmp_path)

    with monkeypatch.context() as later:
        later.setattr(array_store, "source_digest", lambda *parts: "of a later version")
        assert store_in(tmp_path).read("key", LAYOUT) is None
        store_in(tmp_path).write("key", {**ARRAYS, "bytes": np.zeros(9, np.uint8)})
        (after,) = set(tmp_path.iterdir()) - {before}
        before.replace(after)
        assert store_in(tmp_path).read("key", LAYOUT) is None
        after.replace(before)

    assert is_whole(store_in(tmp_path).read("key", LAYOUT))


def test_sources_that_cannot_be_read_keep_nothing(tmp_path: Path) -> None:
    """Where nobody can say which code made the data, there is none."""
    store = ArrayStore(tmp_path, sources=["no_such_module.py"], max_bytes=1 << 20)

    assert not store.write("key", ARRAYS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "layout",
    [
        {"rows": ArrayLayout(np.int32, (None, 4))},
        {"rows": ArrayLayout(np.int32, (None,))},
        {"rows": ArrayLayout(np.int32, (5, 3))},
        {"rows": ArrayLayout(np.int64)},
        {"missing": ArrayLayout(np.int32)},
    ],
)
def test_arrays_of_another_layout_are_not_used(tmp_path: Path, layout: dict[str, ArrayLayout]) -> None:
    """Another shape, type or name is as good as no file."""
    store = store_in(tmp_path)
    store.write("key", ARRAYS)

    assert store.read("key", layout) is None
    assert store.read("key", {"rows": ArrayLayout(np.int32)}) is not None


def test_a_folder_that_cannot_be_written_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No call raises, nothing is found, and the log has one warning."""
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    store = store_in(blocked / "folder")

    for _ in range(3):
        assert not store.write("key", ARRAYS)
        assert store.read("key", LAYOUT) is None
        store.prune()

    assert len(caplog.records) == 1


def test_a_file_that_cannot_be_deleted_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Housekeeping that fails does not reach the caller, and leaves out no other file."""
    store_in(tmp_path).write("one", ARRAYS)
    stuck = only_file(tmp_path)
    unlink = Path.unlink

    def refuse(path: Path, *, missing_ok: bool) -> None:
        if path == stuck:
            raise PermissionError("somebody reads it")
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)

    assert store_in(tmp_path, max_bytes=0).write("two", ARRAYS)
    assert only_file(tmp_path) == stuck
    assert "somebody reads it" in caplog.text


def test_the_bound_holds_over_sub_folders_by_last_use(tmp_path: Path) -> None:
    """The files used longest ago go, wherever they lie; a file just read stays."""
    wide = store_in(tmp_path)
    wide.write("read lately", ARRAYS)
    lately = only_file(tmp_path)
    size = lately.stat().st_size
    deep = tmp_path / "scans" / "0123"
    deep.mkdir(parents=True)
    old = deep / f"{'a' * 40}-17.npz"
    old.write_bytes(b"x" * size)
    older = deep / f"{'b' * 40}.npz"
    older.write_bytes(b"x" * size)
    for age, path in enumerate([old, older, lately], 1):
        os.utime(path, (time.time() - 1000 * age,) * 2)
    assert is_whole(wide.read("read lately", LAYOUT))

    assert store_in(tmp_path, max_bytes=3 * size + size * 9 // 10).write("new", ARRAYS)

    assert old.exists()
    assert not older.exists()
    assert is_whole(wide.read("read lately", LAYOUT))
    assert is_whole(wide.read("new", LAYOUT))


def test_the_bound_holds_after_every_write(tmp_path: Path) -> None:
    """However many files one process writes, the folder is never over the bound."""
    store_in(tmp_path).write("first", ARRAYS)
    bound = 5 * only_file(tmp_path).stat().st_size
    store = store_in(tmp_path, max_bytes=bound)
    for number in range(50):
        store.write(f"key {number:05}", ARRAYS)
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= bound


def test_only_our_own_files_are_deleted(tmp_path: Path) -> None:
    """Leftovers of killed writers go after an hour; files with names that we do not give stay, whatever their age."""
    dead = [tmp_path / f"{'c' * 40}.abcd_123.part", tmp_path / "tmpabcd_123.part"]
    alive = tmp_path / f"{'d' * 40}.abcd_123.part"
    foreign = [tmp_path / "embeddings.npz", tmp_path / "deep" / "results.npz", tmp_path / "movie.part"]
    foreign[1].parent.mkdir()
    for path in [*dead, alive, *foreign]:
        path.write_bytes(b"half")
    for path in [*dead, *foreign]:
        os.utime(path, (time.time() - 3700,) * 2)

    store_in(tmp_path, max_bytes=0).write("key", ARRAYS)

    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {alive, *foreign}


WRITER = """
import sys
from pathlib import Path
import numpy as np
from structgen.array_store import ArrayLayout, ArrayStore

folder, mine = Path(sys.argv[1]), int(sys.argv[2])
store = ArrayStore(folder, sources=["trie.py"], max_bytes=200_000)
layout = {"numbers": ArrayLayout(np.int32, (None,))}
hits = 0
for turn in range(300):
    key = f"key {turn % 7}"
    if turn % 2 == mine:
        assert store.write(key, {"numbers": np.full(10_000, turn % 7, np.int32)})
    found = store.read(key, layout)
    if found is not None:
        assert found["numbers"].tolist() == [turn % 7] * 10_000
        hits += 1
print(hits)
"""


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    """Both write the same keys, and delete, while both read: each read is whole, and nothing is left over."""
    command = [sys.executable, "-W", "error", "-c", WRITER, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    writers = [
        subprocess.Popen([*command, str(mine)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        for mine in range(2)
    ]
    for writer in writers:
        out, err = writer.communicate(timeout=120)
        assert writer.returncode == 0, err.decode()
        assert err == b""
        assert int(out) > 100
    assert not list(tmp_path.glob("*.part"))
