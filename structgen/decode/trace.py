"""Counts and times of one request while it is decoded, and the Report that they become."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from structgen.replay_record import ReplayRecord
from structgen.report import Report


@dataclass(kw_only=True, slots=True)
class Trace:
    """What the loop counts; the names are explained in structgen.report.Report.

    Attributes:
        mode: "host", or "device" where the device makes the text by itself.
        host_mode_because: why it is not device mode, or no longer, where that is known.
        eager_because: in device mode, why its steps are not CUDA graphs.
        law: what is sampled as long as the budget cuts nothing.
        drafts: what was drafted for each pass, see ReplayRecord.
        num_draws: draws so far, that of the stop token included.
        num_device_draws: those of them that a device made.
        num_device_waits: how often it waited for tables.
        num_measured: those of them at which the legal mass was measured.
        started: time.perf_counter() at the start.
        first_drawn: the same at the first draw, None before it.
        last_drawn: the same at the latest draw.
    """

    num_prompt_tokens: int
    mode: Literal["host", "device"] = "host"
    host_mode_because: str | None = None
    eager_because: str | None = None
    law: str = "masked target"
    num_tokens: int = 0
    num_target_passes: int = 0
    num_draws: int = 0
    num_device_draws: int = 0
    num_device_waits: int = 0
    num_measured: int = 0
    prefill_s: float = 0.0
    verify_s: float = 0.0
    draft_s: float = 0.0
    mask_s: float = 0.0
    mask_wait_s: float = 0.0
    sample_s: float = 0.0
    total_s: float = 0.0
    legal_mass_lost: float = 0.0
    most_mass_lost: float = 0.0
    truncated: bool = False
    stopped_by: str | None = None
    drafted: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    drafts: list[tuple[int, ...]] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)
    first_drawn: float | None = None
    last_drawn: float = 0.0
    _num_followed: int = 0

    def add_pass(self, seconds: float) -> None:
        """Count a pass of the target; the first is the prefill."""
        if self.num_target_passes == 0:
            self.prefill_s += seconds
        else:
            self.verify_s += seconds
        self.num_target_passes += 1

    def add_prefill(self, seconds: float) -> None:
        """Count a pass over a prompt that draws nothing."""
        self.prefill_s += seconds
        self.num_target_passes += 1

    def add_masks(self, seconds: float, *, wait_s: float) -> None:
        """Count what masks took, and for how long no pass was under way meanwhile."""
        self.mask_s += seconds
        self.mask_wait_s += wait_s

    def add_draw(self, seconds: float, legal_mass_lost: float | None) -> None:
        """Count a draw, whose legal mass is None where it was not measured."""
        self.last_drawn = time.perf_counter()
        if self.first_drawn is None:
            self.first_drawn = self.last_drawn
        self.num_draws += 1
        self.sample_s += seconds
        if legal_mass_lost is not None:
            self.num_measured += 1
            self.legal_mass_lost += legal_mass_lost
            self.most_mass_lost = max(self.most_mass_lost, legal_mass_lost)

    def add_wait(self, seconds: float) -> None:
        """Count a wait of the device for tables."""
        self.num_device_waits += 1
        self.add_masks(seconds, wait_s=seconds)

    def follow(self, num_draws: int, num_passes: int, *, legal_mass_lost: tuple[float, float]) -> None:
        """Take over what a device has counted up to now.

        Args:
            num_draws: draws so far, all of them measured.
            num_passes: passes so far, that over the prompt not counted.
            legal_mass_lost: the sum of -log(legal mass) so far, and the greatest of them.
        """
        if num_draws > self.num_draws:
            self.last_drawn = time.perf_counter()
            if self.first_drawn is None:
                self.first_drawn = self.last_drawn
        self.num_target_passes += num_passes - self._num_followed
        self._num_followed = num_passes
        self.num_draws = self.num_measured = self.num_device_draws = num_draws
        self.legal_mass_lost, self.most_mass_lost = legal_mass_lost

    def finish(self, num_tokens: int) -> None:
        """Note the end."""
        self.num_tokens = num_tokens
        self.total_s = time.perf_counter() - self.started

    def report(self, *, compile_cache: str, record: ReplayRecord) -> Report:
        """Return the figures with what the loop does not know.

        Args:
            compile_cache: "hit" or "miss".
            record: what the run depended on.
        """
        first_drawn = self.started if self.first_drawn is None else self.first_drawn
        num_later = self.num_draws - 1
        return Report(
            law=f"{self.law} given the budget" if self.truncated else self.law,
            compile_cache=compile_cache,
            mode=self.mode,
            host_mode_because=self.host_mode_because,
            eager_because=self.eager_because,
            num_prompt_tokens=self.num_prompt_tokens,
            num_tokens=self.num_tokens,
            num_target_passes=self.num_target_passes,
            ttft_s=first_drawn - self.started,
            tpot_s=(self.last_drawn - first_drawn) / num_later if num_later > 0 else 0.0,
            total_s=self.total_s,
            prefill_s=self.prefill_s,
            verify_s=self.verify_s,
            draft_s=self.draft_s,
            mask_s=self.mask_s,
            mask_wait_s=self.mask_wait_s,
            sample_s=self.sample_s,
            legal_mass_lost=self.legal_mass_lost,
            min_legal_mass=math.exp(-self.most_mass_lost),
            num_steps=self.num_draws,
            num_device_steps=self.num_device_draws,
            num_device_waits=self.num_device_waits,
            num_measured_steps=self.num_measured,
            truncated=self.truncated,
            stopped_by=self.stopped_by,
            drafted=dict(self.drafted),
            accepted={name: self.accepted[name] for name in self.drafted},
            record=record,
        )
