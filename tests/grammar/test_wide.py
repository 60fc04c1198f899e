"""Wide lexemes: states walked once per vocabulary, that follow themselves and others, against every token by bytes."""

from __future__ import annotations

import random

import pytest

import structgen as sg

# Long runs, so that parts of the trie lie deep inside each other; and tokens that leave a lexeme for the next.
RUNS = [letter * length for letter in (b"a", b"ab", b" ", b"1") for length in range(2, 30)]
TAILS = [
    b"z;",
    b"ab;",
    b"a, b",
    b"a1",
    b"b,",
    b"x y",
    b"  a",
    b"</a",
    b"a<",
    b"q=1",
    b"\xc3\xa9t",
    b'a"',
    b'": "b',
    b"ab, cd;",
]
TOKENS = [*(bytes([byte]) for byte in range(256)), *RUNS, *TAILS, b""]
VOCABULARY = sg.Vocabulary.from_bytes(TOKENS, stop_ids=[len(TOKENS) - 1])
BYTES = sg.Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), b""], stop_ids=[256])

GRAMMARS = {
    "follows itself": sg.Lark("start: W+\nW: /[a-z]+/"),
    "ignored space": sg.Lark("%import common.WS\n%import common.CNAME\nstart: CNAME+\n%ignore WS"),
    "then a literal": sg.Lark('start: T ";"\nT: /[a-z]+/'),
    "list": sg.Lark('start: F ("," F)* ";"\nF: /[^,;]+/'),
    "mixed": sg.Lark('start: (TXT | "<" start "/a" | N)*\nTXT: /[^<>\\/]+/\nN: /[0-9]+/'),
    "counted twice": sg.Regex("([a-z]{1,200}[0-9]{0,200}){1,200}"),
    "space and words": sg.Regex(r"\w+( \w+)*;?"),
    "object": sg.JsonSchema({"type": "object", "additionalProperties": {"type": "string"}}, whitespace="any"),
    "few or many": sg.JsonSchema({"type": "string", "pattern": "^([a-z]*|[A-Z]{0,5}[a-c]{0,3})$", "minLength": 60}),
}


@pytest.mark.parametrize("name", GRAMMARS)
def test_masks_equal_stepping_every_token_by_bytes(name: str) -> None:
    """A token is legal iff its bytes are, one after the other, over a vocabulary that has every byte."""
    automaton = sg.compile(GRAMMARS[name], VOCABULARY, cache=None)
    by_bytes = sg.compile(GRAMMARS[name], BYTES, cache=None)
    generator = random.Random(3)
    for _ in range(3):
        state, slow = automaton.start(), by_bytes.start()
        for _ in range(12):
            legal = []
            for token_id, token in enumerate(TOKENS[:-1]):
                if all_allowed(slow, token):
                    legal.append(token_id)

            assert [i for i in range(len(TOKENS) - 1) if state.allows(i)] == legal, slow.text_bytes
            assert state.is_accepting == slow.is_accepting
            if not legal:
                break
            long = [i for i in legal if i >= 256]
            token_id = generator.choice(long if long and generator.random() < 0.7 else legal)
            state.advance(token_id)
            for byte in TOKENS[token_id]:
                slow.advance(byte)


def all_allowed(state: sg.ParserState, token: bytes) -> bool:
    """Return whether the bytes may be taken one after the other; the state is left as it was."""
    for taken, byte in enumerate(token):
        if not state.allows(byte):
            state.rollback(taken)
            return False
        state.advance(byte)
    state.rollback(len(token))
    return True
