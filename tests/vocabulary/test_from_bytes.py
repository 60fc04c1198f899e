"""Vocabularies made from bytes: facts, encoding by longest match, digest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import structgen.errors
from structgen.vocabulary import Vocabulary


def spellable(tokens, data):
    """Say by brute force whether some sequence of tokens spells the data."""
    ends = {0}
    for position in range(len(data)):
        if position in ends:
            ends |= {position + len(token) for token in tokens if token and data.startswith(token, position)}
    return len(data) in ends


@given(st.lists(st.text("abc", max_size=3).map(str.encode), max_size=6), st.text("abc", max_size=10).map(str.encode))
def test_encode_spells_the_bytes_whenever_a_spelling_exists(tokens, data):
    """encode() then decode() gives the bytes back, and fails exactly where no sequence of tokens exists."""
    vocabulary = Vocabulary.from_bytes(tokens)
    if spellable(tokens, data):
        assert vocabulary.decode(vocabulary.encode(data)) == data
    else:
        with pytest.raises(structgen.errors.VocabularyError, match="no sequence of tokens"):
            vocabulary.encode(data)


def test_encode_takes_the_longest_token_first():
    """Where the greedy way goes through, it is the answer."""
    vocabulary = Vocabulary.from_bytes([b"a", b"b", b"ab", b"abb", b"bb"])
    assert vocabulary.encode(b"abbab") == [3, 2]


def test_encode_backtracks_out_of_a_dead_end():
    """`ab` is longer than `a`, but only `a` leaves a rest that can be spelled."""
    vocabulary = Vocabulary.from_bytes([b"ab", b"a", b"bc"])
    assert vocabulary.encode(b"abc") == [1, 2]


def test_long_dead_ends_stay_cheap():
    """A text with exponentially many wrong spellings is refused at once."""
    vocabulary = Vocabulary.from_bytes([b"a", b"aa", b"aaa"])
    with pytest.raises(structgen.errors.VocabularyError, match="offset 2000"):
        vocabulary.encode(b"a" * 2000 + b"b")


def test_special_and_stop_ids_spell_nothing():
    """Their bytes are not in the trie, whatever was passed for them."""
    vocabulary = Vocabulary.from_bytes([b"a", b"<s>", b"</s>", b"b"], special_ids=[1], stop_ids=[2])
    assert vocabulary.size == 4
    assert [vocabulary.token_bytes(i) for i in range(4)] == [b"a", b"", b"", b"b"]
    assert vocabulary.special_ids == {1, 2}
    assert vocabulary.stop_ids == (2,)
    assert sorted(vocabulary.trie.token_ids.tolist()) == [0, 3]
    assert vocabulary.decode([0, 1, 3, 2]) == b"ab"


def test_stop_ids_are_sorted_and_single():
    """However they are given."""
    assert Vocabulary.from_bytes([b"a", b"", b""], stop_ids=[2, 1, 2]).stop_ids == (1, 2)


@pytest.mark.parametrize("options", [{"stop_ids": [3]}, {"stop_ids": [-1]}, {"special_ids": [3]}])
def test_ids_outside_the_vocabulary_are_refused(options):
    """A stop or special id that no row of the logits has is a mistake of the caller."""
    with pytest.raises(structgen.errors.VocabularyError, match="outside the vocabulary"):
        Vocabulary.from_bytes([b"a", b"b", b"c"], **options)


@pytest.mark.parametrize("token_id", [-1, 1])
def test_token_bytes_refuses_foreign_ids(token_id):
    """A negative id does not count from the end."""
    with pytest.raises(structgen.errors.VocabularyError, match="outside the vocabulary"):
        Vocabulary.from_bytes([b"a"]).token_bytes(token_id)


def test_digest_follows_every_part():
    """Any difference that a mask can see is another digest; the same parts are the same vocabulary."""
    base = Vocabulary.from_bytes([b"ab", b"c", b"", b""], special_ids=[2])
    same = Vocabulary.from_bytes([b"ab", b"c", b"", b""], special_ids=[2])
    others = [
        Vocabulary.from_bytes([b"a", b"bc", b"", b""], special_ids=[2]),
        Vocabulary.from_bytes([b"ab", b"c", b"", b"", b""], special_ids=[2]),
        Vocabulary.from_bytes([b"ab", b"c", b"", b""], special_ids=[3]),
        Vocabulary.from_bytes([b"ab", b"c", b"", b""], special_ids=[2], stop_ids=[2]),
        Vocabulary.from_bytes([b"ab", b"c", b"", b""]),
    ]
    assert base == same
    assert hash(base) == hash(same)
    assert len({base, same, *others}) == 1 + len(others)
    assert len(base.digest) == 64


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["a"], r"token 0 must be bytes, not 'a': text.encode\(\)"),
        ([b"a", None], "token 1 must be bytes, not None"),
        ([b"a", 3], "token 1 must be bytes, not 3"),
        (5, "a list with the bytes of each token, not 5"),
        (b"abc", "a list with the bytes of each token"),
        ("abc", "a list with the bytes of each token"),
        (None, "a list with the bytes of each token"),
    ],
)
def test_what_is_no_table_of_bytes_is_refused(tokens, message):
    """A number is not so many zero bytes, and a text not a list of letters."""
    with pytest.raises(structgen.errors.VocabularyError, match=message):
        Vocabulary.from_bytes(tokens)


@pytest.mark.parametrize("ids", [5, None, "0", ["0"], [None], [0.0], [True]])
def test_ids_are_ints_in_a_list(ids):
    """Stop and special ids, and the ids that are looked up."""
    for name in ("stop_ids", "special_ids"):
        with pytest.raises(structgen.errors.VocabularyError, match=f"{name[:-4]} id"):
            Vocabulary.from_bytes([b"a", b"b"], **{name: ids})
    with pytest.raises(structgen.errors.VocabularyError, match="token id"):
        Vocabulary.from_bytes([b"a", b"b"]).decode(ids)


def test_encode_takes_bytes():
    """A text is told how to become some."""
    with pytest.raises(structgen.errors.VocabularyError, match=r"takes bytes, not str: text.encode\(\)"):
        Vocabulary.from_bytes([b"a"]).encode("a")
