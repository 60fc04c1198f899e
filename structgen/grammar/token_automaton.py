"""The token automaton: a grammar times a vocabulary, lazily made, shared by every request and thread.

It hands out walks over its core. Counters make a long-lived core grow for ever, though its rows do not: so once a core
has grown to half of what is allowed, new walks get a fresh one, with the rows of the old. Walks under way keep
theirs, so no state is forgotten while anyone holds it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from structgen.config import check_property_order
from structgen.findings import Explanation
from structgen.grammar.core import AutomatonCore
from structgen.grammar.json_schema import PropertyOrder, SchemaSource
from structgen.grammar.json_schema.findings import explain_json
from structgen.grammar.parser_state import ParserState
from structgen.kernels.trie_walk import Ints
from structgen.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True, slots=True)
class AutomatonStats:
    """How large an automaton has become.

    Attributes:
        states: configurations met since the core was made.
        rows: mask rows at hand.
        distinct_rows: rows that differ.
        terminals: lexemes of the grammar.
        memory_bytes: the distinct rows.
        compile_seconds: time until the first state was there.
    """

    states: int
    rows: int
    distinct_rows: int
    terminals: int
    memory_bytes: int
    compile_seconds: float


class TokenAutomaton:
    """Which tokens may follow, for every text of a grammar; thread-safe."""

    def __init__(
        self, make_core: Callable[[], AutomatonCore], *, digest: str, max_states: int, compile_seconds: float
    ) -> None:
        """Make the first core.

        Args:
            make_core: makes one that knows the start state only.
            digest: key of the automaton in caches.
            max_states: how many states one core may have at the most.
            compile_seconds: what building took before.

        Raises:
            VocabularyError: the vocabulary cannot spell any text of the grammar.
        """
        self.digest = digest
        self._make_core = make_core
        self._max_states = max_states
        self._compile_seconds = compile_seconds
        self._lock = threading.Lock()
        self._core = make_core()

    def __repr__(self) -> str:
        """Show the sizes that say which automaton this is."""
        return (
            f"TokenAutomaton(terminals={self._core.num_terminals}, vocabulary={self.vocabulary.size} tokens, "
            f"states={self._core.num_configurations}, rows={self.num_rows}, digest={self.digest[:12]!r})"
        )

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens that are walked over."""
        return self._core.vocabulary

    def start(self) -> ParserState:
        """Return a walk that stands before any text."""
        with self._lock:
            if 2 * self._core.num_configurations > self._max_states:
                rows = self._core.export_rows()
                self._core = self._make_core()
                self._core.import_rows(rows)
            return ParserState(self._core)

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
        core = self._core
        return AutomatonStats(
            states=core.num_configurations,
            rows=core.num_rows,
            distinct_rows=core.num_distinct_rows,
            terminals=core.num_terminals,
            memory_bytes=core.num_distinct_rows * core.num_words * 4,
            compile_seconds=self._compile_seconds,
        )

    @property
    def num_rows(self) -> int:
        """Number of mask rows at hand, those from disk included."""
        return self._core.num_rows

    def export_rows(self) -> dict[str, Ints]:
        """Return the rows in a form that import_rows takes in another process (see AutomatonCore)."""
        return self._core.export_rows()

    def import_rows(self, arrays: Mapping[str, Ints]) -> bool:
        """Take rows that export_rows gave in another process; return False if their shapes do not fit."""
        return self._core.import_rows(arrays)
