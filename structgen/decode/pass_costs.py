"""What a pass of the target model costs by the number of tokens it reads: a table, corrected by every pass made.

The table has two parts, because they change for different reasons. The shape says how much more a pass over n tokens
takes than one over a single token: a matter of the machine, learnt slowly. The scale says how long a single token takes
now: it grows with the context, and jumps when other programs run. A round that was slow because of the machine's load
then makes all passes slower alike, and no draft length looks better or worse for it.

Tokens are counted over all rows of a pass, padding included: eight rows of one token cost about what one row of eight
does. So a batch and a single text learn from each other.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping

from structgen.config import check_count, check_number
from structgen.errors import OptionError

# For a machine of which no table was measured: SmolLM2-135M in float32 on one core, 1 to 16 tokens. What is learnt from
# the first passes soon counts for more.
UNMEASURED: Mapping[int, float] = {1: 0.051, 2: 0.083, 4: 0.093, 8: 0.092, 16: 0.097}

_SHAPE_RATE = 0.05
_GUESS_RATE = 0.5
_SCALE_RATE = 0.1
# A pass that reads so many times more than the largest size in the table becomes a size of its own.
_BEYOND = 1.5
# One pass may say that it took up to so many times what was expected; the rest is taken for noise.
_MOST_SURPRISE = 1.5


class PassCosts:
    """Seconds of a pass; not safe for threads by itself, its owner holds a lock."""

    def __init__(self, seconds_by_tokens: Mapping[int, float] | None = None) -> None:
        """Start from a table.

        Args:
            seconds_by_tokens: seconds of a pass by the number of tokens that it reads, of one token at least; None is
                the table of another machine, until passes have been measured.

        Raises:
            OptionError: the table has no entry for one token, or an entry that is no positive number.
        """
        table = UNMEASURED if seconds_by_tokens is None else seconds_by_tokens
        if 1 not in table:
            raise OptionError("a table of costs needs the seconds of a pass over one token: measure {1: ...}")
        for num_tokens, seconds in table.items():
            check_count("a number of tokens in a table of costs", num_tokens)
            check_number(f"the seconds of a pass over {num_tokens} tokens", seconds, above=0.0)
        self._sizes = sorted(table)
        self._shape = {size: table[size] / table[1] for size in self._sizes}
        self._scale = table[1]
        # Sizes past the end of the table, with how many passes told of them.
        self._guessed: dict[int, float] = {}
        self._has_scale = seconds_by_tokens is not None

    def seconds(self, num_tokens: int) -> float:
        """Return what a pass over so many tokens takes."""
        return self._scale * self.ratio(num_tokens)

    def ratio(self, num_tokens: int) -> float:
        """Return the same in passes over a single token."""
        sizes = self._sizes
        if num_tokens <= 1:
            return 1.0
        if len(sizes) == 1:
            return float(num_tokens)
        above = min(max(bisect.bisect_left(sizes, num_tokens), 1), len(sizes) - 1)
        low, high = sizes[above - 1], sizes[above]
        slope = (self._shape[high] - self._shape[low]) / (high - low)
        if num_tokens > high:
            # Measured tables have dents; past the end a line that is flat or falls would promise passes for nothing.
            far = next((size for size in sizes if 4 * size >= high), low)
            slope = max(0.0, slope, (self._shape[high] - self._shape[far]) / (high - far) if far != high else slope)
            return self._shape[high] + slope * (num_tokens - high)
        return self._shape[low] + slope * (num_tokens - low)

    def record(self, num_tokens: int, seconds: float, *, weight: float = 1.0) -> None:
        """Take note of a pass.

        Args:
            num_tokens: tokens that it read, padding included.
            seconds: what it took.
            weight: how much it counts: a part of one where several rows tell of the same pass.
        """
        if seconds <= 0.0:
            return  # a clock that is too coarse says nothing
        if not self._has_scale:
            self._scale, self._has_scale = seconds / self.ratio(num_tokens), True
            return
        surprise = max(1 / _MOST_SURPRISE, min(_MOST_SURPRISE, seconds / self.seconds(num_tokens)))
        if num_tokens > _BEYOND * self._sizes[-1]:
            self._shape[num_tokens] = self.ratio(num_tokens)
            self._sizes.append(num_tokens)
            self._guessed[num_tokens] = 1.0
        # A size that is on no entry of the table is told to the nearest one.
        nearest = min(self._sizes, key=lambda size: abs(math.log(size / num_tokens)))
        if nearest != 1:
            rate = _SHAPE_RATE
            if nearest in self._guessed:
                # What nobody measured is corrected fast at first.
                rate = max(rate, _GUESS_RATE / self._guessed[nearest])
                self._guessed[nearest] += weight
            self._shape[nearest] *= surprise ** (rate * weight)
        self._scale *= surprise ** (_SCALE_RATE * weight)
