"""Which ids end a text: the tokenizer's end, the chat template's end of turn, and the caller's."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from structgen.errors import VocabularyError
from structgen.vocabulary import Vocabulary

SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|end|>", "<|end|>more", "<pad>"]
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def tokenizer_with(template=None, **special):
    """Make a transformers tokenizer over single bytes with a chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({piece: i for i, piece in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(SPECIAL)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **special)
    tokenizer.chat_template = template
    return tokenizer


def stops(tokenizer, **options):
    """Return the stop tokens as text."""
    vocabulary = Vocabulary.from_tokenizer(tokenizer, cache_dir=None, **options)
    assert vocabulary.special_ids >= set(vocabulary.stop_ids)
    return set(tokenizer.convert_ids_to_tokens(list(vocabulary.stop_ids)))


def test_end_of_text_and_the_callers_ids_are_united():
    """The tokenizer's eos and stop_ids= both stop; without any of them nothing does."""
    assert stops(tokenizer_with()) == set()
    assert stops(tokenizer_with(eos_token="</s>")) == {"</s>"}
    tokenizer = tokenizer_with(eos_token="</s>")
    assert stops(tokenizer, stop_ids=[tokenizer.convert_tokens_to_ids("<|end|>")]) == {"</s>", "<|end|>"}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (CHATML, "<|im_end|>"),
        ("{{ '<s>' }}{% for m in messages %}{{ m['content'] + ' </s>' }}{% endfor %}<pad>", "</s>"),
        ("{% for m in messages %}{{ m['content'] + '<|end|>more' }}{% endfor %}", "<|end|>more"),
        ("{% for m in messages %}{{ m['content'] }}\nUser: {% endfor %}<|end|>", None),
    ],
)
def test_the_token_that_follows_an_answer_in_the_template_stops(template, expected):
    """It is found by rendering a conversation, so role headers and tokens further on are not taken for it."""
    assert stops(tokenizer_with(template)) == ({expected} if expected else set())


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('system message required') }}<|im_end|>",
        "<s>{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] }}<|im_end|>{% endif %}{% endfor %}",
        "{{ messages[7]['content'].strip() }}<|im_end|><|eot_id|>",
    ],
)
def test_known_markers_of_a_template_that_cannot_be_rendered(template):
    """A template that fails, or leaves the answer out, still gives its end-of-turn marker, if it is a token."""
    assert stops(tokenizer_with(template)) == {"<|im_end|>"}


def test_an_ordinary_token_that_stops_is_no_spelling_any_more():
    """A stop id that the caller chose among words is taken out of the trie; other texts with the byte change."""
    tokenizer = tokenizer_with()
    newline = tokenizer.convert_tokens_to_ids("Ċ")
    vocabulary = Vocabulary.from_tokenizer(tokenizer, cache_dir=None, stop_ids=[newline])
    assert vocabulary.token_bytes(newline) == b""
    assert newline not in vocabulary.trie.token_ids
    with pytest.raises(VocabularyError, match="0x0a"):
        vocabulary.encode(b"a\nb")


def test_special_tokens_of_the_transformers_layer_spell_nothing():
    """A pad token that is an ordinary piece for the backend is masked, as transformers skips it."""
    tokenizer = tokenizer_with()
    tokenizer.pad_token = "!"
    bang = tokenizer.convert_tokens_to_ids("!")
    assert Vocabulary.from_tokenizer(tokenizer, cache_dir=None).token_bytes(bang) == b""


def test_a_stop_id_outside_the_vocabulary_is_refused():
    """Logits may be wider than the vocabulary, but there is no text and no bit in a mask for such an id."""
    tokenizer = tokenizer_with()
    with pytest.raises(VocabularyError, match=f"stop id {len(tokenizer)} is outside"):
        Vocabulary.from_tokenizer(tokenizer, cache_dir=None, stop_ids=[len(tokenizer)])
