"""Stop strings of free text: where the text ends, and how much of it can be shown before that is known."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Looks for the first of several strings in a text that comes in pieces.

    The first is the one whose last character comes first (of several that end there the longest), so that nothing
    depends on how the text is cut into pieces.

    Attributes:
        found: the stop string that was met, None so far.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Start before the first piece; the strings are not empty."""
        self._stops = tuple(stops)
        self._held = ""
        self.found: str | None = None

    def feed(self, piece: str) -> str:
        """Return what now belongs to the text for certain: all before a stop, and nothing that may be part of one."""
        if not self._stops:
            return piece
        text = self._held + piece
        hits = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if hits:
            _, at, self.found = min(hits)
            self._held = ""
            return text[:at]
        num_held = max((_num_begun(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held]

    def flush(self) -> str:
        """Return what was held back, once the text has ended without a stop."""
        held, self._held = self._held, ""
        return held


def _num_begun(text: str, stop: str) -> int:
    """Return how many characters at the end of a text could be the beginning of a stop string."""
    longest = min(len(text), len(stop) - 1)
    return next((length for length in range(longest, 0, -1) if text.endswith(stop[:length])), 0)
