"""Bytes per id, read from the tokenizer's model, against what the tokenizer itself makes of text.

The tokenizers are trained here, one of each kind. The truth is their own encode(): the bytes of the ids of a
text, joined, must be the text.
"""

import functools
import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from structgen.errors import VocabularyError
from structgen.vocabulary import Vocabulary

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog does not mind the fox at all.",
    '{"name": "Anna", "age": 31, "tags": ["a", "b"], "nested": {"ok": true, "none": null}}',
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. 日本語のテキスト。 日本語",
    "xbcd ybcd zbcd wbcd vbcd xab yab zab xabcd",  # merging b and c first is not the longest match of abcd
    "def f(x):\n    return x + 1\n\n\nprint(f(2))\n",
] * 5
BYTE_PIECES = [f"<0x{byte:02X}>" for byte in range(256)]
TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.lists(
        st.sampled_from([*'aeT {}":,\n', "the", " the", "  ", "日本", "ß", "🙂", "</s>", "<|end|>", "e\u0301"])
    ).map("".join),
)


def byte_level(*, add_prefix_space):
    """Train a byte-level BPE tokenizer with a special and a plain added token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.add_tokens([AddedToken("<|end|>", normalized=False, special=False)])
    return tokenizer


def sentencepiece_stages(tokenizer, *, metaspace):
    """Give a tokenizer one of the two spellings of SentencePiece's space rule that converters write."""
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
        tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")])
    else:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
    tokenizer.add_special_tokens(["<unk>", "</s>"])
    return tokenizer


def bpe_with_byte_fallback(*, metaspace):
    """Train a BPE model on U+2581 text, then give it the 256 byte pieces in front, as SentencePiece does."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=300, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    pieces = ["<unk>", "<s>", "</s>", *BYTE_PIECES, *sorted(model["vocab"], key=model["vocab"].get)]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    merges = [tuple(merge) for merge in model["merges"]]
    bpe = models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    return sentencepiece_stages(Tokenizer(bpe), metaspace=metaspace)


def unigram_with_byte_fallback(*, metaspace):
    """Train a Unigram model and give it the 256 byte pieces."""
    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=200, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False)
    trained.train_from_iterator(CORPUS, trainer)
    learned = [tuple(entry) for entry in json.loads(trained.to_str())["model"]["vocab"]]
    pieces = [("<unk>", 0.0), ("</s>", 0.0), *((piece, 0.0) for piece in BYTE_PIECES), *learned[1:]]
    return sentencepiece_stages(Tokenizer(models.Unigram(pieces, 0, byte_fallback=True)), metaspace=metaspace)


# Each kind with what its own encode() puts in front of a text that is not empty.
KINDS = {
    "byte-level": (lambda: byte_level(add_prefix_space=False), b""),
    "byte-level, prefix space": (lambda: byte_level(add_prefix_space=True), b" "),
    "BPE, normaliser": (lambda: bpe_with_byte_fallback(metaspace=False), b" "),
    "BPE, Metaspace": (lambda: bpe_with_byte_fallback(metaspace=True), b" "),
    "Unigram, normaliser": (lambda: unigram_with_byte_fallback(metaspace=False), b" "),
    "Unigram, Metaspace": (lambda: unigram_with_byte_fallback(metaspace=True), b" "),
}


@functools.cache
def tokenizer_of(kind):
    """Train each tokenizer once."""
    return KINDS[kind][0]()


@functools.cache
def vocabulary_of(kind):
    """Read each vocabulary once."""
    return Vocabulary.from_tokenizer(tokenizer_of(kind), cache_dir=None)


def truth(kind, text):
    """Return what the tokenizer's ids of a text spell, and what they should: the text, with the added space."""
    tokenizer, vocabulary = tokenizer_of(kind), vocabulary_of(kind)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    prefix = KINDS[kind][1]
    if not text or text[0].isspace() or text[0] == "▁":
        prefix = None  # whether a space is added then differs between kinds: both are allowed
    return b"".join(vocabulary.token_bytes(i) for i in ids), prefix


@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXT)
@example(text="The fox\n  ran 日本 🙂")
def test_token_bytes_join_to_the_text(kind, text):
    """What encode() makes of a text spells the text, byte by byte (texts without added tokens and U+2581)."""
    for unspellable in ("</s>", "<|end|>", "▁", "<unk>"):
        text = text.replace(unspellable, "")
    joined, prefix = truth(kind, text)
    expected = [text.encode(), b" " + text.encode()] if prefix is None else [prefix + text.encode()]
    assert joined in expected


@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXT)
@example(text="▁")
@example(text="<0x41>")
@example(text="a</s>b<unk><|end|>")
def test_encode_is_exact_whatever_the_text(kind, text):
    """encode() spells exactly the bytes: no added space, and text that looks like a special token stays text."""
    vocabulary = vocabulary_of(kind)
    ids = vocabulary.encode(text.encode())
    assert b"".join(vocabulary.token_bytes(i) for i in ids) == text.encode()
    assert not set(ids) & vocabulary.special_ids
    assert vocabulary.decode(ids) == text.encode()


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.binary(max_size=12))
@example(data="日本".encode()[:-1])
def test_encode_takes_bytes_that_are_no_text(kind, data):
    """Bytes that are not UTF-8, or end inside a character, are spelled too."""
    vocabulary = vocabulary_of(kind)
    assert vocabulary.decode(vocabulary.encode(data)) == data


@pytest.mark.parametrize("kind", KINDS)
def test_encode_is_canonical(kind):
    """In mid-text the ids are those that the tokenizer itself gives the same words there."""
    tokenizer, vocabulary = tokenizer_of(kind), vocabulary_of(kind)
    first, second = "The quick", " brown fox"
    whole = tokenizer.encode(first + second, add_special_tokens=False).ids
    head = tokenizer.encode(first, add_special_tokens=False).ids
    assert whole[: len(head)] == head
    assert vocabulary.encode(second.encode()) == whole[len(head) :]


@pytest.mark.parametrize("kind", KINDS)
def test_encode_adds_no_space_in_front_of_a_word(kind):
    """A word without a space before it gets the ids that the bare model gives its letters, not a greedy spelling."""
    model, vocabulary = tokenizer_of(kind).model, vocabulary_of(kind)
    greedy = Vocabulary.from_bytes([vocabulary.token_bytes(i) for i in range(vocabulary.size)])
    text = "".join(re.findall("[a-z]+", "".join(CORPUS[:5])))
    words = {text[i : i + length] for length in range(2, 9) for i in range(len(text))}
    encoded = {word: vocabulary.encode(word.encode()) for word in words}
    assert encoded == {word: [token.id for token in model.tokenize(word)] for word in words}
    assert any(encoded[word] != greedy.encode(word.encode()) for word in words)


@pytest.mark.parametrize("kind", KINDS)
def test_trie_holds_what_the_ids_spell(kind):
    """Every id that spells something stands in the trie, and no special one does."""
    vocabulary = vocabulary_of(kind)
    ids = set(vocabulary.trie.token_ids.tolist())
    assert ids == {i for i in range(vocabulary.size) if vocabulary.token_bytes(i)}
    assert not ids & vocabulary.special_ids


def test_byte_piece_and_character_share_a_node():
    """`A` and `<0x41>` are two ids of one spelling; the ordinary one is canonical."""
    vocabulary, tokenizer = vocabulary_of("BPE, normaliser"), tokenizer_of("BPE, normaliser")
    pair = [tokenizer.token_to_id("<0x41>"), tokenizer.token_to_id("A")]
    assert [vocabulary.token_bytes(i) for i in pair] == [b"A", b"A"]
    trie = vocabulary.trie
    nodes = [
        n for n in range(trie.num_nodes) if pair[0] in trie.token_ids[trie.token_start[n] : trie.token_start[n + 1]]
    ]
    assert len(nodes) == 1
    assert trie.token_ids[trie.token_start[nodes[0]] : trie.token_start[nodes[0] + 1]].tolist() == pair
    assert vocabulary.encode(b"\xffA")[-1] == pair[1]


def test_byte_pieces_are_text_without_byte_fallback():
    """A tokenizer that does not decode <0x41> as a byte spells these six characters with it."""
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), ("<0x41>", -1.0), ("▁a", -1.0)], 0))
    tokenizer.decoder = decoders.Metaspace()
    vocabulary = Vocabulary.from_tokenizer(tokenizer, cache_dir=None)
    assert [vocabulary.token_bytes(i) for i in range(3)] == [b"", b"<0x41>", b" a"]


def test_added_tokens_spell_nothing_and_are_counted():
    """Special or not, in the model's vocabulary or beyond it; only those that are not special are counted."""
    tokenizer = byte_level(add_prefix_space=False)
    ordinary = tokenizer.token_to_id("Ġthe")
    tokenizer.add_tokens([AddedToken("Ġthe", normalized=False, special=False)])
    vocabulary = Vocabulary.from_tokenizer(tokenizer, cache_dir=None)
    assert vocabulary.token_bytes(ordinary) == b""
    assert vocabulary.special_ids == {ordinary, tokenizer.token_to_id("</s>"), tokenizer.token_to_id("<|end|>")}
    assert vocabulary.num_added == 2
    assert vocabulary.size == tokenizer.get_vocab_size(with_added_tokens=True)
    assert vocabulary.decode(vocabulary.encode(b"and the fox")) == b"and the fox"


def test_holes_and_undecodable_entries_are_masked():
    """Ids without an entry, and pieces that the byte alphabet does not have, spell nothing; the latter are counted."""
    tokenizer = Tokenizer(models.BPE({"a": 0, "Ġ": 3, "日": 5, "a b": 6, "": 7, "\u00ad": 8}, []))
    tokenizer.decoder = decoders.ByteLevel()
    vocabulary = Vocabulary.from_tokenizer(tokenizer, cache_dir=None)
    assert [vocabulary.token_bytes(i) for i in range(9)] == [b"a", b"", b"", b" ", b"", b"", b"", b"", b""]
    assert vocabulary.num_undecodable == 3
    assert vocabulary.special_ids == frozenset()


def test_byte_level_alphabet_is_complete():
    """The 256 one-character pieces of the library's alphabet are the 256 bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    vocabulary = Vocabulary.from_tokenizer(tokenizer, cache_dir=None)
    assert {vocabulary.token_bytes(i) for i in range(256)} == {bytes([byte]) for byte in range(256)}


def test_unknown_token_spells_nothing():
    """A character that the model only knows as <unk> cannot be spelled, and that is said."""
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁a", -1.0), ("a", -1.5)], 0))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    vocabulary = Vocabulary.from_tokenizer(tokenizer, cache_dir=None)
    assert vocabulary.special_ids == {0}
    assert vocabulary.encode(b"a a") == [2, 1]
    with pytest.raises(VocabularyError, match="offset 1"):
        vocabulary.encode(b"ab")


def test_unicode_normalisation_does_not_change_what_is_encoded():
    """A tokenizer that composes characters spells the decomposed ones that it is asked for, by its own merges."""
    pieces = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "bc", "bcd", "ab"]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab, [("b", "c"), ("bc", "d"), ("a", "b")]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    vocabulary = Vocabulary.from_tokenizer(tokenizer, cache_dir=None)
    ids = vocabulary.encode("Abcd e\u0301 abcd".encode())
    assert [vocabulary.token_bytes(i) for i in ids] == [b"A", b"bcd", b" ", b"e", b"\xcc", b"\x81", b" ", b"a", b"bcd"]


def word_piece():
    """Make a WordPiece tokenizer."""
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def bpe_with(decoder=None, **options):
    """Make a BPE tokenizer of one piece."""
    tokenizer = Tokenizer(models.BPE({"a": 0}, [], **options))
    if decoder is not None:
        tokenizer.decoder = decoder
    return tokenizer


@pytest.mark.parametrize(
    ("tokenizer", "named"),
    [
        (word_piece(), "WordPiece"),
        (bpe_with(), "no decoder"),
        (bpe_with(decoders.BPEDecoder()), "BPEDecoder"),
        (bpe_with(decoders.ByteLevel(), end_of_word_suffix="</w>"), "end_of_word_suffix='</w>'"),
        (bpe_with(decoders.ByteLevel(), continuing_subword_prefix="##"), "continuing_subword_prefix='##'"),
        (bpe_with(decoders.CTC()), "CTC"),
        (bpe_with(decoders.Sequence([decoders.Strip(" ", 1, 0), decoders.Fuse()])), "Strip > Fuse"),
        (bpe_with(decoders.Sequence([decoders.Fuse(), decoders.Replace("ab", "c")])), "Fuse > Replace"),
        (bpe_with(decoders.Replace(Regex(" +"), " ")), "Regex"),
        (object(), "object is not backed by the tokenizers library"),
    ],
)
def test_other_kinds_are_refused_by_name(tokenizer, named):
    """A tokenizer whose tokens have no bytes of their own is refused, and the message names why."""
    with pytest.raises(VocabularyError, match=named):
        Vocabulary.from_tokenizer(tokenizer, cache_dir=None)


def test_missing_decoder_is_read_from_the_pre_tokenizer():
    """A byte-level pre-tokenizer alone says what the pieces are."""
    tokenizer = Tokenizer(models.BPE({"Ġ": 0, "a": 1}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel()])
    vocabulary = Vocabulary.from_tokenizer(tokenizer, cache_dir=None)
    assert [vocabulary.token_bytes(0), vocabulary.token_bytes(1)] == [b" ", b"a"]
