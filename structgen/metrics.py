"""Sums over the calls of one model, by route: what a dashboard reads."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from structgen.report import Report


@dataclass(frozen=True, kw_only=True, slots=True)
class RouteMetrics:
    """Sums over the calls of one route; the names are those of Report.

    Attributes:
        num_requests: calls that gave a text; streams that were left early do not count.
        num_truncated: those of them that the budget cut.
        num_prompt_tokens: tokens of the prompts.
        num_tokens: tokens of the texts.
        num_target_passes: forward passes of the target model.
        total_s: seconds of decoding.
        ttft_s: seconds up to the first drawn token, summed.
        prefill_s: seconds in passes over prompts.
        verify_s: seconds in the passes after them.
        mask_s: seconds for masks and moving the state.
        sample_s: seconds for drawing.
        legal_mass_lost: -log(legal mass), in nats, summed over the calls that could measure it.
        num_unmeasured: calls whose legal_mass_lost was not a number.
    """

    num_requests: int = 0
    num_truncated: int = 0
    num_prompt_tokens: int = 0
    num_tokens: int = 0
    num_target_passes: int = 0
    total_s: float = 0.0
    ttft_s: float = 0.0
    prefill_s: float = 0.0
    verify_s: float = 0.0
    mask_s: float = 0.0
    sample_s: float = 0.0
    legal_mass_lost: float = 0.0
    num_unmeasured: int = 0

    @property
    def tokens_per_target_pass(self) -> float:
        """Tokens of the texts per forward pass, 0 if there was no pass."""
        return self.num_tokens / self.num_target_passes if self.num_target_passes else 0.0


_COUNTED = ("num_requests", "num_truncated", "num_unmeasured", "legal_mass_lost")
_SUMMED = tuple(field.name for field in fields(RouteMetrics) if field.name not in _COUNTED)


class Metrics:
    """The sums of every route; safe to use from several threads."""

    def __init__(self) -> None:
        """Start without a route."""
        self._lock = threading.Lock()
        self._routes: dict[str, RouteMetrics] = {}

    def add(self, route: str, report: Report) -> None:
        """Count one call."""
        with self._lock:
            known = self._routes.get(route, RouteMetrics())
            sums = {name: getattr(known, name) + getattr(report, name) for name in _SUMMED}
            # One nan would be all that is left of a sum.
            is_measured = not math.isnan(report.legal_mass_lost)
            self._routes[route] = replace(
                known,
                num_requests=known.num_requests + 1,
                num_truncated=known.num_truncated + report.truncated,
                num_unmeasured=known.num_unmeasured + (not is_measured),
                legal_mass_lost=known.legal_mass_lost + (report.legal_mass_lost if is_measured else 0.0),
                **sums,
            )

    def snapshot(self) -> Mapping[str, RouteMetrics]:
        """Return the sums as they are now."""
        with self._lock:
            return dict(self._routes)
