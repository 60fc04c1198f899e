"""The language model head: hidden states to logits, of all tokens or only of those that may be drawn.

Soft caps, scales and whatever else a model does to its logits are its own code: the model's forward runs on a twin that
shares every weight, whose body hands out hidden states that are there already. For a few tokens the twin's last linear
layer has only their rows. That those are the columns of the full head is tried once per model; where it is not so, or
the rows cannot be read (quantised weights), the full head is computed and its columns are taken.

On a device that draws by itself, gathered rows take the place of the twin's few (structgen/kernels/gather_head.py):
the twin copies the rows before it multiplies them, which moves their bytes three times and not once, and needs the host
for each list. Which models they are right for is tried in the same way.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from structgen.decode.packed_linear import PackedLinear
from structgen.decode.target import TokenIds
from structgen.errors import OptionError
from structgen.kernels.gather_head import HeadWeights, gather_head_
from structgen.kernels.sample import MAX_LISTED_TOKENS, Masks

# Of the logits' columns, up to this share, and up to this number, are computed faster by their rows than all of them.
# On the CPU a row that is read by its index takes two to three times as long as in the whole, and sixteen thousand of
# them overflow its caches (Qwen2.5-Coder-0.5B, one EPYC core: all 29 ms, 256 of them 0.4, 4,096 4, 16,384 47). They are
# constants and not measured, because a choice that depends on the clock would make the last digits of logits depend on
# it.
_WORTHWHILE_SHARE = 1 / 8
_MOST_LEGAL_ROWS = MAX_LISTED_TOKENS


class Head:
    """The head of one model; it has no state of its own, so threads share it.

    Attributes:
        most_legal_rows: longest list of tokens for which it is faster to compute their rows only; 0 where none is.
        full_only_because: why the rows of a few tokens cannot be computed alone, None if they can.
        gathered: the weights, where rows of a few tokens are gathered from them; None where they are the twin's.
    """

    def __init__(self, model: Any, body: Any, *, gathers: bool = False, soft_cap: float | None = None) -> None:
        """Find the head of a causal language model of transformers.

        Args:
            model: the model.
            body: the part of it that its forward calls for hidden states.
            gathers: whether rows of a few tokens are gathered, and not computed by a twin.
            soft_cap: bound of the logits, where the model has one.

        Raises:
            OptionError: its forward does not call the body.
        """
        self._model = model
        self._body = body
        self._body_path = _path_to(model, body)
        parameters = inspect.signature(type(model).forward).parameters
        self._options: dict[str, Any] = {"logits_to_keep": 0} if "logits_to_keep" in parameters else {}
        output = model.get_output_embeddings()
        self._output_path = _path_to(model, output)
        self._rows = readable_rows(output)
        self.gathered = HeadWeights(*self._rows, soft_cap) if gathers and self._rows is not None else None
        self.full_only_because = self._why_full_only()
        width = 0 if self._rows is None else self._rows[0].shape[0]
        self.most_legal_rows = min(int(width * _WORTHWHILE_SHARE), _MOST_LEGAL_ROWS)
        if self.full_only_because is not None:
            self.most_legal_rows, self.gathered = 0, None

    def logits(self, hidden: torch.Tensor, token_ids: Sequence[int] | TokenIds | None = None) -> torch.Tensor:
        """Return (rows, width) logits of (rows, size) hidden states, or (rows, len(token_ids)) of them."""
        if token_ids is None:
            return self._run(hidden, None)
        columns = torch.as_tensor(token_ids, dtype=torch.long, device=hidden.device)
        if self.full_only_because is not None or self.gathered is not None:
            return self._run(hidden, None)[:, columns]
        return self._run(hidden, columns)

    def _run(self, hidden: torch.Tensor, columns: torch.Tensor | None) -> torch.Tensor:
        given = _Given(self._body, hidden[None])
        twin = _with_part(self._model, self._body_path, given)
        if columns is not None and self._rows is not None:
            twin = _with_part(twin, self._output_path, _SomeRows(*self._rows, columns))
        dummy = torch.zeros((1, len(hidden)), dtype=torch.long, device=hidden.device)
        with torch.no_grad():
            output = type(self._model).forward(twin, input_ids=dummy, **self._options)
        if not given.was_called:
            raise OptionError(
                f"{type(self._model).__name__} does not take its hidden states from its {type(self._body).__name__}; "
                "use a causal language model of transformers, such as one from AutoModelForCausalLM"
            )
        logits: torch.Tensor = output.logits[0]
        return logits

    def _why_full_only(self) -> str | None:
        """Try a few columns of a few hidden states."""
        if self._rows is None or not self._output_path:
            return "the weights of its last layer cannot be read row by row"
        weight = self._rows[0]
        generator = torch.Generator().manual_seed(0)
        hidden = torch.randn((2, weight.shape[1]), generator=generator).to(weight)
        width = weight.shape[0]
        columns = torch.tensor(sorted({0, width // 3, width // 2, width - 1}), device=weight.device)
        whole = self._run(hidden, None)[:, columns]
        if not bool(whole.isfinite().all()):
            return "its logits are not numbers"
        try:
            few = self._run(hidden, columns) if self.gathered is None else _gathered(self.gathered, hidden, columns)
        except Exception as error:  # the code of any model: it may index logits by token ids, say
            return f"its forward does not take a head of a few rows ({type(error).__name__})"
        # Other shapes round otherwise, so a few units in the last place of the largest logit are no difference.
        tolerance = 64 * torch.finfo(few.dtype).eps * float(whole.abs().max())
        if few.shape != whole.shape or not torch.allclose(few, whole, rtol=0, atol=tolerance):
            return "its logits are not computed column by column"
        return None


def readable_rows(output: Any) -> tuple[torch.Tensor, torch.Tensor | None] | None:
    """Return the weights and the bias of a linear layer that holds plain ones, None of any other."""
    if isinstance(output, PackedLinear):
        return None if output.plain_weight is None else (output.plain_weight, output.bias)
    weight, bias = getattr(output, "weight", None), getattr(output, "bias", None)
    if type(output) is not torch.nn.Linear or weight is None or weight.is_meta or not weight.is_floating_point():
        return None
    if output._forward_hooks or output._forward_pre_hooks:
        return None
    return weight, bias


def _gathered(head: HeadWeights, hidden: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Return the logits of some columns, each row with a list of its own."""
    num, width = len(hidden), len(head.weight)
    row = torch.arange(num, dtype=torch.int32, device=hidden.device)
    starts = torch.arange(num + 1, dtype=torch.int64, device=hidden.device) * len(columns)
    bits = np.zeros(-(-width // 32) * 32, dtype=np.uint8)
    bits[columns.cpu().numpy()] = 1
    words = torch.from_numpy(np.packbits(bits, bitorder="little").view(np.int32)).to(hidden.device)
    masks = Masks(words=words.expand(num, -1), row=row, num_tokens=width, lists=(starts, columns.int().repeat(num)))
    logits = hidden.new_full((num, width), -torch.inf)
    gather_head_(logits, hidden, head, masks)
    return logits[:, columns]


class _Given(torch.nn.Module):
    """Stands for the body of a model: hands out the hidden states it was given, and its attributes otherwise."""

    was_called = False

    def __init__(self, body: Any, hidden: torch.Tensor) -> None:
        super().__init__()
        # Past torch's own __setattr__, which would make the body a part of this.
        self.__dict__["_body"] = body
        self._hidden = hidden

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_body"], name)

    def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
        self.was_called = True
        return _Output(self._hidden)


class _Output:
    """What a body returns; its other fields (caches, attentions) are None, whatever the model calls them."""

    def __init__(self, hidden: torch.Tensor) -> None:
        self.last_hidden_state = hidden

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)

    def __getitem__(self, index: Any) -> Any:
        return (self.last_hidden_state,)[index]


class _SomeRows(torch.nn.Module):
    """A linear layer with some of its rows."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, columns: torch.Tensor) -> None:
        super().__init__()
        self._weight, self._bias, self._columns = weight, bias, columns

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        bias = None if self._bias is None else self._bias[self._columns]
        return torch.nn.functional.linear(hidden, self._weight.index_select(0, self._columns), bias)


def _with_part(model: Any, path: tuple[str, ...], part: torch.nn.Module) -> Any:
    """Return a shallow copy of a module with another part, or the part itself at the end of the path."""
    if not path:
        return part
    # Made for every head, so without copy.copy, which takes longer than a head of a few rows.
    twin = object.__new__(type(model))
    changed = _with_part(model._modules[path[0]], path[1:], part)
    twin.__dict__.update(model.__dict__, _modules={**model._modules, path[0]: changed})
    return twin


def _path_to(model: Any, part: Any) -> tuple[str, ...]:
    """Return the names that lead from a module to a part of it, none if it is not in there."""
    if part is None or part is model:
        return ()
    return next((tuple(name.split(".")) for name, module in model.named_modules() if module is part), ())
