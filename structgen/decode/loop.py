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
from structgen.decode.draft import ROOT, Draft, Masks, Node
from structgen.decode.drafting import Coins, Drafting, SpeculationSetup
from structgen.decode.legal_rows import MEASURED_EVERY, LegalRows, NodeLogits
from structgen.decode.ratio import decide_by_ratio
from structgen.decode.rounds import SharedPass, make_round, wait_for
from structgen.decode.sampler import Draw, Sampler, Step
from structgen.decode.state import DecodeState
from structgen.decode.target import Target, TokenIds, Tokens
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
        self._rows = LegalRows(target)
        self._text = GrowingText(request.stop)
        self._is_finished = False
        self._draft: Draft
        self._lists: Sequence[TokenIds | None] = ()
        self._row_of: Mapping[int, int] = {}
        self._draft_s: Mapping[str, float] = {}
        self.token_ids: list[int] = []
        self.trace = Trace(num_prompt_tokens=len(request.prompt_token_ids))
        self._sampler = Sampler(request.sampling, seed=request.seed, vocabulary_size=vocabulary.size)
        self._coins = Coins(request.seed, request.stream)
        known = DraftRequest(
            prompt_token_ids=request.prompt_token_ids, vocabulary=vocabulary, memory=self._setup.memory
        )
        self._drafting = Drafting(self._setup, known, self._sampler, self._coins)

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
        if self._ends_at(draft, ROOT):
            self.trace.mask_s += draft.mask_s
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
        draft = self._draft
        read, drafted = draft.read_nodes, draft.read_token_ids
        self._row_of = {node: row for row, node in enumerate(read)}
        nodes = [draft.nodes[node] for node in read]
        self._lists = self._rows.lists(nodes, all_whole=self._decides_by_ratio(draft))
        if self.token_ids:
            parents = [-1, *(self._row_of[node.parent] for node in nodes[1:])]
            is_chain = parents == list(range(-1, len(drafted)))
            return Tokens([self.token_ids[-1], *drafted], None if is_chain else parents)
        prompt = self._request.prompt_token_ids
        return Tokens([*prompt, *drafted], num_prompt_tokens=len(prompt))

    def offer(self) -> Offer | None:
        """Return what the drafted tokens of the round are worth, None if they are to be read whatever they cost."""
        return self._setup.control.offer()

    def narrow(self, num_drafted: int) -> Tokens:
        """Give up the drafted tokens of the round but the first so many, and return what is left to read."""
        self._draft.cut(num_drafted)
        self._setup.control.narrow(num_drafted)
        return self._to_read()

    def asked(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return those of the hidden states of the pass that logits of all tokens are needed of."""
        numbers = [number for number, legal in enumerate(self._lists) if legal is None]
        return self._drawn_from(hidden)[numbers]

    def _drawn_from(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the hidden states of the nodes that something is drawn at: of the prompt only the end is one."""
        return hidden[len(hidden) - len(self._lists) :]

    def end_round(self, hidden: torch.Tensor, started: float, shared: SharedPass | None = None) -> None:
        """Draw from what the target made of the tokens that begin_round gave, and take what is accepted.

        Args:
            hidden: (tokens, hidden_size) of the pass.
            started: time.perf_counter() before what this text alone has to pay: the pass where it had one of its own.
            shared: what it has of a pass that it shared with others; None makes the logits here.

        Raises:
            NoLegalTokenError: no legal token has a probability.
        """
        draft, hidden_at = self._draft, self._drawn_from(hidden)
        # In a shared pass the logits of all tokens are there already.
        whole = self._rows.whole(self.asked(hidden)) if shared is None else shared.logits
        known = self._rows.logits(hidden_at, self._lists, whole)
        wait_for(hidden)
        verify_s = time.perf_counter() - started + (0.0 if shared is None else shared.seconds)
        self.trace.add_pass(verify_s)
        num_draws = self.trace.num_draws
        path = descend(lambda node: draft.nodes[node].children, self._draws(draft, known, hidden_at))
        self._settle(draft, path)
        self.trace.mask_s += draft.mask_s
        self.trace.drafted.update(place.drafter for place in draft.places)
        self.trace.accepted.update(draft.nodes[node].place.drafter for node in path)
        self.trace.drafts.append(draft.told_token_ids)
        self._setup.control.record(
            Round(
                num_accepted=sum(node == number for number, node in enumerate(path, 1) if node <= draft.chain_length),
                num_draws=self.trace.num_draws - num_draws,
                token_ids=self.token_ids[draft.num_before :],
                draft_s=self._draft_s,
                width=len(hidden) if shared is None else shared.width,
                verify_s=verify_s,
                num_rows=1 if shared is None else shared.num_rows,
            )
        )

    def _decides_by_ratio(self, draft: Draft) -> bool:
        return self._sampler.temperature > 0 and draft.is_drawn

    def _draws(self, draft: Draft, known: Sequence[NodeLogits], hidden: torch.Tensor) -> Callable[[int], int | None]:
        """Return what draws the text's next token at a node, and takes it; None once the text has ended."""
        decided: Mapping[int, Draw] = {}
        if self._decides_by_ratio(draft):
            rows = [here.logits for here in known]
            decided = decide_by_ratio(draft, rows, self._sampler, self._coins, self._step_at)

        def draw(node: int) -> int | None:
            if self._is_finished:
                return None
            if self._ends_at(draft, node):
                self._finish()
                return None
            clock = time.perf_counter()
            row = self._row_of[node]
            logits, token_ids = known[row]
            drawn = decided.get(node) or self._sampler.draw(logits, self._step_at(draft, node, token_ids))
            legal_mass_lost = drawn.legal_mass_lost
            if token_ids is not None and self._is_measured(draft.num_before + draft.nodes[node].depth):
                legal_mass_lost = self._sampler.legal_mass_lost(self._rows.whole(hidden[row : row + 1])[0], token_ids)
            self.trace.add_draw(time.perf_counter() - clock, legal_mass_lost)
            if drawn.token_id in self._masks.stop_ids:
                self._finish()
                return None
            self._take(drawn.token_id, draft.nodes[node])
            return drawn.token_id

        return draw

    def _is_measured(self, number: int) -> bool:
        """Say whether the legal mass of a draw is measured though the draw does not need it."""
        return self._request.diagnostics or number % MEASURED_EVERY == 0

    def _step_at(self, draft: Draft, node: int, token_ids: TokenIds | None = None) -> Step:
        """Return where a draw at a node takes place, with the tokens that its logits are of."""
        here = draft.nodes[node]
        return Step(
            token_ids=token_ids,
            mask=here.mask,
            free_text_mask=here.free_text_mask,
            position=len(self._request.prompt_token_ids) + draft.num_before + here.depth,
            stream=self._request.stream,
            describe=lambda: draft.describe(node),
        )

    def _ends_at(self, draft: Draft, node: int) -> bool:
        """Say whether the text can only end at a node."""
        here = draft.nodes[node]
        self.trace.truncated = self.trace.truncated or here.is_cut
        if here.is_end and not draft.may_end(node):
            raise NoLegalTokenError(draft.describe(node), "no token is legal, and the text may not end here")
        return here.is_end

    def _take(self, token_id: int, here: Node) -> None:
        """Append a token that was drawn at a node to the text."""
        self._sampler.count(token_id, here.free_text_mask)
        self.token_ids.append(token_id)
        self._text.add(self._vocabulary.token_bytes(token_id))
        self._drafting.observe(token_id, here.key)
        if self._text.stopped_by is not None:
            self._close()

    def _settle(self, draft: Draft, path: list[int]) -> None:
        """Bring state and KV cache to the end of the text: whatever was drafted and not drawn is forgotten."""
        draft.move_to(path[-1] if path else ROOT)
        num_known = draft.num_before + len(path)
        clock = time.perf_counter()
        for token_id in self.token_ids[num_known:]:
            self._state.advance(token_id)
        self.trace.mask_s += time.perf_counter() - clock
        if draft.chain_length < len(draft.nodes) - 1:
            self._target.keep([0, *(self._row_of[node] for node in path if node in self._row_of)])
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
