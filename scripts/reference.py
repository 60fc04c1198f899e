"""The reference of public names, made from their signatures and docstrings. Leaves out where it is written to."""

from __future__ import annotations

import inspect
import re
from enum import Enum
from typing import Any

MARK_OF_KIND = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}

# What is handed out and not made by hand: the entry says where it comes from instead of how it is built.
MADE_BY = {
    "Explanation": "`sg.check`",
    "Finding": "`sg.check`, in the explanation",
    "Generator": "`sg.Model.generator`",
    "ParserState": "`sg.TokenAutomaton.start`",
    "DrafterStatus": "`sg.Model.metrics`, in the sums of a route",
    "Replay": "`sg.replay`",
    "ReplayRecord": "`sg.Model.run`, in the report",
    "Report": "`sg.Model.run`, in the result",
    "Result": "`sg.Model.run`",
    "TokenAutomaton": "`sg.compile`",
    "Tool": "`sg.tool`",
    "Vocabulary": "`sg.Vocabulary.from_tokenizer` or `sg.Vocabulary.from_bytes`",
}


def first_sentence(value: Any) -> str:
    """Return the first paragraph of a docstring on one line, "" if there is none."""
    text = inspect.getdoc(value) or ""
    return " ".join(text.split("\n\n", 1)[0].split())


def shown(parameter: inspect.Parameter) -> str:
    """Return one parameter as it stands in the source."""
    text = MARK_OF_KIND.get(parameter.kind, "") + parameter.name
    if parameter.annotation is not inspect.Parameter.empty:
        annotation = parameter.annotation
        text += f": {annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)}"
    if parameter.default is not inspect.Parameter.empty:
        default = re.sub(r"<(\w+)\.\w+: ('\w+')>", r"\2", repr(parameter.default))
        text += f" = {'...' if '<' in default else default}"
    return text


def signature_of(name: str, value: Any) -> str:
    """Return the signature on one line, without ``self``."""
    signature = inspect.signature(value)
    parts, keyword_only = [], False
    for parameter in signature.parameters.values():
        if parameter.name in {"self", "cls"}:
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            parts.append("*")
        parts.append(shown(parameter))
    result = signature.return_annotation
    arrow = "" if result is inspect.Signature.empty or inspect.isclass(value) else f" -> {result}"
    return f"{name}({', '.join(parts)}){arrow}"


def members(cls: type) -> list[str]:
    """Return a line for each public method and property that the class itself defines."""
    lines = []
    for name, raw in vars(cls).items():
        if name.startswith("_") and name != "__call__":
            continue
        if isinstance(raw, property):
            lines.append(f"- `.{name}`: {first_sentence(raw)}")
        elif inspect.isfunction(raw) or isinstance(raw, classmethod | staticmethod):
            lines.append(f"- `{signature_of('.' + name, getattr(cls, name))}`: {first_sentence(raw)}")
    return lines


def attributes(cls: type) -> list[str]:
    """Return a line for each attribute that the docstring of the class describes."""
    described = (inspect.getdoc(cls) or "").partition("\nAttributes:\n")[2]
    rows = re.findall(r"^    (\w+): ((?:.*\n?(?:^     +.*\n?)*))", described, re.MULTILINE)
    return [f"- `.{name}`: {' '.join(text.split())}" for name, text in rows]


def entry(name: str, value: Any) -> str:
    """Return the entry of one public name."""
    lines = [f"### `sg.{name}`", ""]
    is_error = inspect.isclass(value) and issubclass(value, Exception)
    if inspect.isclass(value) and issubclass(value, Enum):
        lines += [f"One of {', '.join(f'`{member.value!r}`' for member in value)}.", ""]
    elif name in MADE_BY:
        lines += [f"Comes from {MADE_BY[name]}.", ""]
    elif callable(value) and not is_error:
        lines += ["```text", signature_of(name, value), "```", ""]
    lines += [first_sentence(value), ""]
    if inspect.isclass(value):
        listed = attributes(value) + ([] if is_error or issubclass(value, Enum) else members(value))
        lines += [*listed, ""] if listed else []
    return "\n".join(lines)


def reference() -> str:
    """Return all entries, in alphabetical order."""
    import structgen as sg

    entries = []
    for name in sg.__all__:
        value = getattr(sg, name)
        entries.append(entry(name, value))
        if inspect.ismodule(value):
            entries += [
                entry(f"{name}.{inner}", getattr(value, inner)) for inner in value.__all__ if inner != "Proposal"
            ]
    return "\n".join(entries).rstrip()
