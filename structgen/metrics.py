"""Sums over the calls of one model, by route: what a dashboard reads."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from structgen.report import Report
from structgen.speculation_status import DrafterStatus


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
        draft_s: seconds spent on drafting.
        mask_s: seconds for masks and moving the state.
        sample_s: seconds for drawing.
        legal_mass_lost: -log(legal mass), in nats, summed over the calls that could measure it.
        num_measured_steps: steps behind it.
        num_unmeasured: calls whose legal_mass_lost was not a number.
        drafted: tokens that were drafted, by name of the drafter.
        accepted: those of them that became part of a text.
        drafters: what speculation control decided for each drafter, and why; empty where nothing adapts.
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
    draft_s: float = 0.0
    mask_s: float = 0.0
    sample_s: float = 0.0
    legal_mass_lost: float = 0.0
    num_measured_steps: int = 0
    num_unmeasured: int = 0
    drafted: Mapping[str, int] = field(default_factory=dict)
    accepted: Mapping[str, int] = field(default_factory=dict)
    drafters: Mapping[str, DrafterStatus] = field(default_factory=dict)

    @property
    def tokens_per_target_pass(self) -> float:
        """Tokens of the texts per forward pass, 0 if there was no pass."""
        return self.num_tokens / self.num_target_passes if self.num_target_passes else 0.0

    @property
    def seconds_per_request(self) -> float:
        """What a finished call takes, with the drafts that were thrown away; 0 if there was none."""
        return self.total_s / self.num_requests if self.num_requests else 0.0

    @property
    def mean_ttft_s(self) -> float:
        """Seconds up to the first token of a call, 0 if there was none."""
        return self.ttft_s / self.num_requests if self.num_requests else 0.0

    @property
    def mean_tpot_s(self) -> float:
        """Seconds per token after the first of its call, 0 if there was none."""
        num_later = self.num_tokens - self.num_requests
        return (self.total_s - self.ttft_s) / num_later if num_later > 0 else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Share of the drafted tokens that were accepted, 0 if none was drafted."""
        num_drafted = sum(self.drafted.values())
        return sum(self.accepted.values()) / num_drafted if num_drafted else 0.0


_COUNTED = (
    "num_requests",
    "num_truncated",
    "num_measured_steps",
    "num_unmeasured",
    "legal_mass_lost",
    "drafted",
    "accepted",
    "drafters",
)
_SUMMED = tuple(one.name for one in fields(RouteMetrics) if one.name not in _COUNTED)


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
                num_measured_steps=known.num_measured_steps + (report.num_measured_steps if is_measured else 0),
                legal_mass_lost=known.legal_mass_lost + (report.legal_mass_lost if is_measured else 0.0),
                drafted=_sum(known.drafted, report.drafted),
                accepted=_sum(known.accepted, report.accepted),
                **sums,
            )

    def snapshot(self) -> Mapping[str, RouteMetrics]:
        """Return the sums as they are now."""
        with self._lock:
            return dict(self._routes)


def _sum(known: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    """Return two counts by name as one."""
    return {name: known.get(name, 0) + more.get(name, 0) for name in {**known, **more}}
