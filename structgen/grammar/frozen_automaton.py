"""Walks over a frozen machine: the same answers as those of the lazy core, by looking them up.

Needs neither the grammar nor what read it, so a machine that was loaded from a file is walked by this alone.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property

import numpy as np

from structgen.errors import OptionError, TokenRejectedError, VocabularyError
from structgen.frozen_machine import STOP_CLASS, FrozenMachine
from structgen.grammar.parser_state import ParserState
from structgen.kernels.token_columns import ClassTokens
from structgen.kernels.trie_walk import Ints
from structgen.vocabulary import Vocabulary

_MAX_CUT_ROWS = 64
_MAX_FORCED_BYTES = 4096


class FrozenAutomaton:
    """Which tokens may follow, for every text of a grammar; thread-safe."""

    def __init__(self, machine: FrozenMachine, vocabulary: Vocabulary) -> None:
        """Take the tables.

        Args:
            machine: all states.
            vocabulary: the one that they were made for.

        Raises:
            VocabularyError: it is another one.
            OptionError: the machine is a part of an automaton.
        """
        if not machine.is_whole:
            raise OptionError(
                "this frozen machine is a part of an automaton, for a device: walk the automaton that it was made from"
            )
        if machine.vocabulary_digest != vocabulary.digest:
            raise VocabularyError(
                f"this frozen machine is for another vocabulary ({machine.vocabulary_digest[:12]}, not "
                f"{vocabulary.digest[:12]}): load the tokenizer and stop ids that it was frozen with, or freeze anew"
            )
        self.machine = machine
        self._vocabulary = vocabulary
        self._rows: list[Ints] = list(machine.mask_rows)
        self._row_of: list[int] = machine.mask_row.tolist()
        self._accepting: list[bool] = machine.accepting.tolist()
        self._costs: list[int] = machine.cost.tolist()
        self._next_state, self._token_class = machine.next_state.item, machine.token_class.item
        self._cut_rows: OrderedDict[tuple[int, int], Ints] = OrderedDict()

    def __repr__(self) -> str:
        """Show the machine."""
        return f"FrozenAutomaton({self.machine!r})"

    def start(self) -> ParserState:
        """Return a walk that stands before any text."""
        return ParserState(self)

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens that are walked over."""
        return self._vocabulary

    @property
    def start_configuration(self) -> int:
        """The state before any text."""
        return self.machine.start

    @property
    def end_mask(self) -> Ints:
        """The mask after the end: nothing is legal."""
        return self.mask(self.machine.end)

    def is_accepting(self, configuration: int) -> bool:
        """Return whether the text may end here."""
        return self._accepting[configuration]

    def finishing_cost(self, configuration: int) -> int:
        """Return how many tokens are enough to end from here."""
        return self._costs[configuration]

    def describe(self, configuration: int) -> str:
        """Return a short text for messages."""
        return f"{configuration} {self.machine.place_of(configuration)}"

    def mask(self, configuration: int) -> Ints:
        """Return the legal tokens."""
        return self._rows[self._row_of[configuration]]

    def mask_within(self, configuration: int, budget: int) -> Ints:
        """Return the legal tokens after which budget - 1 more are enough to end; stop ids stay as in the mask."""
        if budget > int(self.machine.cost_after[configuration]):
            return self.mask(configuration)
        cut = self._cut_rows.get((configuration, budget))
        if cut is None:
            after = self.machine.next_state[configuration]
            legal = (after >= 0) & (self.machine.cost[after] <= budget - 1)
            legal[STOP_CLASS] = after[STOP_CLASS] >= 0
            cut = self._class_tokens.masks(legal[None])[0]
            cut.setflags(write=False)
            self._cut_rows[configuration, budget] = cut
            if len(self._cut_rows) > _MAX_CUT_ROWS:
                self._cut_rows.popitem(last=False)
        return cut

    def free_text_mask(self, configuration: int) -> Ints | None:
        """Return the tokens that stay inside free text, None where no free text is live."""
        row = int(self.machine.free_row[configuration])
        return None if row < 0 else self._rows[row]

    def key(self, configuration: int) -> tuple[int, int]:
        """Return a key that is the same wherever the same tokens are legal and lead to the same states."""
        return id(self), configuration

    def next_configuration(self, configuration: int, token_id: int) -> int:
        """Return the state after a token that is not a stop id.

        Raises:
            TokenRejectedError: the token is illegal here.
        """
        after: int = self._next_state(configuration, self._token_class(token_id))
        if after < 0:
            data = self._vocabulary.token_bytes(token_id)
            what = repr(data) if data else "a special or unknown token, which never is text"
            raise TokenRejectedError(
                token_id,
                f"token {token_id} ({what}) is not legal in state {self.describe(configuration)}; see mask()",
            )
        return after

    def forced_bytes(self, configuration: int) -> bytes:
        """Return the bytes that every continuation starts with (at most 4,096 of them)."""
        forced = bytearray()
        while len(forced) < _MAX_FORCED_BYTES and not self._accepting[configuration]:
            byte = int(self._forced_byte[configuration])
            if byte < 0:
                break
            forced.append(byte)
            configuration = int(self.machine.byte_next[configuration, self.machine.byte_class[byte]])
        return bytes(forced)

    @cached_property
    def _class_tokens(self) -> ClassTokens:
        return ClassTokens.of(self.machine.token_class, self.machine.num_classes)

    @cached_property
    def _forced_byte(self) -> Ints:
        """The one byte that each state goes on with, -1 where there is none or a choice."""
        machine = self.machine
        sizes = np.bincount(machine.byte_class, minlength=machine.byte_next.shape[1])
        some_byte = np.zeros(len(sizes), np.int32)
        some_byte[machine.byte_class] = np.arange(256)
        goes_on = machine.byte_next >= 0
        return np.where(goes_on @ sizes == 1, some_byte[goes_on.argmax(axis=1)], -1).astype(np.int32)
