"""The engine loop: prefill, then rounds of draft, one pass of the target, draws, and what they accept.

Every token is drawn from the target at its own place, with the noise that belongs to seed, position and token, so a
draft changes how many passes a text takes and nothing else. Where the drawn token is the drafted one the next place is
drawn at too, from the same pass; else the rest of the draft is forgotten, in the state and in the KV cache.

The budget is a promise. max_tokens counts the tokens of the text; the stop token is not counted, and is not part of the
result. A budget below the state's finishing cost is refused before the prefill. From there on the state only offers
tokens after which what remains of the budget is enough to end, so the text is always complete. Where that took choices
away the sample is of the masked target given the budget, and the trace says so.

Where the end is the only choice no pass is made for the stop token. A stop string ends the text before itself: its
tokens are drawn and counted, and are not in the text. Left out: who drafts (drafting.py), passes of several
texts (batch_loop.py), prompts as text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from structgen.config import Sampling, check_count
from structgen.decode.acceptance import descend
from structgen.decode.control import Offer, Round
from structgen.decode.device_draws import DeviceDraws
from structgen.decode.draft import ROOT, Draft, Masks
from structgen.decode.drafting import Coins, Drafting, SpeculationSetup
from structgen.decode.legal_rows import LegalRows, rows_of
from structgen.decode.masks_ahead import MasksAhead
from structgen.decode.node_draws import HostDraws, NodeDraws, Places
from structgen.decode.rounds import PassTimes, make_round
from structgen.decode.sampler import Sampler
from structgen.decode.state import DecodeState
from structgen.decode.target import Target, Tokens
from structgen.decode.text import GrowingText
from structgen.decode.trace import Trace
from structgen.drafter import DraftRequest
from structgen.errors import BudgetError, NoLegalTokenError, OptionError
from structgen.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What one text is made from.

    Attributes:
        prompt_token_ids: the prompt, at least one token.
        max_tokens: most tokens of the text, the stop token not counted.
        seed: seed of the noise, 0 <= seed < 2**64.
        sampling: how tokens are drawn.
        stream: 0, or another number for another text from the same seed.
        stop: strings that end the text, none of them empty; only for grammars whose texts may be cut anywhere.
        diagnostics: whether the legal mass is measured at every draw, and not at some of them.
    """

    prompt_token_ids: tuple[int, ...]
    max_tokens: int
    seed: int
    sampling: Sampling = field(default_factory=Sampling)
    stream: int = 0
    stop: tuple[str, ...] = ()
    diagnostics: bool = False

    def __post_init__(self) -> None:
        """Check what the loop relies on."""
        if not self.prompt_token_ids:
            raise OptionError("the prompt has no tokens; pass at least one")
        check_count("max_tokens", self.max_tokens, minimum=0)


class Decoding:
    """One request on its way: call step() until it returns None, or run().

    Attributes:
        token_ids: tokens of the text so far.
        trace: counts and times so far.
    """

    def __init__(
        self,
        target: Target,
        state: DecodeState,
        vocabulary: Vocabulary,
        request: Request,
        speculation: SpeculationSetup | None = None,
    ) -> None:
        """Start before the first token.

        Args:
            target: a sequence of its own in the target model.
            state: the start state; the loop moves it.
            vocabulary: that of the state.
            request: prompt, budget, seed and sampling.
            speculation: who drafts; None is plain decoding.

        Raises:
            BudgetError: the budget is smaller than the state's finishing cost.
            OptionError: the bias names a token that the vocabulary does not have.
        """
        if request.max_tokens < state.tokens_to_end_bound:
            raise BudgetError(request.max_tokens, state.tokens_to_end_bound)
        self._target = target
        self._state = state
        self._vocabulary = vocabulary
        self._request = request
        self._setup = SpeculationSetup.off() if speculation is None else speculation
        self._masks = Masks(vocabulary)
        self._text = GrowingText(request.stop)
        self._is_finished = False
        self._draft: Draft
        self._places: Places
        self._started = self._made_s = 0.0
        self._draft_s: Mapping[str, float] = {}
        self.token_ids: list[int] = []
        self.trace = Trace(num_prompt_tokens=len(request.prompt_token_ids))
        self._sampler = Sampler(request.sampling, seed=request.seed, vocabulary_size=vocabulary.size)
        coins = Coins(request.seed, request.stream)
        self._draws: NodeDraws = HostDraws(rows := LegalRows(target), self._sampler, coins)
        self._device_draws: DeviceDraws | None = None
        self._ahead: MasksAhead | None = None
        if (side := target.device_side) is not None:
            size = vocabulary.size
            self._draws = self._device_draws = DeviceDraws(side, rows, self._sampler, self._draws, size=size)
            self._ahead = MasksAhead(self._setup.memory, request.prompt_token_ids[-1])
        known = DraftRequest(
            prompt_token_ids=request.prompt_token_ids, vocabulary=vocabulary, memory=self._setup.memory
        )
        self._drafting = Drafting(self._setup, known, self._sampler, coins)

    def take_over(self, token_ids: Sequence[int], trace: Trace) -> None:
        """Begin after tokens that were drawn elsewhere, by the same law and with the same noise.

        Args:
            token_ids: the first tokens of the text.
            trace: what they took; this decoding goes on counting there.
        """
        clock, self.trace = time.perf_counter(), trace
        for token_id in token_ids:
            free_text_mask = self._state.free_text_mask() if self._sampler.has_penalties else None
            self._sampler.count(token_id, free_text_mask)
            self._drafting.observe(token_id, self._state.key)
            self._state.advance(token_id)
            self.token_ids.append(token_id)
            self._text.add(self._vocabulary.token_bytes(token_id))
        if token_ids:
            prompt = self._request.prompt_token_ids
            self._target.extend(Tokens([*prompt, *token_ids[:-1]], num_prompt_tokens=len(prompt)))
        trace.add_prefill(time.perf_counter() - clock)

    @property
    def text(self) -> str:
        """The text so far, without a character whose bytes are not all there, and what may become a stop string."""
        return self._text.text

    def run(self) -> None:
        """Decode to the end."""
        while self.step() is not None:
            pass

    def step(self) -> str | None:
        """Decode one round: one token, or as many as were drafted and accepted and one more.

        Returns:
            What it adds to the text (may be empty), None once the text has ended.

        Raises:
            NoLegalTokenError: no legal token has a probability.
        """
        if self._is_finished:
            return None
        num_tokens, shown = len(self.token_ids), len(self.text)
        make_round(self._target, self)
        return self.text[shown:] if len(self.token_ids) > num_tokens else None

    def begin_round(self, *, num_rows: int = 1) -> Tokens | None:
        """Draft, and return what the target has to read next; None where the text has ended instead.

        Args:
            num_rows: texts that share the passes at present.

        Raises:
            NoLegalTokenError: no token is legal, and the text may not end.
        """
        if self._is_finished:
            return None
        self._draft = draft = Draft(
            self._state,
            self._masks,
            num_before=len(self.token_ids),
            budget=self._request.max_tokens - len(self.token_ids),
            asks_free_text=self._sampler.has_penalties,
        )
        if draft.nodes[ROOT].is_end:
            self._ends_at(draft, ROOT)
            self._add_masks(0.0)
            self._finish()
            return None
        self._draft_s = self._drafting.propose(
            draft,
            stream=self._request.stream,
            num_rows=num_rows,
            takes_trees=bool(self.token_ids) and self._target.takes_trees,
        )
        self.trace.draft_s += sum(self._draft_s.values())
        if not self.token_ids:
            self._target.crop(0)
        return self._to_read()

    def _to_read(self) -> Tokens:
        """Return what the target has not read of the text, and the draft."""
        request, draft = self._request, self._draft
        self._places = places = Places(
            draft, len(request.prompt_token_ids) + draft.num_before, request.stream, request.diagnostics
        )
        drafted = draft.read_token_ids
        if self.token_ids:
            parents = [-1, *(places.row_of[node.parent] for node in places.nodes[1:])]
            is_chain = parents == list(range(-1, len(drafted)))
            return Tokens([self.token_ids[-1], *drafted], None if is_chain else parents)
        prompt = request.prompt_token_ids
        return Tokens([*prompt, *drafted], num_prompt_tokens=len(prompt))

    def offer(self) -> Offer | None:
        """Return what the drafted tokens of the round are worth, None if they are to be read whatever they cost."""
        return self._setup.control.offer()

    def narrow(self, num_drafted: int) -> Tokens:
        """Give up the drafted tokens of the round but the first so many, and return what is left to read."""
        self._draft.cut(num_drafted)
        self._setup.control.narrow(num_drafted)
        return self._to_read()

    def make_masks(self) -> None:
        """Make what may be drawn at each place; see `Rounds.make_masks`.

        Raises:
            LimitError: the state is beyond a limit of the grammar.
        """
        self._started = clock = time.perf_counter()
        mask_s = self._draft.mask_s
        self._draft.make_masks()
        self._draws.begin(self._places)
        self._made_s = time.perf_counter() - clock
        self._draft.mask_s = mask_s + self._made_s

    def asked(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return those of the hidden states of the pass that logits of all tokens are needed of."""
        return rows_of(self._drawn_from(hidden), self._draws.asked)

    def _drawn_from(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the hidden states of the nodes that something is drawn at: of the prompt only the end is one."""
        num = len(self._places.read)
        return hidden if hidden.shape[0] == num else hidden[-num:]

    def start_draws(self, hidden: torch.Tensor, logits: torch.Tensor) -> None:
        """Start to draw at each place; see `Rounds.start_draws`."""
        self._draws.start(self._drawn_from(hidden), logits)

    def prepare(self, is_done: Callable[[], bool]) -> None:
        """Make masks that the next round may need; see `Rounds.prepare`."""
        if self._ahead is None or self._device_draws is None:
            return
        clock, mask_s = time.perf_counter(), self._draft.mask_s
        for made in self._ahead.make(self._draft, is_done, started=self._started):
            self._device_draws.send(made)
        seconds = time.perf_counter() - clock
        self._made_s += seconds
        self._draft.mask_s = mask_s + seconds

    def end_round(self, times: PassTimes) -> None:
        """Draw from what the target made of the tokens that begin_round gave, and take what is accepted.

        Raises:
            NoLegalTokenError: no legal token has a probability.
        """
        draft = self._draft
        self.trace.add_pass(times.seconds)
        if self._ahead is not None and len(self.trace.drafts):
            self._ahead.add_pass(times.seconds * times.num_rows)
        num_draws = self.trace.num_draws
        path = descend(lambda node: draft.nodes[node].children, self._draw)
        self._settle(draft, path)
        self._add_masks(times.mask_wait_s)
        self.trace.drafted.update(place.drafter for place in draft.places)
        self.trace.accepted.update(draft.nodes[node].place.drafter for node in path)
        self.trace.drafts.append(draft.told_token_ids)
        self._setup.control.record(
            Round(
                num_accepted=sum(node == number for number, node in enumerate(path, 1) if node <= draft.chain_length),
                num_draws=self.trace.num_draws - num_draws,
                token_ids=self.token_ids[draft.num_before :],
                draft_s=self._draft_s,
                width=times.width,
                verify_s=times.seconds,
                num_rows=times.num_rows,
            )
        )

    def _draw(self, node: int) -> int | None:
        """Draw the text's next token at a node, and take it; return None once the text has ended."""
        draft = self._draft
        if self._is_finished:
            return None
        if self._ends_at(draft, node):
            self._finish()
            return None
        clock = time.perf_counter()
        drawn = self._draws.draw(node)
        self.trace.add_draw(time.perf_counter() - clock, drawn.legal_mass_lost)
        if drawn.token_id in self._masks.stop_ids:
            self._finish()
            return None
        self._take(drawn.token_id, node)
        return drawn.token_id

    def _add_masks(self, mask_wait_s: float) -> None:
        """Count what the masks of a round took: those that were made beside a pass were waited for so long."""
        self.trace.add_masks(self._draft.mask_s, wait_s=self._draft.mask_s - self._made_s + mask_wait_s)
        self._made_s = 0.0

    def _ends_at(self, draft: Draft, node: int) -> bool:
        """Say whether the text can only end at a node."""
        here, legal = draft.nodes[node], draft.legal(node)
        self.trace.truncated = self.trace.truncated or legal.is_cut
        if not legal.has_text and not here.may_end:
            raise NoLegalTokenError(draft.describe(node), "no token is legal, and the text may not end here")
        return not legal.has_text

    def _take(self, token_id: int, node: int) -> None:
        """Append a token that was drawn at a node to the text."""
        self._sampler.count(token_id, self._draft.legal(node).free_text_mask)
        self.token_ids.append(token_id)
        self._text.add(self._vocabulary.token_bytes(token_id))
        self._drafting.observe(token_id, self._draft.nodes[node].key)
        if self._ahead is not None:
            self._ahead.observe(token_id)
        if self._text.stopped_by is not None:
            self._close()

    def _settle(self, draft: Draft, path: list[int]) -> None:
        """Bring state and KV cache to the end of the text: whatever was drafted and not drawn is forgotten."""
        draft.move_to(path[-1] if path else ROOT)
        num_known = draft.num_before + len(path)
        clock = time.perf_counter()
        for token_id in self.token_ids[num_known:]:
            self._state.advance(token_id)
        draft.mask_s += time.perf_counter() - clock
        if draft.chain_length < len(draft.nodes) - 1:
            row_of = self._places.row_of
            self._target.keep([0, *(row_of[node] for node in path if node in row_of)])
            return
        num_kept = len(self._request.prompt_token_ids) + num_known
        if num_kept < self._target.num_cached_tokens:
            self._target.crop(num_kept)

    def _finish(self) -> None:
        """End the text where the grammar lets it end."""
        self._text.end()
        self._close()

    def _close(self) -> None:
        """Take no more tokens."""
        self._is_finished = True
        self._drafting.close()
        self.trace.stopped_by = self._text.stopped_by
        self.trace.finish(len(self.token_ids))
