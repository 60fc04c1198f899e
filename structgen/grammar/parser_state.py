"""The walk over a token automaton: the one mutable value, small, one per request."""

from __future__ import annotations

import operator
from typing import Protocol

from structgen.errors import OptionError, TokenRejectedError, shown
from structgen.kernels.trie_walk import Ints
from structgen.vocabulary import Vocabulary


class Automaton(Protocol):
    """What a walk asks of a token automaton."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens that are walked over."""

    @property
    def start_configuration(self) -> int:
        """The state before any text."""

    @property
    def end_mask(self) -> Ints:
        """The mask after the end."""

    def is_accepting(self, configuration: int) -> bool:
        """Return whether the text may end here."""

    def finishing_cost(self, configuration: int) -> int:
        """Return how many tokens are enough to end from here."""

    def describe(self, configuration: int) -> str:
        """Return a short text for messages."""

    def mask(self, configuration: int) -> Ints:
        """Return the legal tokens."""

    def mask_within(self, configuration: int, budget: int) -> Ints:
        """Return the legal tokens after which budget - 1 more are enough to end."""

    def free_text_mask(self, configuration: int) -> Ints | None:
        """Return the tokens that stay inside free text."""

    def key(self, configuration: int) -> tuple[int, int]:
        """Return a key that is the same wherever the same tokens are legal."""

    def next_configuration(self, configuration: int, token_id: int) -> int:
        """Return the state after a token, or raise TokenRejectedError."""

    def forced_bytes(self, configuration: int) -> bytes:
        """Return the bytes that every continuation starts with."""


class ParserState:
    """Where a text stands in an automaton; not for several threads at once, fork() it instead."""

    __slots__ = ("_automaton", "_history", "_is_finished", "_token_ids", "configuration")

    def __init__(self, automaton: Automaton) -> None:
        """Stand before any text."""
        self._automaton = automaton
        self.configuration = automaton.start_configuration
        self._history: list[int] = []
        self._token_ids: list[int] = []
        self._is_finished = False

    def __repr__(self) -> str:
        """Show how far the walk is, whether the text may end, and what is open."""
        end = "may end" if self.is_accepting else "not at an end"
        return f"ParserState({len(self._token_ids)} tokens taken, {end}, {self.description})"

    @property
    def automaton(self) -> Automaton:
        """The automaton that is walked."""
        return self._automaton

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The tokens so far, a stop token included."""
        return tuple(self._token_ids)

    @property
    def text_bytes(self) -> bytes:
        """The bytes of the tokens so far."""
        return self._automaton.vocabulary.decode(self._token_ids)

    @property
    def is_accepting(self) -> bool:
        """Whether the text may end here."""
        return self._automaton.is_accepting(self.configuration)

    @property
    def is_finished(self) -> bool:
        """Whether a stop token was taken: nothing is legal any more."""
        return self._is_finished

    @property
    def tokens_to_end_bound(self) -> int:
        """d(s): a budget of this many tokens (the stop token not counted) is enough to end from here."""
        return 0 if self._is_finished else self._automaton.finishing_cost(self.configuration)

    @property
    def description(self) -> str:
        """A short text for messages."""
        return "after the end" if self._is_finished else self._automaton.describe(self.configuration)

    @property
    def key(self) -> tuple[int, int]:
        """What drafters learn by: the same wherever the same tokens are legal, also in another text."""
        return self._automaton.key(self.configuration)

    def mask(self) -> Ints:
        """Return the legal tokens: (ceil(V / 32),) int32, read-only, bit 1 = legal."""
        return self._automaton.end_mask if self._is_finished else self._automaton.mask(self.configuration)

    def mask_within(self, budget: int) -> Ints:
        """Return the legal tokens after which budget - 1 more tokens are enough to end; stop ids stay as in mask()."""
        if type(budget) is not int:
            budget = _whole("budget", budget)
        if self._is_finished:
            return self._automaton.end_mask
        return self._automaton.mask_within(self.configuration, budget)

    def free_text_mask(self) -> Ints | None:
        """Return the tokens that stay inside free text, None where no free text is live."""
        return None if self._is_finished else self._automaton.free_text_mask(self.configuration)

    def allows(self, token_id: int) -> bool:
        """Return whether a token is legal here."""
        if type(token_id) is not int:
            token_id = _whole("token_id", token_id)
        if not 0 <= token_id < self._automaton.vocabulary.size:
            return False
        return bool(int(self.mask()[token_id >> 5]) >> (token_id & 31) & 1)

    def advance(self, token_id: int) -> None:
        """Take a token.

        Raises:
            TokenRejectedError: it is illegal here; the state is unchanged.
            OptionError: it is no int.
        """
        if type(token_id) is not int:
            token_id = _whole("token_id", token_id)
        if not 0 <= token_id < self._automaton.vocabulary.size:
            last = self._automaton.vocabulary.size - 1
            raise TokenRejectedError(token_id, f"token {shown(token_id)} is none of the vocabulary, 0 to {last}")
        if self._is_finished:
            raise TokenRejectedError(token_id, f"token {token_id} comes after the end: roll back first")
        if token_id in self._automaton.vocabulary.stop_ids:
            if not self.is_accepting:
                raise TokenRejectedError(
                    token_id, f"stop token {token_id}: the text cannot end in state {self.description}"
                )
            self._history.append(self.configuration)
            self._is_finished = True
        else:
            after = self._automaton.next_configuration(self.configuration, token_id)
            self._history.append(self.configuration)
            self.configuration = after
        self._token_ids.append(token_id)

    def rollback(self, num_tokens: int) -> None:
        """Undo the last num_tokens tokens.

        Raises:
            OptionError: it is not an int from 0 to the number of tokens taken.
        """
        if type(num_tokens) is not int:
            num_tokens = _whole("num_tokens", num_tokens)
        if not 0 <= num_tokens <= len(self._history):
            raise OptionError(
                f"cannot roll back {shown(num_tokens)} tokens: pass a number from 0 to {len(self._history)}, which is "
                "how many were taken"
            )
        if num_tokens:
            self.configuration = self._history[-num_tokens]
            del self._history[-num_tokens:]
            del self._token_ids[-num_tokens:]
            self._is_finished = False

    def fork(self) -> ParserState:
        """Return a copy that goes its own way."""
        other = ParserState(self._automaton)
        other.configuration = self.configuration
        other._history = self._history.copy()
        other._token_ids = self._token_ids.copy()
        other._is_finished = self._is_finished
        return other

    def forced_bytes(self) -> bytes:
        """Return the bytes that every continuation starts with."""
        return b"" if self._is_finished else self._automaton.forced_bytes(self.configuration)

    def forced_tokens(self) -> list[int]:
        """Return the canonical tokens of the forced bytes: a draft, not a promise."""
        return self._automaton.vocabulary.encode(self.forced_bytes())


def _whole(name: str, value: object) -> int:
    """Return an integer of numpy or torch as an int, and refuse what is none."""
    if not hasattr(value, "__index__") or isinstance(value, bool):
        raise OptionError(f"{name} must be an int, not {shown(value)}")
    try:
        return operator.index(value)
    except Exception as error:  # a tensor of several elements, or of floats
        raise OptionError(f"{name} must be an int, not {shown(value)}") from error
