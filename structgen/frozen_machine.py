"""A frozen token automaton: every state of a grammar over a vocabulary, as plain arrays that one file holds.

A step is two loads, next_state[state, token_class[token]]; a mask is a row. Needs nothing but numpy, so a machine that
only decodes can load it. Leaves out how it is made (grammar/frozen_build.py), and walks (grammar/frozen_automaton.py).
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from structgen.array_file import Arrays, write_whole
from structgen.array_store import ArrayLayout
from structgen.errors import OptionError, shown

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

DEAD_CLASS = 0
STOP_CLASS = 1

MAX_LISTED_TOKENS = 4096
"""States with more legal tokens have no list of them."""

_FORMAT = 1

_LAYOUT = {
    "header": ArrayLayout(np.int64, (2,)),
    "vocabulary_digest": ArrayLayout(np.uint8, (32,)),
    "token_class": ArrayLayout(np.uint16, (None,)),
    "next_state": ArrayLayout(np.int32, (None, None)),
    "mask_row": ArrayLayout(np.int32, (None,)),
    "mask_rows": ArrayLayout(np.int32, (None, None)),
    "num_legal": ArrayLayout(np.int32, (None,)),
    "list_start": ArrayLayout(np.int64, (None,)),
    "list_ids": ArrayLayout(np.int32, (None,)),
    "accepting": ArrayLayout(np.bool_, (None,)),
    "cost": ArrayLayout(np.int32, (None,)),
    "cost_after": ArrayLayout(np.int32, (None,)),
    "free_row": ArrayLayout(np.int32, (None,)),
    "byte_class": ArrayLayout(np.int32, (256,)),
    "byte_next": ArrayLayout(np.int32, (None, None)),
    "place": ArrayLayout(np.int32, (None,)),
    "place_start": ArrayLayout(np.int64, (None,)),
    "place_text": ArrayLayout(np.uint8, (None,)),
    "stop_ids": ArrayLayout(np.int32, (None,)),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class FrozenMachine:
    """All states of a token automaton; immutable, its arrays read-only.

    S states, K token classes, R rows, W = ceil(V / 32) words. The last state is the end: a stop token leads there, and
    nothing leads on. Token class 0 is legal nowhere; class 1 is the stop ids.

    Attributes:
        start: the state before any text.
        vocabulary_digest: of the vocabulary, in hex.
        token_class: (V,) uint16.
        next_state: (S, K) int32, -1 where the class is not legal.
        mask_row: (S,) int32, the row of each state in mask_rows; -1 where a state is only named: what may follow it,
            and how, is not in these tables (grammar/frozen_part.py).
        mask_rows: (R, W) int32, bit 1 = legal; no two alike.
        num_legal: (R,) int32, how many tokens a row has.
        list_start: (R + 1,) int64, where the list of a row begins in list_ids; rows of over 4,096 tokens have none.
        list_ids: int32, ascending token ids.
        accepting: (S,) whether the text may end.
        cost: (S,) int32, how many tokens are enough to end.
        cost_after: (S,) int32, the greatest cost after any legal token: only budgets up to it take tokens away.
        free_row: (S,) int32, the row of the tokens that stay inside free text, -1 where none is live.
        byte_class: (256,) int32, bytes that no state tells apart; of a part all are one, which leads nowhere.
        byte_next: (S, number of byte classes) int32, the state after a byte, or -1: for tokens that the table lacks.
        place: (S,) int32, which text says what is being read.
        place_start: where each of these texts begins in place_text.
        place_text: uint8, UTF-8.
        stop_ids: int32.
    """

    start: int
    vocabulary_digest: str
    token_class: npt.NDArray[np.uint16]
    next_state: Ints
    mask_row: Ints
    mask_rows: Ints
    num_legal: Ints
    list_start: Longs
    list_ids: Ints
    accepting: Bools
    cost: Ints
    cost_after: Ints
    free_row: Ints
    byte_class: Ints
    byte_next: Ints
    place: Ints
    place_start: Longs
    place_text: npt.NDArray[np.uint8]
    stop_ids: Ints

    def __post_init__(self) -> None:
        """Make every array read-only: threads share them."""
        for array in self._arrays().values():
            array.setflags(write=False)

    def __repr__(self) -> str:
        """Show the sizes."""
        return (
            f"FrozenMachine(states={self.num_states}, classes={self.num_classes}, rows={self.num_rows}, "
            f"vocabulary={self.num_tokens} tokens, {self.num_bytes / 2**20:.1f} MiB)"
        )

    @property
    def num_states(self) -> int:
        """S, the end included."""
        return len(self.next_state)

    @property
    def is_whole(self) -> bool:
        """Whether every state is described, and none only named."""
        return bool((self.mask_row >= 0).all())

    @property
    def end(self) -> int:
        """The state after a stop token."""
        return self.num_states - 1

    @property
    def num_classes(self) -> int:
        """K."""
        return int(self.next_state.shape[1])

    @property
    def num_rows(self) -> int:
        """R."""
        return len(self.mask_rows)

    @property
    def num_tokens(self) -> int:
        """V."""
        return len(self.token_class)

    @cached_property
    def num_bytes(self) -> int:
        """How much memory the arrays take."""
        return sum([int(array.nbytes) for array in self._arrays().values()])

    def place_of(self, state: int) -> str:
        """Return what is being read in a state, for messages."""
        first, last = self.place_start[self.place[state]], self.place_start[self.place[state] + 1]
        return self.place_text[first:last].tobytes().decode()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the machine to one file, which appears whole or not at all.

        Raises:
            OSError: it cannot be written.
            OptionError: the path is none.
        """
        digest = np.frombuffer(bytes.fromhex(self.vocabulary_digest), np.uint8)
        header = np.array([_FORMAT, self.start], np.int64)
        arrays: Arrays = {"header": header, "vocabulary_digest": digest, **self._arrays()}
        write_whole(_checked_path(path), partial(_write_archive, arrays))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FrozenMachine:
        """Read a machine from a file that `save` wrote.

        Raises:
            OptionError: there is no such file, or what it holds is damaged or of another version.
        """
        file = _checked_path(path)
        try:
            arrays = _read_archive(file, _LAYOUT)
        except FileNotFoundError:
            raise OptionError(f"there is no file {file}: save a frozen machine there first") from None
        except Exception as error:  # damage shows itself in any way: as zip, numpy, key or value errors
            raise _unusable(file, f"it cannot be read ({shown(error)})") from error
        wrong = [name for name, layout in _LAYOUT.items() if not layout.fits(arrays[name].dtype, arrays[name].shape)]
        if wrong:
            raise _unusable(file, f"{wrong[0]} is not what it should be")
        version, start = arrays.pop("header").tolist()
        if version != _FORMAT:
            raise _unusable(file, f"its format is {version}, and this version reads {_FORMAT}")
        digest = arrays.pop("vocabulary_digest").tobytes().hex()
        if (fault := _fault(arrays, start)) is not None:
            raise _unusable(file, fault)
        values: dict[str, Any] = arrays
        return cls(start=start, vocabulary_digest=digest, **values)

    def _arrays(self) -> Arrays:
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in named.items() if isinstance(value, np.ndarray)}


def _checked_path(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, str | os.PathLike) or isinstance(os.fspath(path), bytes):
        raise OptionError(f"path must be a file's name, not {shown(path)}")
    return Path(path)


def _unusable(file: Path, reason: str) -> OptionError:
    return OptionError(f"{file} holds no frozen machine that can be used: {reason}; freeze and save it again")


def _fault(arrays: Arrays, start: int) -> str | None:
    """Return why arrays that fit the layout are no machine, None if they are: no step may lead out of a table."""
    num_states, num_classes = arrays["next_state"].shape
    num_rows, num_words = arrays["mask_rows"].shape
    by_state = ("mask_row", "accepting", "cost", "cost_after", "free_row", "byte_next", "place")
    fits = num_states > 0 and num_classes > STOP_CLASS and all(len(arrays[name]) == num_states for name in by_state)
    fits = fits and num_words == (len(arrays["token_class"]) + 31) // 32 and len(arrays["place_start"]) > 0
    if not fits or len(arrays["num_legal"]) != num_rows or len(arrays["list_start"]) != num_rows + 1:
        return "its arrays do not fit together"
    bounds = {
        "token_class": (0, num_classes),
        "next_state": (-1, num_states),
        "byte_next": (-1, num_states),
        "byte_class": (0, arrays["byte_next"].shape[1]),
        "mask_row": (-1, num_rows),
        "free_row": (-1, num_rows),
        "place": (0, len(arrays["place_start"]) - 1),
        "list_start": (0, len(arrays["list_ids"]) + 1),
        "list_ids": (0, len(arrays["token_class"])),
        "stop_ids": (0, len(arrays["token_class"])),
        "place_start": (0, len(arrays["place_text"]) + 1),
    }
    for name, (low, above) in bounds.items():
        if arrays[name].min(initial=low) < low or arrays[name].max(initial=low) >= above:
            return f"{name} points outside"
    for name in ("list_start", "place_start"):
        if (np.diff(arrays[name]) < 0).any():
            return f"{name} is not ascending"
    return None if 0 <= start < num_states else "its start is no state"


def _write_archive(arrays: Arrays, file: BinaryIO) -> None:
    """Write arrays as an archive that np.load reads."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)


def _read_archive(path: Path, names: Iterable[str]) -> Arrays:
    """Return arrays of such an archive, read-only; where it is damaged, any error."""
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        return {name: _read_array(archive, name) for name in names}


def _read_array(archive: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    """Return one array of an archive, read-only; the whole member is read, as only then is its checksum compared."""
    data = archive.read(f"{name}.npy")
    header = io.BytesIO(data)
    np.lib.format.read_magic(header)
    shape, _, dtype = np.lib.format.read_array_header_1_0(header)
    return np.frombuffer(data, dtype, offset=header.tell()).reshape(shape)
