"""Numbers that mean something to `sample`, wherever it runs."""

from __future__ import annotations

from typing import Final

NO_TOKEN: Final = -1

EVERYWHERE: Final = -2
"""In `Penalties.free_row`: the penalties touch every token."""

# In `Sampled.error`.
NO_LEGAL_TOKEN: Final = 1
NOT_FINITE: Final = 2

# Probabilities come from float32 logits: without it, two equal tokens would not reach top_p=0.5 with the first of them.
MASS_SLACK: Final = 1e-6
