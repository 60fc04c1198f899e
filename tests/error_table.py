"""One table of mistakes: what was written, which error it gives, what its message must say.

It drives tests/test_errors.py and docs/errors.md.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Literal, NamedTuple, cast


class Case(NamedTuple):
    """One mistake, as an expression over the names of `namespace`."""

    code: str
    error: str
    part: str
    """What the message must contain, so that a reader knows what is wrong."""
    advice: str
    """What it must contain, so that a reader knows what to do."""


class Guide(NamedTuple):
    """What the documentation says of a class of errors."""

    when: str
    remedy: str


GUIDES = {
    "UnsupportedTypeError": Guide(
        "A Python type has no JSON form, or none that is exact: a complex number, a function, a value that is no type.",
        "Use the type that the message names, or say what you mean as a `sg.JsonSchema`.",
    ),
    "UnsupportedSchemaError": Guide(
        "A schema says something that cannot be kept exactly, or that is no schema: a keyword that depends on other "
        "branches, a value of the wrong type. Nothing is ever ignored in silence: a misspelt keyword is a warning.",
        "Change the keyword at the pointer; [JSON Schema](json_schema.md) has what each becomes.",
    ),
    "GrammarSyntaxError": Guide(
        "A regular expression, a Lark grammar or a JSON text cannot be read.",
        "Mend it at the line and the column.",
    ),
    "UnsatisfiableError": Guide(
        "No value fits: keywords contradict each other, an enum is empty, or a type must hold another one of itself "
        "without an end. The message says which of these, and where.",
        "Relax what stands at the pointer: a wider bound, one more value, an optional field.",
    ),
    "LimitError": Guide(
        "Compiling would cost more than a stated limit.",
        "Make the part that is named smaller, or raise the limit with `sg.Limits`.",
    ),
    "VocabularyError": Guide(
        "The tokenizer does not say what bytes its tokens are, cannot spell the grammar, or belongs to another model.",
        "Load the tokenizer from where the model came from, or one with byte fallback.",
    ),
    "TokenRejectedError": Guide(
        "A loop of your own gave `advance` a token that is not legal. The state is as it was.",
        "Draw from the tokens of `mask()` only.",
    ),
    "BudgetError": Guide(
        "`max_tokens` is too small to promise a complete text. No token was drawn.",
        "Pass the number that the message names, which is also in `needed`.",
    ),
    "NoLegalTokenError": Guide(
        "Every legal token has probability zero: a bias of minus infinity, or logits that are not numbers.",
        "Take the ban back, or look after the model: a `float16` overflow gives such logits.",
    ),
    "OutputError": Guide(
        "The text fits, and a validator of the type's own (or Lark's own parser) refused it. This is the one error "
        "that a sound declaration can give after the model has run. The cause is the validator's error.",
        "Say in the type what the validator wants, with `Field` or `Literal`, so that it becomes part of the grammar; "
        "what cannot be said there may be tried again with another seed.",
    ),
    "BatchError": Guide(
        "Some rows of a batch failed. Every row was tried; a type that cannot be compiled is refused before the first.",
        "Take what was made from `results`, which has each row's value or error in order, and repeat the others.",
    ),
    "OptionError": Guide(
        "An argument is out of range, of another type, or contradicts another; or an option of a call, or a field of "
        "`Sampling`, `Speculation`, `Limits` or `Policy`, is misspelt.",
        "Write what the message names.",
    ),
    "ConfirmationRequired": Guide(
        "A destructive tool was invoked and nobody agreed.",
        "Ask somebody, then pass `confirm`.",
    ),
}

CASES = (
    Case("sg.check(complex)", "UnsupportedTypeError", "complex", "use two floats"),
    Case("sg.check(len)", "UnsupportedTypeError", "the function len", "name what it returns"),
    Case("sg.check([len])", "UnsupportedTypeError", "a list of functions", "sg.ToolSet([...])"),
    Case('sg.check(list["Foo"])', "UnsupportedTypeError", "by the name 'Foo'", "write the class itself"),
    Case("sg.ToolSet([print])", "UnsupportedTypeError", "'*args'", "name each parameter"),
    Case(
        'sg.check(schema({"uniqueItems": True, "items": {"type": "string"}}))',
        "UnsupportedSchemaError",
        "uniqueItems",
        "a few listed scalars",
    ),
    Case('sg.check(schema({"type": "text"}))', "UnsupportedSchemaError", "JSON types", "'text'"),
    Case('sg.check(schema({"not": {"format": "regex"}}))', "UnsupportedSchemaError", "#/not", "use pattern"),
    Case('sg.check(schema({"minLength": 1e999}))', "UnsupportedSchemaError", "minLength", "non-negative integer"),
    Case(
        'sg.check(schema({"$ref": "#"}))',
        "UnsupportedSchemaError",
        "leads back to itself",
        "an array or object between",
    ),
    Case('sg.check(schema({"required": ["\\ud800"]}))', "UnsupportedSchemaError", "surrogate", "no text can hold"),
    Case('schema("{")', "GrammarSyntaxError", "not JSON", "line 1, column 2"),
    Case('schema(\'{"type": "null", "type": "string"}\')', "GrammarSyntaxError", "'type' twice", "remove one"),
    Case('sg.check(sg.Regex(r"(a)\\1"))', "GrammarSyntaxError", "column 4", "write out what it repeats"),
    Case("sg.check(sg.Lark('root ::= \"a\"'))", "GrammarSyntaxError", "'::=' is of GBNF or EBNF", "a rule as name:"),
    Case('sg.check(sg.Lark("start: missing"))', "GrammarSyntaxError", "missing", "not defined"),
    Case("sg.check(sg.Lark(\"start: 'a'\"))", "GrammarSyntaxError", "column 8", "double quotes"),
    Case(
        'sg.check(schema({"properties": {"age": {"minimum": 3, "maximum": 2, "type": "integer"}}, '
        '"required": ["age"], "type": "object"}))',
        "UnsatisfiableError",
        "#/properties/age",
        "contradict each other (minimum, maximum, type); relax one",
    ),
    Case('sg.check(schema({"enum": []}))', "UnsatisfiableError", "#", "list at least one"),
    Case(
        'sg.check(schema({"type": "array", "minItems": 1, "items": {"$ref": "#"}}))',
        "UnsatisfiableError",
        "#/items: no value fits: it must hold another one of itself",
        "make a part of it optional",
    ),
    Case("sg.check(sg.Lark('start: start \"a\"'))", "UnsatisfiableError", "no text fits", "a way to end"),
    Case(
        'sg.check(schema({"contains": {"type": "null"}, "minContains": 999}))',
        "LimitError",
        "up to 256",
        "use a smaller one",
    ),
    Case('sg.check(schema({"pattern": "a.{40}$"}))', "LimitError", "{40,40} at column 3", "make it smaller"),
    Case('sg.compile(sg.Regex("abc"), letters)', "VocabularyError", "the bytes 63", "byte fallback"),
    Case('sg.Vocabulary.from_bytes(["a"])', "VocabularyError", "token 0 must be bytes", "text.encode()"),
    Case("sg.Vocabulary.from_tokenizer(5)", "VocabularyError", "int is not backed", "tokenizer.json"),
    Case("sg.Model(small_model, tokenizer)", "VocabularyError", "266 tokens and the model scores only 100", "load the"),
    Case("sg.compile(bool, ids).start().advance(65)", "TokenRejectedError", "65 (b'A')", "see mask()"),
    Case('model.generate(list[int], "Primes?", max_tokens=1)', "BudgetError", "max_tokens=1", "pass max_tokens=2"),
    Case(
        'model.generate(bool, "Yes?", sampling=sg.Sampling(logit_bias=dict.fromkeys(range(266), -inf)))',
        "NoLegalTokenError",
        "no legal token",
        "logit_bias",
    ),
    Case(
        'model.generate(Odd, "A number?")', "OutputError", "own validator of Odd", "number: Value error, 2 is not odd"
    ),
    Case('model.generate_batch(bool, ["Yes?", 5])', "BatchError", "1 of 2 rows failed, first row 1", "in .results"),
    Case("model.generate_batch(bool, [4, 5])", "BatchError", "all 2 rows failed", "error is in .results"),
    Case('sg.load("./no-such-model")', "OptionError", "./no-such-model", "a .gguf file, or a hub id"),
    Case('sg.load(device="gpu")', "OptionError", "gpu", "use 'auto', 'cpu', 'cuda'"),
    Case("sg.Sampling(temp=0)", "OptionError", "'temp'", "did you mean temperature=...?"),
    Case(
        'model.generate(bool, "Yes?", temperature=0)',
        "OptionError",
        "'temperature'",
        "did you mean sampling=Sampling(temperature=...)?",
    ),
    Case('model.generate(bool, "Yes?", greedy=True)', "OptionError", "'greedy'", "sampling=sg.Sampling.greedy()"),
    Case('model.generate(bool, "Yes?", tools=[len])', "OptionError", "'tools'", "sg.ToolSet([...])"),
    Case(
        "model.generator(bool, max_tokens=9)", "OptionError", "'max_tokens'", "write generator(prompt, max_tokens=...)"
    ),
    Case(
        'model.generator(bool)("Yes?", whitespace="compact")',
        "OptionError",
        "'whitespace'",
        "write model.generator(type, whitespace=...)",
    ),
    Case('model.generate(bool, "Yes?", max_rows=9)', "OptionError", "'max_rows'", "model.generate_batch("),
    Case('model.generate(str, "Yes?", stop=[5])', "OptionError", "stop holds 5", "stop=['\\n\\n']"),
    Case('model.generate(bool, "Yes?", stream=True)', "OptionError", "'stream'", "model.stream(...)"),
    Case('model.generate(bool, "Yes?", system="Be brief.")', "OptionError", "'system'", "chat messages"),
    Case(
        'model.generate(bool, "Yes?", sampling=sg.Sampling.greedy)',
        "OptionError",
        "not the function Sampling.greedy",
        "write sg.Sampling.greedy() or sg.Sampling(temperature=...)",
    ),
    Case('model.generate(bool, "Yes?", stop="\\n")', "OptionError", "ends free text (str)", "stop=['\\n\\n']"),
    Case("sg.Sampling(top_k=0)", "OptionError", "top_k", "at least 1"),
    Case('schema({}, whitespace="wide")', "OptionError", "'wide'", "'compact', 'spaced'"),
    Case("sg.compile(bool, ids, limits={})", "OptionError", "limits", "Limits(compile_seconds=5)"),
    Case('sg.compile(bool, ids, cache="folder")', "OptionError", "cache", "CompileCache('folder')"),
    Case("sg.compile(bool, tokenizer)", "OptionError", "a Vocabulary, not", "from_tokenizer(tokenizer)"),
    Case("sg.compile(bool, ids).start().rollback(-1)", "OptionError", "-1 tokens", "a number from 0 to 0"),
    Case(
        'model.generate(bool, [{"role": "usr", "content": "Yes?"}])',
        "OptionError",
        "message 0 is 'usr'",
        "system, user",
    ),
    Case('model.generate(bool, "")', "OptionError", "the prompt is empty", "what the model is asked"),
    Case('model.generate(bool, ["Yes?", "No?"])', "OptionError", "chat message 0", "there is generate_batch"),
    Case("sg.Raw(5)", "OptionError", "int", "takes a string"),
    Case('sg.Choice([None, "a"])', "OptionError", "the item None", 'sg.JsonSchema({"enum": [...]})'),
    Case('sg.Choice({"yes", "no"})', "OptionError", "which a set does not have", "sorted(...)"),
    Case("sg.Choice([])", "OptionError", "Choice", "at least one item"),
    Case('sg.Choice("yes")', "OptionError", "'yes'", "Choice(['yes', 'no'])"),
    Case("sg.check(sg.Choice(range(1001), exact=True))", "OptionError", "1001", "at most 1000"),
    Case('schema("person.json")', "OptionError", "'person.json' looks like the name of a file", "read_text()"),
    Case(
        'schema({"name": "person", "strict": True, "schema": {"type": "object"}})',
        "OptionError",
        "what servers take around a schema",
        'JsonSchema(this["schema"])',
    ),
    Case("sg.Regex(5)", "OptionError", "int", "must be a string"),
    Case("schema(5)", "OptionError", "int", "JSON text"),
    Case("sg.ToolSet([])", "OptionError", "ToolSet", "at least one tool"),
    Case('sg.ToolCall("delete", {}, tool=delete)', "OptionError", "delete", "days: Field required"),
    Case(
        'sg.ToolCall("delete", {"days": 9}, tool=delete).invoke()',
        "ConfirmationRequired",
        "destructive",
        "confirm=True",
    ),
)


@functools.cache
def namespace() -> dict[str, Any]:
    """Return what the expressions may name; the model is a tiny one with random weights."""
    from pydantic import BaseModel, field_validator

    import structgen as sg
    from tiny_tokenizer import byte_tokenizer, tiny_llama

    single = [bytes([byte]) for byte in range(256)]
    small_model = tiny_llama()
    small_model.resize_token_embeddings(100)

    @sg.tool(destructive=True)
    def delete(days: int) -> None: ...

    class Odd(BaseModel):
        number: Literal[2]

        @field_validator("number")
        @classmethod
        def _is_odd(cls, number: int) -> int:
            if number % 2 == 0:
                raise ValueError(f"{number} is not odd")
            return number

    return {
        "sg": sg,
        "delete": delete,
        "inf": math.inf,
        "schema": sg.JsonSchema,
        "Odd": Odd,
        "tokenizer": byte_tokenizer(),
        "model": sg.Model(tiny_llama(), byte_tokenizer()),
        "small_model": small_model,
        "ids": sg.Vocabulary.from_bytes([*single, b""], stop_ids=[256]),
        "letters": sg.Vocabulary.from_bytes([b"a", b"b", b""], stop_ids=[2]),
    }


@functools.cache
def raised_by(case: Case) -> Exception:
    """Evaluate the expression and return the error of ours that it raises."""
    names = dict(namespace())
    try:
        eval(case.code, names)
    except names["sg"].StructgenError as error:
        return cast("Exception", error)
    raise LookupError(f"{case.code} raises nothing")


def message_of(case: Case) -> str:
    """Return the message of the error, without its line breaks."""
    return " ".join(str(raised_by(case)).split())
