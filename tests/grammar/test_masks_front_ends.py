"""Masks of what the front ends lower: random regexes, schemas and Lark grammars, against the plainest search."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from oracle import masks
from oracle.walks import check_walk
from structgen.declarations import JsonSchema, Lark, Regex
from structgen.errors import DeclareError, UnsatisfiableError
from structgen.output_type import lower
from structgen.vocabulary import Vocabulary


@st.composite
def patterns(draw: st.DrawFn) -> str:
    """Draw a regular expression over two letters and one that takes two bytes."""
    atom = st.sampled_from(["a", "b", "é", ".", "[ab]", "[^a]", r"\w", "(?:ab)"])
    suffix = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,3}", "{2,}"])
    piece = st.tuples(atom, suffix).map("".join)
    word = st.lists(piece, min_size=1, max_size=3).map("".join)
    return "|".join(draw(st.lists(word, min_size=1, max_size=2)))


_STRINGS = st.one_of(
    st.builds(
        lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more}, *[st.integers(0, 2)] * 2
    ),
    st.sampled_from([{"enum": ["a", "ab", 1, None]}, {"type": "string", "pattern": "^[ab]+$"}, {"const": "é"}]),
)
_NUMBERS = st.builds(
    lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more}, st.integers(-2, 2), st.integers(0, 12)
)


def _wrapped(inner: st.SearchStrategy[dict]) -> st.SearchStrategy[dict]:
    objects = st.builds(
        lambda a, b, required: {
            "type": "object",
            "properties": {"a": a, "b": b},
            "required": required,
            "additionalProperties": False,
        },
        inner,
        inner,
        st.sampled_from([[], ["a"], ["a", "b"]]),
    )
    arrays = st.builds(
        lambda item, low, more: {"type": "array", "items": item, "minItems": low, "maxItems": low + more},
        inner,
        st.integers(0, 2),
        st.integers(0, 2),
    )
    return st.one_of(objects, arrays, st.builds(lambda *options: {"anyOf": list(options)}, inner, inner))


schemas = st.recursive(st.one_of(_STRINGS, _NUMBERS), _wrapped, max_leaves=4)

lark_rules = st.sampled_from(
    [
        'start: start "+" A | A\nA: /a+/',
        'start: opt start "b" | "a"\nopt: "é"?',
        'start: ("a" |)* "b"',
        'start: A | B "é"\nA: /a+b+a/\nB: /ab/',
        'start: "a" start "a" | "b" start "b" |',
        'start: "a" "b"~1..3\n%ignore "é"',
        'start: x | y\nx: "a" start?\ny: "a" "a" start?',
    ]
)

_JSON_PIECES = [
    '"',
    '"a',
    "a",
    "b",
    "é",
    '":',
    ": ",
    ", ",
    '", "',
    "{",
    '{"',
    "}",
    "[",
    "]",
    "1",
    "12",
    "-",
    "null",
    'é"',
    "\\",
]


def vocabulary_of(draw: st.DrawFn, pieces: list[str], *, holes: bool) -> Vocabulary:
    """Draw tokens from pieces, all single bytes of which are there unless there are to be holes."""
    chosen = draw(st.lists(st.sampled_from(pieces), max_size=8))
    tokens = [piece.encode() for piece in chosen]
    if holes:
        tokens += [piece.encode() for piece in draw(st.lists(st.sampled_from(pieces), min_size=3, max_size=12))]
    else:
        tokens += sorted({bytes([byte]) for piece in pieces for byte in piece.encode()})
    return Vocabulary.from_bytes([*tokens, b""], stop_ids=[len(tokens)])


@given(patterns(), st.booleans(), st.data())
def test_regexes(pattern: str, holes: bool, data: st.DataObject) -> None:
    """At every state of a walk, the mask is what the search finds."""
    vocabulary = data.draw(st.composite(vocabulary_of)(["a", "b", "é", "ab", "bé", "aa", "é a"], holes=holes))

    check_walk(lower(Regex(pattern)).grammar, vocabulary, data, num_tokens=4)


@given(schemas, st.booleans(), st.sampled_from(["compact", "spaced", "any"]), st.data())
@settings(max_examples=30)
def test_schemas(schema: dict, holes: bool, whitespace: str, data: st.DataObject) -> None:
    """At every state of a walk, the mask is what the search finds."""
    try:
        grammar = lower(JsonSchema(schema, whitespace=whitespace)).grammar
    except (UnsatisfiableError, DeclareError):
        return
    vocabulary = data.draw(st.composite(vocabulary_of)(_JSON_PIECES, holes=holes))

    check_walk(grammar, vocabulary, data, num_tokens=5)


@given(lark_rules, st.booleans(), st.data())
def test_lark_grammars(rules: str, holes: bool, data: st.DataObject) -> None:
    """At every state of a walk, the mask is what the search finds."""
    vocabulary = data.draw(st.composite(vocabulary_of)(["a", "b", "é", "ab", "ba", "aa", "+", "+a", "éa"], holes=holes))

    check_walk(lower(Lark(rules)).grammar, vocabulary, data, num_tokens=5)


def test_the_oracle_tells_right_from_wrong() -> None:
    """The search itself, on a case that is easy to see."""
    vocabulary = Vocabulary.from_bytes([b"a", b"ab", b"b", b"c", b""], stop_ids=[4])
    grammar = lower(Regex("ab+")).grammar

    assert masks.legal_tokens(grammar, vocabulary, b"") == {0, 1}
    assert masks.legal_tokens(grammar, vocabulary, b"ab") == {2}
    assert masks.may_end(grammar, b"ab")
    assert not masks.may_end(grammar, b"a")
