"""The drafter that is a smaller model: it writes ahead, under the same mask and options as the target.

It gives logits and no tokens; the engine draws from them, so that the draft is drawn with the noise, the penalties and
the truncation of the text. Each request has a KV cache of its own in the draft model.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from structgen.config import shown_kind
from structgen.drafter import DraftRequest, DraftView, DraftVocabulary
from structgen.errors import OptionError, shown

if TYPE_CHECKING:
    import torch

    from structgen.decode.causal_model import CausalModel


class SmallModel(Protocol):
    """What a draft model has to be; `structgen.Model` is."""

    @property
    def vocabulary(self) -> DraftVocabulary:
        """Its vocabulary."""

    @property
    def hf_model(self) -> Any:
        """The transformers model."""


class DraftModel:
    """Drafts what a smaller model with the same vocabulary would write."""

    def __init__(self, model: SmallModel) -> None:
        """Take a model that was loaded with `load` or wrapped with `Model`.

        Raises:
            OptionError: it is none.
        """
        if isinstance(model, type) or not hasattr(model, "hf_model") or not hasattr(model, "vocabulary"):
            raise OptionError(
                f"DraftModel takes a Model, not {shown_kind(model)}: write sg.drafters.DraftModel(sg.load(name)), or "
                "sg.Model(model, tokenizer) around what is loaded"
            )
        self.model = model
        self._causal: CausalModel | None = None
        self._fits: set[str] = set()

    def __repr__(self) -> str:
        """Show the model and its memory."""
        return f"DraftModel({self.model!r}, {self.memory_bytes / 1e6:.0f} MB of weights)"

    def __eq__(self, other: object) -> bool:
        """Compare the models, by which object they are."""
        return isinstance(other, DraftModel) and other.model is self.model

    def __hash__(self) -> int:
        """Hash which object the model is."""
        return hash((DraftModel, id(self.model)))

    @property
    def name(self) -> str:
        """What reports call it."""
        return "DraftModel"

    @functools.cached_property
    def digest(self) -> str:
        """The fingerprint of the model, for records of runs."""
        from structgen.decode.digests import model_digest

        return model_digest(self.model.hf_model)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the weights; what is shared between layers counts once."""
        from structgen.decode.packing import weight_bytes

        return weight_bytes(self.model.hf_model)

    def start(self, request: DraftRequest) -> DraftModelSession:
        """Begin with a request, with an empty KV cache.

        Raises:
            OptionError: the vocabulary is not that of the target.
        """
        from structgen.decode.causal_model import CausalModel, text_config

        if request.vocabulary.digest not in self._fits:
            _check_same(self.model.vocabulary, request.vocabulary)
            self._fits.add(request.vocabulary.digest)
        if self._causal is None:
            self._causal = CausalModel(self.model.hf_model)
        context = getattr(text_config(self.model.hf_model.config), "max_position_embeddings", None)
        return DraftModelSession(self._causal, context if isinstance(context, int) else None)


class DraftModelSession:
    """One sequence in the draft model."""

    def __init__(self, model: CausalModel, context_length: int | None) -> None:
        """Start with nothing read."""
        from structgen.decode.transformers_target import TransformersBatch

        self._target = TransformersBatch(model).join()
        self._context_length = context_length
        self._read: list[int] = []

    def propose(self, view: DraftView) -> Iterator[torch.Tensor]:
        """Yield the logits after the text and the draft so far, each time that there is one token more."""
        token_ids = list(view.token_ids)
        num_known = min(_num_common(self._read, token_ids), len(token_ids) - 1)
        self._target.crop(num_known)
        del self._read[num_known:]
        missing = token_ids[num_known:]
        while self._context_length is None or len(self._read) + len(missing) < self._context_length:
            yield self._logits(missing)
            missing = list(view.drafted[-1:])

    def observe(self, token_id: int, state_key: Hashable) -> None:
        """Read nothing before there is something to draft."""

    def close(self) -> None:
        """Keep nothing."""

    def _logits(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Read tokens, and return the row after the last of them."""
        from structgen.decode.target import Tokens

        hidden = self._target.extend(Tokens(token_ids))
        self._read += token_ids
        return self._target.head(hidden[-1:])[0]


def _num_common(left: Sequence[int], right: Sequence[int]) -> int:
    """Return how many first tokens agree."""
    return next((i for i, (one, other) in enumerate(zip(left, right, strict=False)) if one != other), len(left))


def _check_same(draft: DraftVocabulary, target: DraftVocabulary) -> None:
    """Refuse a draft model whose token ids mean something else; one that only has more ids without text is none."""
    if draft.digest == target.digest:
        return
    for token_id in range(max(draft.size, target.size)):
        spelled = [known.token_bytes(token_id) if token_id < known.size else b"" for known in (draft, target)]
        if spelled[0] != spelled[1]:
            raise OptionError(
                f"the draft model has another vocabulary: token {token_id} is {shown(spelled[0])} there and "
                f"{shown(spelled[1])} in the target model; take a smaller model of the same family, with the same "
                "tokenizer"
            )
