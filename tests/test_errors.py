"""The error tree: one base, drawn where the classes are, with the data in fields."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

import pytest

import structgen as sg
from error_table import CASES, GUIDES, Case, raised_by
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
def test_a_mistake_raises_its_error_and_says_what_is_wrong_and_what_to_do(case: Case) -> None:
    """Each mistake of the table raises exactly its class, in one line that can be printed anywhere."""
    error = raised_by(case)
    assert type(error).__name__ == case.error, str(error)
    assert case.part in str(error)
    assert case.advice in str(error)
    assert case.part
    assert case.advice
    assert "\n" not in str(error)
    assert len(str(error).encode()) < 400


def test_every_class_of_the_tree_is_raised() -> None:
    """Each leaf has its rows and its words in the documentation; each inner class is what a row is caught by."""
    raised = [type(raised_by(case)) for case in CASES]
    leaves = {name for name, cls in classes().items() if cls not in {other.__base__ for other in classes().values()}}
    assert {cls.__name__ for cls in raised} == leaves
    assert set(GUIDES) == leaves
    for name, cls in classes().items():
        assert any(issubclass(found, cls) for found in raised), name


@pytest.mark.parametrize(
    "call",
    [
        lambda: sg.load(nmae="x"),  # type: ignore[call-arg]
        lambda: sg.check(bool, polcy=None),  # type: ignore[call-arg]
        lambda: sg.JsonSchema({}, witespace="any"),  # type: ignore[call-arg]
        lambda: sg.Choice(["a"], exakt=True),  # type: ignore[call-arg]
        lambda: sg.Choice("yes", "no"),  # type: ignore[call-arg, misc]
        lambda: sg.Lark("start:", strt="a"),  # type: ignore[call-arg]
        lambda: sg.Sampling.greedy(top_q=1),  # type: ignore[call-arg]
    ],
)
def test_a_misspelt_keyword_of_a_function_stays_pythons(call: Callable[[], object]) -> None:
    """As docs/errors.md says: only options of a call and the classes of options say what was meant."""
    with pytest.raises(TypeError, match=r"unexpected keyword argument|positional argument"):
        call()


@pytest.mark.parametrize("num_failed", [1, 2, 3])
def test_a_batch_says_how_much_of_it_failed(num_failed: int) -> None:
    """Where nothing came of any row, the message promises nothing."""
    results = [errors.OptionError("the prompt is empty")] * num_failed + ["fine"] * (3 - num_failed)
    message = str(errors.BatchError(tuple(results)))
    assert ("what the other rows gave is in .results" in message) == (num_failed < 3)
    assert message.startswith("all 3 rows" if num_failed == 3 else f"{num_failed} of 3 rows")


class _Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "'a'"),
        ("\ud800\n", r"'\ud800\n'"),
        (_Hostile(), "a value of type _Hostile"),
        (10**5000, "a value of type int"),
        ("x" * 1000, "'" + "x" * 99 + " ... (1002 characters)"),
    ],
    ids=["text", "half a character", "hostile repr", "long integer", "long text"],
)
def test_any_value_can_be_shown(value: object, text: str) -> None:
    """A message shows a wrong value, whatever it is, in a bounded text that UTF-8 can write."""
    assert errors.shown(value) == text
    assert errors.shown(value).encode()
