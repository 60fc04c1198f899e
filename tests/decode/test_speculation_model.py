"""`sg.speedup`: the formula, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

import structgen as sg


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"acceptance": 0.8, "draft_tokens": 4, "draft_cost": 0.05}, 2.80),
        ({"acceptance": 0.2, "draft_tokens": 4, "draft_cost": 0.10}, 0.89),
        ({"acceptance": 1, "draft_tokens": 7, "draft_cost": 0}, 8.0),
        ({"acceptance": 0, "draft_tokens": 4, "draft_cost": 0.25}, 0.5),
        ({"acceptance": 0.5, "draft_tokens": 0, "draft_cost": 1, "verify_cost": 2}, 0.5),
        ({"acceptance": 1 - 1e-12, "draft_tokens": 9, "draft_cost": 0}, 10.0),
    ],
)
def test_speedup(options: dict[str, Any], expected: float) -> None:
    """Tokens per round over the cost of a round, at the published points and at both ends."""
    assert round(sg.speedup(**options), 2) == expected
    acceptance, length = options["acceptance"], options["draft_tokens"]
    tokens = sum(acceptance**i for i in range(length + 1))
    cost = length * options["draft_cost"] + options.get("verify_cost", 1)
    assert sg.speedup(**options) == pytest.approx(tokens / cost)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"acceptance": 1.1, "draft_cost": 0}, "acceptance"),
        ({"acceptance": float("nan"), "draft_cost": 0}, "acceptance"),
        ({"acceptance": 0.5, "draft_cost": -1}, "draft_cost"),
        ({"acceptance": 0.5, "draft_cost": 0, "verify_cost": 0}, "costs nothing"),
        ({"acceptance": 0.5, "draft_cost": 0, "draft_tokens": True}, "draft_tokens"),
        ({"acceptance": 0.5, "draft_cost": 0, "draft_tokens": 2.0}, "draft_tokens"),
    ],
)
def test_speedup_refuses_what_is_no_number_in_range(options: dict[str, Any], name: str) -> None:
    """A value that means nothing is refused by name."""
    with pytest.raises(sg.OptionError, match=name):
        sg.speedup(**options)
