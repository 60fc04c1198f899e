"""A loaded model as requests see it: its vocabulary, its prompts, a sequence of its own for each request."""

from __future__ import annotations

import functools
import importlib.metadata
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from structgen.config import Whitespace
from structgen.decode.causal_model import CausalModel, text_config
from structgen.decode.device_pool import DevicePool
from structgen.decode.digests import ModelIdentity, backend_of
from structgen.decode.models import LoadedModel, check_readable, check_tokenizer
from structgen.decode.packing import Packing
from structgen.decode.pass_check import check_passes
from structgen.decode.prompt import Prompt, encode_prompt
from structgen.decode.route_controls import RouteControls
from structgen.decode.step_costs import StepCosts, step_costs
from structgen.decode.step_costs import user_folder as step_costs_folder
from structgen.decode.style import preferred_whitespace, user_folder
from structgen.decode.target import Target, TargetBatch
from structgen.decode.transformers_target import DETERMINISTIC_WIDTH, TransformersBatch
from structgen.decode.whole_answers import canonical_tokens
from structgen.errors import OptionError
from structgen.vocabulary import Vocabulary


class Runtime:
    """What all requests of one model share; safe to use from several threads.

    Attributes:
        vocabulary: that of the tokenizer, with every stop id that model and tokenizer name.
        route_controls: who decides how far its requests draft ahead.
        device_pool: device mode, and which requests it is for.
        context_length: most tokens of prompt and answer together, None if the model sets no bound.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        """Read the vocabulary.

        Raises:
            VocabularyError: the tokenizer does not say what bytes its tokens are, or does not belong to the model.
        """
        self._loaded = loaded
        # A fast tokenizer sets its truncation for each text, so two threads at once would meet in it.
        self._tokenizer_lock = threading.Lock()
        self._whitespace_lock = threading.Lock()
        self._whitespace: Whitespace | None = None
        self.route_controls = RouteControls(loaded.model, lambda: self.step_costs.pass_s)
        self._costs_lock = threading.Lock()
        self._costs: StepCosts | None = None
        self.vocabulary = Vocabulary.from_tokenizer(
            loaded.tokenizer, stop_ids=_model_stop_ids(loaded.model, loaded.tokenizer)
        )
        check_tokenizer(self.vocabulary, loaded.model)
        self._causal_model = CausalModel(loaded.model)
        check_passes(loaded.model, self._causal_model)
        self.device_pool = DevicePool(self._causal_model, self.vocabulary)
        length = getattr(text_config(loaded.model.config), "max_position_embeddings", None)
        self.context_length: int | None = length if isinstance(length, int) and length > 0 else None

    @property
    def loaded(self) -> LoadedModel:
        """The model and its tokenizer."""
        return self._loaded

    @property
    def name(self) -> str:
        """What the model was loaded by."""
        return self._loaded.name

    @property
    def folder(self) -> Path | None:
        """The folder that the model was loaded from, None if it was none."""
        return self._loaded.folder

    @property
    def packing(self) -> Packing | None:
        """What became of the linear layers, None where they were left alone."""
        packing = self._loaded.packing
        return packing if packing is not None and packing.unpacked_because is None else None

    @property
    def dtype(self) -> str:
        """Element type of the weights, such as "float32"; "int8" where those of linear layers were rounded to it."""
        return self._loaded.dtype

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return torch.device(self._loaded.model.device)

    @property
    def backend(self) -> str:
        """What computes there, for records of runs."""
        return backend_of(self.device, is_packed=self.packing is not None)

    @functools.cached_property
    def identity(self) -> ModelIdentity:
        """What records name the model by."""
        return ModelIdentity.of(self._loaded.model_digest, self._loaded.tokenizer)

    @property
    def whitespace(self) -> Whitespace:
        """The style that the model writes JSON in by itself; found at the first use, which may take some passes."""
        with self._whitespace_lock:
            if self._whitespace is None:
                self._whitespace = preferred_whitespace(self, folder=user_folder())
            return self._whitespace

    @property
    def step_costs(self) -> StepCosts:
        """What passes cost on this machine; measured at the first use, which takes some passes."""
        with self._costs_lock:
            if self._costs is None:
                self._costs = step_costs(self._causal_model, self._loaded.model, folder=step_costs_folder())
            return self._costs

    def encode(self, prompt: Prompt, tools: Sequence[Mapping[str, Any]] = ()) -> tuple[int, ...]:
        """Return the token ids of a prompt, with the tools told of (see prompt.py).

        Raises:
            OptionError: it is no prompt, or the context has no room for an answer to it.
            VocabularyError: the model does not read a token of it.
        """
        with self._tokenizer_lock:
            token_ids = encode_prompt(self._loaded.tokenizer, prompt, tools=tools)
        if self.context_length is not None and len(token_ids) >= self.context_length:
            raise OptionError(
                f"the prompt has {len(token_ids)} tokens and the model reads {self.context_length}, prompt and answer "
                "together: shorten the prompt"
            )
        check_readable(token_ids, self._loaded.model)
        return tuple(token_ids)

    def canonical_tokens(self, text: str) -> tuple[int, ...]:
        """Return the token ids that the tokenizer itself gives a text (see whole_answers.py).

        Raises:
            VocabularyError: they do not spell the text.
        """
        # The encoder of a vocabulary is a tokenizer of its own, which no call changes: it needs no lock.
        return canonical_tokens(self.vocabulary, text)

    def new_target(self, *, deterministic: bool = False) -> Target:
        """Return an empty sequence; see `new_batch`."""
        return self.new_batch(deterministic=deterministic).join()

    def new_batch(self, *, deterministic: bool = False) -> TargetBatch:
        """Return a batch without rows.

        Args:
            deterministic: whether logits depend on the text of their row only, to the last bit: not on what is
                drafted, nor on other rows.

        Raises:
            OptionError: the model takes no masks of ours, and then it cannot be deterministic.
        """
        return TransformersBatch(self._causal_model, width=DETERMINISTIC_WIDTH if deterministic else None)


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions of what takes part in a run."""
    found = {}
    for package in ("structgen", "torch", "transformers"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"  # used from a source folder
    return found


def _model_stop_ids(model: Any, tokenizer: Any) -> list[int]:
    """Return the end ids that the configurations of a model name; the tokenizer's own are the vocabulary's business."""
    size = max(tokenizer.get_vocab().values(), default=-1) + 1 if hasattr(tokenizer, "get_vocab") else 0
    stops: list[int] = []
    for config in (text_config(model.config), model.config, getattr(model, "generation_config", None)):
        ids = getattr(config, "eos_token_id", None)
        if ids is not None:
            stops += [ids] if isinstance(ids, int) else list(ids)
    # Configurations are copied from model to model, and some name ids that this tokenizer does not have (-1, or those
    # of a larger one). The user did not write them and cannot mend them, and no token of a text can be one of them.
    return sorted({stop for stop in stops if 0 <= stop < size})
