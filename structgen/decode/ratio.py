"""Block verification of a drafted chain in the loop: laws from logits, coins, and the draws that come of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from structgen.decode.acceptance import BlockVerification, FloatArray, draw_from, law_of, verify_block
from structgen.decode.draft import Draft
from structgen.decode.sampler import Draw, Sampler, Step
from structgen.errors import NoLegalTokenError


def decide_by_ratio(
    draft: Draft,
    logits: Sequence[torch.Tensor],
    sampler: Sampler,
    coins: Callable[[], float],
    step_at: Callable[[Draft, int], Step],
) -> Mapping[int, Draw]:
    """Return what is drawn at each node of a chain that is reached.

    Args:
        draft: a chain; tokens that were named and not drawn have a law that is certain of them.
        logits: (width,) of all tokens for each node but an end.
        sampler: that of the text, left as it is.
        coins: gives uniform numbers in [0, 1), independent of those that the draft was drawn with.
        step_at: where the draw at a node takes place.
    """
    verification, lost = verify_chain(draft, logits, sampler, step_at)
    drafted = draft.nodes[1:]
    num_accepted = verification.num_accepted([coins() for _ in verification.thresholds])
    draws = {number: Draw(drafted[number].token_id, lost[number]) for number in range(num_accepted)}
    if num_accepted < len(lost):
        draws[num_accepted] = Draw(draw_from(verification.laws[num_accepted], coins()), lost[num_accepted])
    return draws


def verify_chain(
    draft: Draft, logits: Sequence[torch.Tensor], sampler: Sampler, step_at: Callable[[Draft, int], Step]
) -> tuple[BlockVerification, Sequence[float | None]]:
    """Compare a chain with the target's laws along it; return also -log of the legal mass of each row."""
    # Its counts run along the draft, so that the penalties of each row see the tokens before it.
    sampler = sampler.fork()
    drafted = draft.nodes[1:]
    target_laws: list[FloatArray] = []
    lost: list[float | None] = []
    for number, row in enumerate(logits):
        step = step_at(draft, number)
        try:
            processed, legal_mass_lost = sampler.process(row, step)
        except NoLegalTokenError:
            if number == 0:
                raise
            # Here no text goes on, but it need not come here: the chain ends before this row, as its tokens decide.
            # Where all of them are accepted, the loop draws from the row itself and raises.
            drafted = drafted[:number]
            break
        target_laws.append(law_of(processed, sampler.temperature))
        lost.append(legal_mass_lost)
        if number < len(drafted):
            sampler.count(drafted[number].token_id, step.free_text_mask)
    size = len(target_laws[0])
    if len(target_laws) == len(drafted):
        # Nothing is drawn after an end, nor here where nothing has a probability.
        target_laws.append(np.zeros(size))
    draft_laws = [_certain(node.token_id, size) if node.draft_law is None else node.draft_law for node in drafted]
    token_ids = [node.token_id for node in drafted]
    return verify_block(np.stack(target_laws), np.stack(draft_laws), token_ids), lost


def _certain(token_id: int, size: int) -> FloatArray:
    law = np.zeros(size)
    law[token_id] = 1.0
    return law
