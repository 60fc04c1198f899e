"""Who drafts for a request, and who decides: the speculation controls of one model, by route and options.

The least used are forgotten first.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from structgen.config import Speculation
from structgen.decode.control import FixedControl, SpeculationControl
from structgen.decode.draft_model_size import draft_model_size
from structgen.decode.drafters import DraftModel, ForcedRun, PromptLookup, StateTable
from structgen.decode.drafting import SpeculationSetup
from structgen.decode.pass_costs import PassCosts
from structgen.decode.request_control import RequestControl
from structgen.decode.speculation_control import RouteControl
from structgen.drafter import Drafter, DraftMemory
from structgen.speculation_status import DrafterStatus

_log = logging.getLogger("structgen")

_MAX_ROUTES = 256
_MAX_DRAFT_MODELS = 16
_DRAFTERS: tuple[Drafter, ...] = (ForcedRun(), StateTable(), PromptLookup())


class RouteControls:
    """Safe to use from several threads."""

    def __init__(self, model: Any, measure: Callable[[], Mapping[int, float] | None]) -> None:
        """Start empty.

        Args:
            model: the transformers model that is the target.
            measure: gives the seconds of a pass by the tokens that it reads, None if nobody measured; called once.
        """
        self._lock = threading.Lock()
        self._model = model
        self._measure = measure
        self._notes: OrderedDict[Drafter, str] = OrderedDict()
        self._table: Mapping[int, float] | None = None
        self._is_measured = False
        self._kept: OrderedDict[tuple[str, Speculation], RouteControl] = OrderedDict()

    def _of(self, route: str, speculation: Speculation, drafters: Sequence[Drafter]) -> RouteControl:
        """Return the control of a route for calls with these options."""
        with self._lock:
            if not self._is_measured:
                self._table, self._is_measured = self._measure(), True
            key = (route, speculation)
            if key not in self._kept:
                self._kept[key] = RouteControl(
                    route,
                    [drafter.name for drafter in drafters],
                    PassCosts(self._table),
                    max_draft_tokens=speculation.max_draft_tokens,
                )
                if len(self._kept) > _MAX_ROUTES:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]

    def setup(
        self, speculation: Speculation, *, route: str, memory: DraftMemory, deterministic: bool
    ) -> SpeculationSetup:
        """Return how a request speculates.

        Args:
            speculation: its options.
            route: what it is counted under.
            memory: what its drafters remember.
            deterministic: whether nothing that was measured may have a say.
        """
        drafters = _DRAFTERS if speculation.drafters is None else tuple(speculation.drafters)
        for drafter in drafters:
            if isinstance(drafter, DraftModel):
                self._look_at(drafter)
        control: SpeculationControl = FixedControl(speculation.max_draft_tokens, speculation.branches)
        if speculation.adaptive and not deterministic and drafters and speculation.max_draft_tokens > 0:
            control = RequestControl(
                self._of(route, speculation, drafters),
                draws_by_itself=speculation.mode == "exact_ratio",
                most_branches=speculation.branches,
            )
        return SpeculationSetup(drafters=drafters, control=control, memory=memory, mode=speculation.mode)

    def statuses(self) -> dict[str, dict[str, DrafterStatus]]:
        """Return by route what was decided for each drafter; of several ways to speculate, the one used last."""
        with self._lock:
            found = {}
            for (route, speculation), control in self._kept.items():
                notes = {one.name: self._notes.get(one, "") for one in speculation.drafters or () if one in self._notes}
                found[route] = {
                    name: replace(status, note=notes.get(name, "")) for name, status in control.status().items()
                }
            return found

    def _look_at(self, drafter: DraftModel) -> None:
        """Work out once what a draft model takes, and warn of a size that seldom pays."""
        with self._lock:
            if drafter in self._notes:
                return
            size = draft_model_size(drafter.model.hf_model, self._model)
            self._notes[drafter] = size.in_words
            if len(self._notes) > _MAX_DRAFT_MODELS:
                self._notes.popitem(last=False)
        if size.doubt is not None:
            _log.warning("%s", size.doubt)
