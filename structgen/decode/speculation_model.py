"""What drafting ahead is worth, from what it costs: a formula, no measurement."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from structgen.config import check_count, check_number
from structgen.errors import OptionError


def speedup(*, acceptance: float, draft_tokens: int = 4, draft_cost: float, verify_cost: float = 1.0) -> float:
    """Return how many times faster speculative decoding is than one pass of the target model per token.

    Tokens per round over the cost of a round: (1 - acceptance ** (draft_tokens + 1)) / (1 - acceptance) tokens for
    draft_tokens * draft_cost + verify_cost passes. The formula is that of Leviathan et al. 2023, "Fast Inference from
    Transformers via Speculative Decoding"; it takes each drafted token to be accepted independently of the others.

    Args:
        acceptance: probability that a drafted token is accepted, 0 to 1.
        draft_tokens: tokens drafted per round.
        draft_cost: cost of drafting one token, in passes of the target model.
        verify_cost: cost of the pass that verifies them, likewise; 1 where a pass over a few tokens costs what one
            over a single token does.

    Raises:
        OptionError: a value that is no number, or out of range.
    """
    check_number("acceptance", acceptance, minimum=0.0, maximum=1.0)
    check_number("draft_cost", draft_cost, minimum=0.0)
    check_number("verify_cost", verify_cost, minimum=0.0)
    # As a number, because it is multiplied with some.
    check_number("draft_tokens", draft_tokens, minimum=0.0)
    check_count("draft_tokens", draft_tokens, minimum=0)
    cost = draft_tokens * draft_cost + verify_cost
    if cost == 0:
        raise OptionError("draft_cost and verify_cost are both 0: a round that costs nothing has no speed")
    if acceptance in (0.0, 1.0):
        return (draft_tokens * acceptance + 1) / cost
    # expm1 keeps the digits that a plain subtraction loses near an acceptance of 1.
    return math.expm1((draft_tokens + 1) * math.log(acceptance)) / (acceptance - 1) / cost


def best_length(survivals: Sequence[Sequence[float]], price: Callable[[int], float]) -> int:
    """Return how many drafted tokens of each row a shared pass should have room for: it is as wide as its widest row.

    Args:
        survivals: of each row, how likely each drafted token becomes text.
        price: of a pass in which each row reads so many drafted tokens, in tokens that could be had for it otherwise.
    """
    best, best_gain, won = 0, -price(0), 0.0
    for number in range(1, max(map(len, survivals), default=0) + 1):
        won += sum(values[number - 1] for values in survivals if len(values) >= number)
        gain = won - price(number)
        if gain > best_gain + 1e-12:
            best, best_gain = number, gain
    return best


def break_even_acceptance(
    seconds: Callable[[int], float], *, token_s: float, tokens_per_second: float, draft_tokens: int
) -> float:
    """Return the acceptance from which drafting pays at its best draft length; above 1 if none is enough.

    Args:
        seconds: of a pass of the target model, by the number of tokens that it reads.
        token_s: seconds of drafting one token.
        tokens_per_second: what is had without this drafter.
        draft_tokens: most tokens of one draft.
    """
    prices = [
        tokens_per_second * (seconds(1 + number) - seconds(1) + number * token_s)
        for number in range(1, draft_tokens + 1)
    ]

    def pays(acceptance: float) -> bool:
        won, survival = 0.0, 1.0
        for price in prices:
            survival *= acceptance
            won += survival
            if won > price:
                return True
        return False

    if not pays(1.0):
        return math.inf
    low, high = 0.0, 1.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if pays(middle) else (middle, high)
    return high
