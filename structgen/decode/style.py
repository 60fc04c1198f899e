"""Which white space a model writes JSON with by itself: what `whitespace="auto"` means for it.

One example is written in the three styles, and the one that the model finds most probable as a whole wins: the tokens
of each after a prompt that asks for the example, and the end after them. A style that the tokenizer cannot write, or a
context too short for the example, leaves what is usual without a model, SPACED. The scores are kept in the user's cache
directory by a fingerprint of the model; so a later process only reads a file.

Left out: styles per prompt or per schema, and any white space that is not one of the three.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import platformdirs

from structgen.array_store import ArrayLayout, ArrayStore
from structgen.config import Whitespace
from structgen.decode.models import LoadedModel
from structgen.decode.prompt import Prompt, Raw
from structgen.decode.target import Target
from structgen.decode.trace import Trace
from structgen.decode.whole_answers import FloatArray, answer_log_probs, canonical_tokens
from structgen.errors import OptionError, VocabularyError
from structgen.vocabulary import Vocabulary

# It asks for every value, so that only the style is open, and shows no JSON, which the model would imitate.
PROMPT: Final = (
    "Write a JSON object for this person: the name is Anna, the age is 31, the tags are red and blue, and the home has "
    "the city Oslo."
)
_EXAMPLE: Final = {"name": "Anna", "age": 31, "tags": ["red", "blue"], "home": {"city": "Oslo"}}
# The first of equals wins.
RENDERINGS: Final = {
    Whitespace.SPACED: json.dumps(_EXAMPLE),
    Whitespace.COMPACT: json.dumps(_EXAMPLE, separators=(",", ":")),
    Whitespace.PRETTY: json.dumps(_EXAMPLE, indent=2),
}

# What the scores of a model depend on, besides the model.
_SOURCES = (
    "decode/style.py",
    "decode/whole_answers.py",
    "decode/prompt.py",
    "decode/transformers_target.py",
    "decode/causal_model.py",
    "decode/attention_mask.py",
    "decode/kv_cache.py",
    "decode/head.py",
    "decode/digests.py",
    "token_bytes.py",
)
_MAX_BYTES = 1 << 20
_LAYOUT = {"scores": ArrayLayout(np.float64, (len(RENDERINGS),))}


class StyledModel(Protocol):
    """What a style is found from; a Runtime is one."""

    vocabulary: Vocabulary
    context_length: int | None

    @property
    def loaded(self) -> LoadedModel:
        """The model and its tokenizer."""

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """Return the token ids of a prompt."""

    def new_target(self) -> Target:
        """Return an empty sequence."""


def user_folder() -> Path:
    """Return the folder in the user's cache directory."""
    return platformdirs.user_cache_path("structgen") / "styles"


def preferred_whitespace(model: StyledModel, *, folder: Path | None) -> Whitespace:
    """Return the style of the example that the model finds most probable: SPACED, COMPACT or PRETTY.

    Args:
        model: the model.
        folder: where scores are kept; None scores anew and keeps nothing.
    """
    store = ArrayStore(folder, sources=_SOURCES, max_bytes=_MAX_BYTES)
    key = fingerprint(model)
    found = store.read(key, _LAYOUT)
    if found is None:
        found = {"scores": style_scores(model)}
        store.write(key, found)
    scores = np.where(np.isnan(found["scores"]), -np.inf, found["scores"])
    return tuple(RENDERINGS)[int(np.argmax(scores))]


def style_scores(model: StyledModel) -> FloatArray:
    """Return the log-probability of each rendering with its end, in the order of RENDERINGS.

    Returns:
        (renderings,); -inf for what the tokenizer cannot write, and for all where the context has no room.
    """
    scores = np.full(len(RENDERINGS), -np.inf)
    prompt_token_ids = _prompt_token_ids(model)
    spelled = _spelled(model.vocabulary)
    longest = max(map(len, spelled.values()), default=0)
    has_room = model.context_length is None or len(prompt_token_ids) + longest <= model.context_length
    if spelled and prompt_token_ids and has_room:
        trace = Trace(num_prompt_tokens=len(prompt_token_ids))
        scores[list(spelled)] = answer_log_probs(
            model.new_target(), model.vocabulary, prompt_token_ids, list(spelled.values()), trace
        )
    return scores


def fingerprint(model: StyledModel) -> str:
    """Return a text that two models share only if their scores are the same, as far as that can be told quickly.

    It is made of the fingerprint of the model, and of how the tokenizer writes the prompt and the renderings. A chat
    template goes in as its text, since what it writes may hold a date.
    """
    loaded = model.loaded
    template = getattr(loaded.tokenizer, "chat_template", None)
    told = (
        model.vocabulary.digest,
        _spelled(model.vocabulary),
        template or _prompt_token_ids(model),
        model.context_length,
        loaded.model_digest,
        loaded.dtype,
    )
    digest = hashlib.sha256(repr(told).encode())
    return f"whitespace of the model {digest.hexdigest()}"


def _spelled(vocabulary: Vocabulary) -> dict[int, tuple[int, ...]]:
    """Return the canonical tokens of each rendering that has some, by its index."""
    found = {}
    for index, text in enumerate(RENDERINGS.values()):
        try:
            found[index] = canonical_tokens(vocabulary, text)
        except VocabularyError:  # a tokenizer without line breaks, say: then this is not how its model writes
            continue
    return found


def _prompt_token_ids(model: StyledModel) -> tuple[int, ...]:
    """Return the prompt in the form that the model takes, nothing if its context has no room for it."""
    for prompt in (PROMPT, Raw(PROMPT)):
        try:
            return model.encode(prompt)
        # A template that refuses this conversation or writes what the model does not read, or no room.
        except (OptionError, VocabularyError):
            continue
    return ()
