"""The token automaton: a grammar times a vocabulary, lazily made, shared by every request and thread.

It hands out walks over its core. Counters make a long-lived core grow for ever, though its rows do not: so once a core
has grown to half of what is allowed, new walks get a fresh one, with the rows of the old. Once it is frozen, new walks
go over tables of all states. Walks under way keep what they began with, so nobody loses a state that he holds. A part
of it, which a device takes where there is no end of states, has a core of its own, and begins anew in the same way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from structgen.array_file import Arrays
from structgen.config import Limits, check_count, check_property_order
from structgen.findings import Explanation
from structgen.frozen_machine import FrozenMachine
from structgen.grammar.core import AutomatonCore
from structgen.grammar.frozen_automaton import FrozenAutomaton
from structgen.grammar.frozen_build import freeze
from structgen.grammar.frozen_part import FrozenPart
from structgen.grammar.json_schema import PropertyOrder, SchemaSource
from structgen.grammar.json_schema.findings import explain_json
from structgen.grammar.met_states import MetStates, exported
from structgen.grammar.parser_state import ParserState
from structgen.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True, slots=True)
class AutomatonStats:
    """How large an automaton has become.

    Attributes:
        states: configurations met since the core was made; all there are, the end included, once frozen.
        rows: mask rows at hand.
        distinct_rows: rows that differ.
        classes: tokens that do the same in every state are one class; known, and not 0, once frozen.
        terminals: lexemes of the grammar.
        memory_bytes: the distinct rows; all tables once frozen.
        compile_seconds: time until the first state was there.
    """

    states: int
    rows: int
    distinct_rows: int
    classes: int
    terminals: int
    memory_bytes: int
    compile_seconds: float


class TokenAutomaton:
    """Which tokens may follow, for every text of a grammar; thread-safe."""

    def __init__(
        self,
        make_core: Callable[[], AutomatonCore],
        *,
        digest: str,
        limits: Limits,
        compile_seconds: float,
        met: MetStates | None = None,
    ) -> None:
        """Make the first core, unless there are met states to begin with.

        Args:
            make_core: makes one that knows the start state only.
            digest: key of the automaton in caches.
            limits: how many states one core may have at the most, and what freezing may cost.
            compile_seconds: what building took before.
            met: states that texts met in an earlier process; their core is made when a text leaves them.

        Raises:
            VocabularyError: the vocabulary cannot spell any text of the grammar.
        """
        self.digest = digest
        self._make_core = make_core
        self._limits = limits
        self._compile_seconds = compile_seconds
        self._lock = threading.Lock()
        self._met = met
        self._newest = make_core() if met is None else None
        self._freeze_lock = threading.Lock()
        self._frozen: FrozenAutomaton | None = None
        self._part: FrozenPart | None = None
        self._part_states = 0

    def __repr__(self) -> str:
        """Show the sizes that say which automaton this is."""
        return (
            f"TokenAutomaton(terminals={self._at_hand.num_terminals}, vocabulary={self.vocabulary.size} tokens, "
            f"states={self.stats.states}, rows={self.num_rows}, {'frozen, ' if self.is_frozen else ''}"
            f"digest={self.digest[:12]!r})"
        )

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens that are walked over."""
        return self._at_hand.vocabulary

    @property
    def _at_hand(self) -> AutomatonCore | MetStates:
        """What new walks go over."""
        if self._newest is None and self._met is not None and not self._met.has_core:
            return self._met
        return self._core

    @property
    def _core(self) -> AutomatonCore:
        """The core of new walks, made now if they only went over met states so far."""
        if self._newest is None:
            self._newest = self._make_core() if self._met is None else self._met.core
        return self._newest

    def start(self) -> ParserState:
        """Return a walk that stands before any text."""
        if self._frozen is not None:
            return self._frozen.start()
        at_hand = self._at_hand
        if isinstance(at_hand, MetStates):
            return ParserState(at_hand)
        with self._lock:
            core = self._core
            if 2 * core.num_configurations > self._limits.states:
                self._newest = self._make_core()
                self._newest.import_rows(core.export_rows())
            return ParserState(self._core)

    def freeze(self) -> None:
        """Explore every state now, so that walks from then on look each step and each mask up.

        Walks that were started before go on as they are. What is frozen already is left alone.

        Raises:
            LimitError: the states do not end within the limits that this was compiled with: nesting without a bound
                has no end of them, and each count of a length has its own. All stays as it is.
        """
        with self._freeze_lock:
            if self._frozen is None:
                # Of its own, so that one that is given up leaves nothing behind.
                self._frozen = FrozenAutomaton(freeze(self._make_core(), self._limits), self.vocabulary)

    def freeze_part(self, *, num_states: int = 4000) -> FrozenPart:
        """Explore the states nearest to the start now, as tables for a device: for what `freeze` cannot end.

        Texts in device mode follow them from then on, and describe more states as they meet them. Walks stay lazy.

        Args:
            num_states: how many states are described at first.

        Raises:
            LimitError: not even the start can be described, or it takes more time or memory than it may.
            OptionError: the number is none.
        """
        check_count("num_states", num_states)
        with self._freeze_lock:
            self._part = FrozenPart(self._make_core(), self._limits, num_states=num_states)
            self._part_states = num_states
            return self._part

    @property
    def frozen_part(self) -> FrozenPart | None:
        """What texts in device mode follow; None before `freeze_part`. Once it has grown too large, a new one."""
        with self._freeze_lock:
            if self._part is not None and self._part.is_full:
                self._part = FrozenPart(self._make_core(), self._limits, num_states=self._part_states)
            return self._part

    @property
    def is_frozen(self) -> bool:
        """Whether walks that start now go over tables of all states."""
        return self._frozen is not None

    @property
    def frozen_machine(self) -> FrozenMachine | None:
        """The tables of all states, to save in a file or to put on a device; None before `freeze`."""
        return None if self._frozen is None else self._frozen.machine

    def explain(self, schema: SchemaSource, *, property_order: PropertyOrder = "declared") -> Explanation:
        """Return what becomes of each keyword of a schema (data or JSON text): exact, refused, and what to do.

        The schema need not be the one that this automaton was made of; for any other output type there is `check`.

        Raises:
            GrammarSyntaxError: the text is no JSON.
            UnsupportedSchemaError: it is JSON, but no schema.
            LimitError: the schema is nested too deeply, or needs too many rules.
            OptionError: the schema is neither data nor text, or the order is none of the two.
        """
        check_property_order(property_order)
        return explain_json(schema, property_order=property_order)

    @property
    def stats(self) -> AutomatonStats:
        """How large the automaton is by now."""
        core, machine = self._at_hand, self.frozen_machine
        return AutomatonStats(
            states=core.num_configurations if machine is None else machine.num_states,
            rows=core.num_rows if machine is None else machine.num_rows,
            distinct_rows=core.num_distinct_rows if machine is None else machine.num_rows,
            classes=0 if machine is None else machine.num_classes,
            terminals=core.num_terminals,
            memory_bytes=core.num_distinct_rows * core.num_words * 4 if machine is None else machine.num_bytes,
            compile_seconds=self._compile_seconds,
        )

    @property
    def num_rows(self) -> int:
        """Number of mask rows at hand, those from disk included."""
        return self._at_hand.num_rows

    def export(self) -> Arrays:
        """Return the rows, and the states that texts have met, as a later process takes them (met_states.py)."""
        return exported(self._core, self._met)
