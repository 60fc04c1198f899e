"""Typed objects from local language models: always valid, by construction.

The public names, and nothing else. Each is imported when it is first used, so `import structgen` costs little.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from structgen.api import Model, check, compile, load
    from structgen.config import Limits, PenaltyScope, Policy, Sampling, Speculation, Whitespace
    from structgen.declarations import Choice, JsonSchema, Lark, Regex
    from structgen.decode import drafters
    from structgen.decode.prompt import Raw
    from structgen.decode.speculation_model import speedup
    from structgen.errors import (
        BatchError,
        BudgetError,
        CompileError,
        ConfirmationRequired,
        DeclareError,
        DecodeError,
        GrammarSyntaxError,
        LimitError,
        NoLegalTokenError,
        OptionError,
        OutputError,
        StructgenError,
        TokenRejectedError,
        UnsatisfiableError,
        UnsupportedSchemaError,
        UnsupportedTypeError,
        VocabularyError,
    )
    from structgen.findings import Bounded, Explanation, Finding
    from structgen.generator import Generator
    from structgen.grammar.cache import CompileCache
    from structgen.grammar.parser_state import ParserState
    from structgen.grammar.state_masks import fill_masks
    from structgen.grammar.token_automaton import TokenAutomaton
    from structgen.metrics import RouteMetrics
    from structgen.partial import Partial
    from structgen.replay_record import ReplayRecord
    from structgen.replaying import Replay, replay
    from structgen.report import Report, Result
    from structgen.speculation_status import DrafterStatus
    from structgen.tool_lint import Objection
    from structgen.tools import Tool, ToolCall, ToolSet, tool
    from structgen.vocabulary import Vocabulary

__all__ = [
    "BatchError",
    "Bounded",
    "BudgetError",
    "Choice",
    "CompileCache",
    "CompileError",
    "ConfirmationRequired",
    "DeclareError",
    "DecodeError",
    "DrafterStatus",
    "Explanation",
    "Finding",
    "Generator",
    "GrammarSyntaxError",
    "JsonSchema",
    "Lark",
    "LimitError",
    "Limits",
    "Model",
    "NoLegalTokenError",
    "Objection",
    "OptionError",
    "OutputError",
    "ParserState",
    "Partial",
    "PenaltyScope",
    "Policy",
    "Raw",
    "Regex",
    "Replay",
    "ReplayRecord",
    "Report",
    "Result",
    "RouteMetrics",
    "Sampling",
    "Speculation",
    "StructgenError",
    "TokenAutomaton",
    "TokenRejectedError",
    "Tool",
    "ToolCall",
    "ToolSet",
    "UnsatisfiableError",
    "UnsupportedSchemaError",
    "UnsupportedTypeError",
    "Vocabulary",
    "VocabularyError",
    "Whitespace",
    "check",
    "compile",
    "drafters",
    "fill_masks",
    "load",
    "replay",
    "speedup",
    "tool",
]

_HOMES = {
    "api": ("Model", "check", "compile", "load"),
    "config": ("Limits", "PenaltyScope", "Policy", "Sampling", "Speculation", "Whitespace"),
    "declarations": ("Choice", "JsonSchema", "Lark", "Regex"),
    "decode.prompt": ("Raw",),
    "decode.speculation_model": ("speedup",),
    "findings": ("Bounded", "Explanation", "Finding"),
    "generator": ("Generator",),
    "grammar.cache": ("CompileCache",),
    "grammar.parser_state": ("ParserState",),
    "grammar.state_masks": ("fill_masks",),
    "grammar.token_automaton": ("TokenAutomaton",),
    "metrics": ("RouteMetrics",),
    "partial": ("Partial",),
    "replay_record": ("ReplayRecord",),
    "replaying": ("Replay", "replay"),
    "report": ("Report", "Result"),
    "speculation_status": ("DrafterStatus",),
    "tool_lint": ("Objection",),
    "tools": ("Tool", "ToolCall", "ToolSet", "tool"),
    "vocabulary": ("Vocabulary",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import the module that a public name lives in."""
    if name not in __all__:
        raise AttributeError(f"module 'structgen' has no attribute {name!r}")
    if name == "drafters":
        # The one name that is a module.
        globals()[name] = importlib.import_module("structgen.decode.drafters")
        return globals()[name]
    # What has no home of its own is an error class.
    value: object = getattr(importlib.import_module(f"structgen.{_HOME.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
