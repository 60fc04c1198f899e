"""The text of a request as its tokens come: whole characters only, and nothing that may become a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from structgen.decode.stop_strings import StopStrings


class GrowingText:
    """Bytes of tokens become text.

    Attributes:
        text: the text so far.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Start empty."""
        # Strict: every grammar is of UTF-8 texts, so bytes that are none are a fault of ours, not to be papered over.
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._stop_strings = StopStrings(stops)
        self.text = ""

    @property
    def stopped_by(self) -> str | None:
        """The stop string that ended the text, None if none did."""
        return self._stop_strings.found

    def add(self, data: bytes) -> None:
        """Take the bytes of a token."""
        self.text += self._stop_strings.feed(self._decoder.decode(data))

    def end(self) -> None:
        """Take what was held back: the text ends here."""
        self.text += self._stop_strings.feed(self._decoder.decode(b"", final=True)) + self._stop_strings.flush()
