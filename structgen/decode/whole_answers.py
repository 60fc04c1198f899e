"""How probable a model finds whole answers: the canonical tokens of each, and the end after them.

    log p(answer) = sum_i log p(token_i | prompt, tokens before it) + log sum_(s in stop ids) p(s | prompt, answer)

where p is the model's own softmax over the ids of the vocabulary, in float64; what a padded head has beyond them does
not count. The answers are put into a trie that is walked depth first, one pass for each leaf: from where its path
leaves the one before down to the leaf, the cache cropped in between. So the prompt and every common beginning are
computed once. Left out: drawing one of them (exact_choice.py), and a tree in one pass.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import torch

from structgen.decode.target import Target, Tokens
from structgen.decode.trace import Trace
from structgen.errors import VocabularyError, shown
from structgen.vocabulary import Vocabulary

FloatArray: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"

# Rows of logits that one pass returns at most: 32 MB for a vocabulary of 128,256 in float32.
_MOST_ROWS: Final = 64


def canonical_tokens(vocabulary: Vocabulary, text: str) -> tuple[int, ...]:
    """Return the token ids that the tokenizer itself gives a text: no special or added id, no added space.

    Raises:
        VocabularyError: they do not spell the text.
    """
    if vocabulary.text_encoder is None:
        raise VocabularyError(
            f"{vocabulary!r} comes from no tokenizer, so no spelling of {shown(text)} is the canonical one"
        )
    try:
        token_ids = tuple(vocabulary.text_encoder(text))
    except Exception as error:  # the library raises plain Exception, where a model has no unknown token
        raise VocabularyError(
            f"the tokenizer cannot encode {shown(text)} ({error}); use another text or model"
        ) from error
    spelled = vocabulary.decode(token_ids)
    if spelled != text.encode():
        raise VocabularyError(
            f"the tokenizer's own tokens for {shown(text)} spell {shown(spelled)}, so it has no canonical spelling; "
            "write it in other characters, or leave exact=True out: then every spelling that there is counts"
        )
    return token_ids


def answer_log_probs(
    target: Target,
    vocabulary: Vocabulary,
    prompt_token_ids: Sequence[int],
    answers: Sequence[tuple[int, ...]],
    trace: Trace,
) -> FloatArray:
    """Return the log-probability of each answer with its end.

    Args:
        target: a sequence; it is started over.
        vocabulary: what the softmax is over, and the stop ids.
        prompt_token_ids: what stands before the answers.
        answers: the token ids of each.
        trace: counts and times the passes.

    Returns:
        (answers,); -inf for what the model gives no probability, nan where its logits are not numbers.
    """
    walk = Walk(vocabulary, prompt_token_ids, answers)
    while (tokens := walk.next_path(target)) is not None:
        clock = time.perf_counter()
        logits = target.head(walk.asked(target.extend(tokens))).cpu()
        trace.add_pass(time.perf_counter() - clock)
        walk.read(logits)
    return walk.log_probs


@dataclass(slots=True)
class _Node:
    """A beginning of answers.

    Attributes:
        children: the beginnings that are one token longer.
        answers: which answers it is the whole of.
    """

    children: dict[int, _Node] = field(default_factory=dict)
    answers: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Branch:
    """A beginning that the model has not read yet.

    Attributes:
        token_id: its last token.
        node: its place in the trie.
        depth: how many tokens stand before the last one, the prompt not counted.
        log_prob: of all its tokens.
    """

    token_id: int
    node: _Node
    depth: int
    log_prob: float


def _trie(answers: Sequence[tuple[int, ...]]) -> _Node:
    root = _Node()
    for index, token_ids in enumerate(answers):
        node = root
        for token_id in token_ids:
            node = node.children.setdefault(token_id, _Node())
        node.answers.append(index)
    return root


@dataclass(slots=True)
class _Path:
    """What leads from a branch down to a leaf, always by the first child.

    Attributes:
        tokens: from the branch on.
        nodes: where each of them leads.
        depth: how many tokens stand before the first one, the prompt not counted.
        log_prob: of the beginning that has been read.
        num_read: how many tokens have been read.
    """

    tokens: list[int]
    nodes: list[_Node]
    depth: int
    log_prob: float
    num_read: int = 0

    @classmethod
    def below(cls, branch: _Branch) -> _Path:
        """Return the path of a branch."""
        tokens, nodes = [branch.token_id], [branch.node]
        while nodes[-1].children:
            token_id, node = next(iter(nodes[-1].children.items()))
            tokens.append(token_id)
            nodes.append(node)
        return cls(tokens, nodes, branch.depth, branch.log_prob)


class Walk:
    """The walk through the trie: asks for a path, is given its logits, and so on until there is none.

    Attributes:
        log_probs: (answers,) what is known of each answer with its end.
    """

    def __init__(
        self, vocabulary: Vocabulary, prompt_token_ids: Sequence[int], answers: Sequence[tuple[int, ...]]
    ) -> None:
        """Start before the prompt."""
        self.log_probs: FloatArray = np.full(len(answers), -np.inf)
        self._prompt = tuple(prompt_token_ids)
        self._root = _trie(answers)
        self._size = vocabulary.size
        self._stop_ids = list(vocabulary.stop_ids)
        self._is_started = False
        self._path: _Path | None = None
        self._pending: list[_Branch] = []

    def next_path(self, target: Target) -> Tokens | None:
        """Return what the target has to read next, cropped to where that starts; None where all is known."""
        if not self._is_started:
            target.crop(0)
            return Tokens(self._prompt, num_prompt_tokens=len(self._prompt))
        if self._path is None:
            if not self._pending:
                return None
            # What was put last stands deepest, so everything before it is in the cache.
            self._path = _Path.below(self._pending.pop())
            target.crop(len(self._prompt) + self._path.depth)
        return Tokens(self._path.tokens[self._path.num_read :][:_MOST_ROWS])

    def asked(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the hidden states that logits are needed of: of the prompt only the end is."""
        return hidden if self._is_started else hidden[-1:]

    def read(self, logits: torch.Tensor) -> None:
        """Take the logits after each token of the path, or after the prompt."""
        rows = logits.cpu()
        path = self._path
        if path is None:
            self._is_started = True
            self._pending = self._read(rows[0], self._root, 0, 0.0)
            return
        for row in rows:
            depth = path.depth + path.num_read + 1
            branches = self._read(row, path.nodes[path.num_read], depth, path.log_prob)
            if branches:
                path.log_prob = branches.pop().log_prob
            self._pending += branches
            path.num_read += 1
        if path.num_read == len(path.tokens):
            self._path = None

    def _read(self, row: torch.Tensor, node: _Node, depth: int, log_prob: float) -> list[_Branch]:
        """Take what a row of logits says of a beginning: the end of its answers, and its children, the first last."""
        log_softmax = log_softmax_of(row, self._size)
        if node.answers:
            self.log_probs[node.answers] = log_prob + float(log_softmax[self._stop_ids].logsumexp(0))
        return [
            _Branch(token_id, child, depth, log_prob + float(log_softmax[token_id]))
            for token_id, child in reversed(node.children.items())
        ]


def log_softmax_of(logits: torch.Tensor, vocabulary_size: int) -> torch.Tensor:
    """Return the log-probability of each id of the vocabulary.

    Args:
        logits: (width,) floating point; columns past the vocabulary are ignored.
        vocabulary_size: how many ids there are; those past the width have no probability.

    Returns:
        (vocabulary_size,) float64 on the CPU: some devices have no float64.
    """
    row = torch.log_softmax(logits.detach()[:vocabulary_size].cpu().double(), 0)
    return torch.nn.functional.pad(row, (0, vocabulary_size - len(row)), value=-math.inf)
