"""structgen as an engine of harnesses that compare grammar engines: MaskBench, the official JSON Schema suite.

From the root of the repository: --engine benchmarks.maskbench_engine:StructgenEngine.
"""

from __future__ import annotations

from typing import Any

import structgen as sg


class StructgenEngine:
    """Compiles a schema for the tokenizer of the run; nothing is kept between schemas but the shared lexemes."""

    package = "structgen"

    def __init__(self, tok: Any, property_order: str = "declared") -> None:
        """Read the vocabulary."""
        self.vocabulary = sg.Vocabulary.from_tokenizer(tok.hf)
        self.property_order = property_order

    def compile(self, schema: Any) -> Matcher:
        """Return a matcher at the start of the output."""
        declared = sg.JsonSchema(schema, whitespace="any")
        automaton = sg.compile(declared, self.vocabulary, cache=None, property_order=self.property_order)
        return Matcher(automaton)


class Matcher:
    """One generation."""

    def __init__(self, automaton: Any) -> None:
        """Stand at the start."""
        self.automaton = automaton
        self.reset()

    def reset(self) -> None:
        """Go back to the start."""
        self.state = self.automaton.start()

    def mask(self) -> None:
        """Compute the mask of this position."""
        self.row = self.state.mask()

    def allows(self, token: int) -> bool:
        """Look a token up in the mask."""
        return bool(int(self.row[token >> 5]) >> (token & 31) & 1)

    def advance(self, token: int) -> bool:
        """Commit a token."""
        try:
            self.state.advance(token)
        except sg.TokenRejectedError:
            return False
        return True

    def can_end(self) -> bool:
        """Return whether the output may end here."""
        return bool(self.state.is_accepting)
