"""What the command line declares: options and files -> an output type; whatever is wrong with them in one line.

Left out: what becomes of the type (`explanation`), and the prompt.
"""

from __future__ import annotations

import builtins
import importlib
import os
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import typer

from structgen.declarations import Choice, JsonSchema, Lark, Regex
from structgen.errors import GrammarSyntaxError, OptionError, StructgenError

T = TypeVar("T")

SchemaOption = Annotated[str | None, typer.Option("--schema", help="File with a JSON Schema.", metavar="FILE")]
TypeOption = Annotated[
    str | None,
    typer.Option("--type", help="Python type to import, such as mypackage.models:Person.", metavar="MODULE:NAME"),
]
RegexOption = Annotated[
    str | None, typer.Option("--regex", help="Regular expression; the whole text matches it.", metavar="PATTERN")
]
ChoiceOption = Annotated[
    list[str] | None, typer.Option("--choice", help="One of the allowed answers; repeat it.", metavar="TEXT")
]
LarkOption = Annotated[str | None, typer.Option("--lark", help="File with a Lark grammar.", metavar="FILE")]

ModelOption = Annotated[
    str | None, typer.Option("--model", help="Folder, .gguf file or hub id; the embedded SmolLM2 without it.")
]


class Declared(NamedTuple):
    """An output type.

    Attributes:
        output_type: what was declared.
        name: what to call it: the file or the option that it came from.
        warnings: what was told when it was declared.
    """

    output_type: object
    name: str
    warnings: tuple[str, ...] = ()


def declared(
    *,
    file: str | None = None,
    schema: str | None = None,
    type_name: str | None = None,
    regex: str | None = None,
    choice: list[str] | None = None,
    lark: str | None = None,
) -> Declared | None:
    """Return what was declared, None if nothing was.

    Raises:
        typer.BadParameter: two things were, or a name cannot be one.
        OptionError: a file or a type cannot be read.
    """
    ways: list[tuple[str, str | list[str] | None, Callable[[str], Declared]]] = [
        ("FILE", file, _from_file),
        ("--schema", schema, _from_schema),
        ("--type", type_name, lambda name: Declared(_import_type(name), name)),
        ("--regex", regex, lambda pattern: Declared(Regex(pattern), repr(pattern))),
        ("--choice", choice or None, lambda _: Declared(Choice(choice or []), "the choice")),
        ("--lark", lark, _from_lark),
    ]
    given = [(option, value, make) for option, value, make in ways if value is not None]
    if len(given) > 1:
        raise typer.BadParameter(f"only one of these can be meant: {', '.join(option for option, _, _ in given)}")
    if not given:
        return None
    ((_, value, make),) = given
    return make(str(value))


def usable_type(wanted: Declared | None, *, has_stop: bool = False) -> Any:
    """Return the output type, free text where none was declared; tell what it warned of.

    Raises:
        StructgenError: it cannot be used, said before seconds are spent on a model.
        typer.BadParameter: it takes no stop strings.
    """
    from structgen.output_type import lower

    if wanted is None:
        return str
    for warning in wanted.warnings:
        typer.echo(f"structgen: {wanted.name}: {warning}", err=True)
    try:
        declaration = lower(wanted.output_type)
    except GrammarSyntaxError as error:
        raise OptionError(f"{wanted.name}: {error}") from error
    if has_stop and not declaration.takes_stop:
        raise typer.BadParameter("--stop ends free text, and a declared type says itself where it ends: leave it out")
    return wanted.output_type


def _from_file(name: str) -> Declared:
    """Return what a file declares, by its suffix; - is a JSON Schema on stdin."""
    suffix = Path(name).suffix.lower()
    _refuse_text(name, "check")
    if name == "-" or suffix == ".json":
        return _from_schema(name)
    if suffix == ".lark":
        return _from_lark(name)
    raise typer.BadParameter(f"{name!r} is neither .json nor .lark; say what it is with --schema or --lark")


def _from_schema(name: str) -> Declared:
    _refuse_text(name, "--schema")
    text = read_stdin("the schema") if name == "-" else _read(Path(name))
    shown = "stdin" if name == "-" else name
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        schema = _in_file(shown, lambda: JsonSchema(text))
    return Declared(schema, shown, tuple(str(warning.message) for warning in told))


def _from_lark(name: str) -> Declared:
    _refuse_text(name, "--lark")
    text = _read(Path(name))
    return Declared(_in_file(name, lambda: Lark(text)), name)


def _refuse_text(name: str, option: str) -> None:
    """Refuse a schema or a grammar where the name of its file is asked for."""
    if name.lstrip().startswith("{") and not os.path.exists(name):
        raise typer.BadParameter(
            f"{option} takes the name of a file, and this is JSON: write it into a file, or give - and the schema on "
            "stdin"
        )
    if re.match(r"\s*\??!?\w+\s*:(?!\\|/)", name) and '"' in name and not os.path.exists(name):
        raise typer.BadParameter(f"{option} takes the name of a file, and this is a grammar: write it into a file")


def _in_file(name: str, make: Callable[[], T]) -> T:
    """Return what is made of a file; an error names it."""
    try:
        return make()
    except StructgenError as error:
        raise OptionError(f"{name}: {error}") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise OptionError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"{path} cannot be read: it is not UTF-8 ({error.reason} at byte {error.start})") from error


def read_stdin(what: str) -> str:
    """Return stdin as text.

    Raises:
        OptionError: it is closed, or not UTF-8.
    """
    if sys.stdin is None:  # how Python shows that the shell closed it
        raise OptionError(f"{what} cannot be read: stdin is closed")
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except OSError as error:
        raise OptionError(f"{what} cannot be read from stdin: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"{what} on stdin is not UTF-8 ({error.reason} at byte {error.start})") from error


def _meant_type(name: str) -> str:
    """Return what was probably meant by a type that names no module, as the end of a message."""
    plain, bracket, _ = name.partition("[")
    if bracket:
        return f": give {name} a name in a module, as in Wanted = {name}, and write module:Wanted"
    if plain in vars(builtins):
        return f": write builtins:{plain}"
    module, dot, attribute = name.rpartition(".")
    return f": write {module}:{attribute}" if module and dot and attribute else ", such as mypackage.models:Person"


def _import_type(name: str) -> object:
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise typer.BadParameter(f"{name!r} is not of the form module:Name{_meant_type(name)}")
    here = ""  # the current folder, whether or not it still exists, so that a type beside the user is found
    sys.path.insert(0, here)
    try:
        value: object = importlib.import_module(module_name)
        for part in attribute.split("."):
            value = getattr(value, part)
    except (Exception, SystemExit) as error:  # the user's module runs here, and may raise anything
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise OptionError(f"{name!r} cannot be imported: {reason}") from error
    finally:
        if here in sys.path:  # the user's module may have changed it
            sys.path.remove(here)
    return value
