"""The error tree: one base, drawn where the classes are, with the data in fields."""

from __future__ import annotations

import inspect
import re

import pytest

import structgen as sg
from error_table import CASES, Case, raised_by
from structgen import errors

NODE = re.compile(
    r"^(?P<lead>(?:│   |    )*(?:[├└]── )?)(?P<name>[A-Z]\w+)(?: {2,}.+?)?(?: \((?P<fields>[\w, ]+)\))?$",
)


def drawn_tree() -> dict[str, tuple[str | None, tuple[str, ...]]]:
    """Read the tree in the docstring: class name -> (name of its base, names of its data fields)."""
    tree: dict[str, tuple[str | None, tuple[str, ...]]] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = NODE.match(line)
        if match is None:
            continue
        depth = len(match["lead"]) // 4
        del path[depth:]
        fields = tuple(match["fields"].split(", ")) if match["fields"] else ()
        tree[match["name"]] = (path[-1] if path else None, fields)
        path.append(match["name"])
    return tree


def classes() -> dict[str, type[Exception]]:
    """Return every exception class that the module defines."""
    return {
        name: value
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, Exception) and value.__module__ == errors.__name__
    }


def test_the_drawn_tree_is_the_tree_of_classes() -> None:
    """The docstring draws exactly the classes that exist, each under its real base."""
    bases = {name: cls.__base__.__name__ if cls.__base__ is not Exception else None for name, cls in classes().items()}
    assert {name: base for name, (base, _) in drawn_tree().items()} == bases


EXAMPLES: dict[str, errors.StructgenError] = {
    "UnsupportedSchemaError": errors.UnsupportedSchemaError("#/a", "not", "cannot be exact"),
    "GrammarSyntaxError": errors.GrammarSyntaxError("unclosed group", 2, 7),
    "UnsatisfiableError": errors.UnsatisfiableError("no text fits", "#/a"),
    "LimitError": errors.LimitError("too many states; raise the limit", "states", 10_000),
    "TokenRejectedError": errors.TokenRejectedError(7, "token 7 is not legal here"),
    "BudgetError": errors.BudgetError(3, 12),
    "OutputError": errors.OutputError('{"a": 1}', "the validator of A refused it"),
    "BatchError": errors.BatchError(("fine", errors.OptionError("the prompt is empty"), errors.BudgetError(3, 12))),
    "NoLegalTokenError": errors.NoLegalTokenError("s1", "logit_bias forbids all of them"),
}


@pytest.mark.parametrize("name", sorted(name for name, (_, fields) in drawn_tree().items() if fields))
def test_the_drawn_fields_exist_and_are_in_the_message(name: str) -> None:
    """Each field that the tree names is an attribute, and a reader finds its value in the message."""
    fields = drawn_tree()[name][1]
    error = EXAMPLES[name]
    for field in fields:
        assert str(getattr(error, field)) in str(error), field


@pytest.mark.parametrize("name", sorted(classes()))
def test_every_error_is_exported_at_the_top(name: str) -> None:
    """An application catches each error by its name at the top of the package."""
    assert getattr(sg, name) is classes()[name]
    assert issubclass(classes()[name], sg.StructgenError)


def test_errors_import_nothing_of_the_package() -> None:
    """The tree lies under everything, so it may import nothing but the language."""
    source = inspect.getsource(errors)
    assert re.findall(r"^\s*(?:from|import) (\S+)", source, re.MULTILINE) == ["__future__"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_a_mistake_raises_its_error_and_says_what_is_wrong(case: Case) -> None:
    """Each mistake of the table raises exactly its class, and the message names what to change."""
    error = raised_by(case)
    assert type(error).__name__ == case.error, str(error)
    assert case.part in str(error)
