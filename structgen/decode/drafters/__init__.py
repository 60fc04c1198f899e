"""Drafters for `Speculation(drafters=[...])`, in the order in which they are best asked; `Drafter` is for your own."""

from __future__ import annotations

from structgen.decode.drafters.draft_model import DraftModel
from structgen.decode.drafters.forced_run import ForcedRun
from structgen.decode.drafters.prompt_lookup import PromptLookup
from structgen.decode.drafters.state_table import StateTable
from structgen.drafter import Drafter, DraftRequest, DraftSession, DraftView, Proposal

__all__ = [
    "DraftModel",
    "DraftRequest",
    "DraftSession",
    "DraftView",
    "Drafter",
    "ForcedRun",
    "PromptLookup",
    "Proposal",
    "StateTable",
]
