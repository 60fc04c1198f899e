"""What a call returns beside the value: counts, times, the law that was sampled, and a record of the run.

Only what is measured is here; figures per schema field come with what measures them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from structgen.replay_record import ReplayRecord

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Counts, seconds and lost probability of one call, or of one row of a batch.

    The rows of a batch share passes, and the seconds of a pass are divided equally among those that took part. What is
    measured from the start on (ttft_s, tpot_s, total_s) contains what the other rows did meanwhile.

    Attributes:
        law: what the tokens are a sample of, such as "masked target".
        compile_cache: "hit" or "miss" for the compiled output type.
        mode: who made the text: "host" asks the grammar in Python at every token; in "device" mode the GPU draws and
            steps by itself, and the host follows.
        host_mode_because: why it was not device mode, or not to the end of the text; None if it was.
        eager_because: in device mode, why its steps did not run as CUDA graphs; None if they did.
        num_prompt_tokens: tokens of the prompt.
        num_tokens: tokens of the text, the stop token not counted.
        num_target_passes: forward passes of the target model, the prefill included.
        ttft_s: seconds from the start to the first drawn token.
        tpot_s: seconds per further drawn token; 0 if there is none.
        total_s: seconds from the start to the end of decoding.
        prefill_s: seconds in the pass over the prompt; in device mode seconds until it was started, and those of
            capturing the steps where that was not done before.
        verify_s: seconds in the passes after it; in device mode seconds that the host waited for news, all told.
        draft_s: seconds spent on drafting.
        mask_s: seconds spent on making masks and moving the state.
        mask_wait_s: seconds for which no pass was under way because masks were being made, or the state moved: what
            grammars add to the time of a text. On the CPU a pass is over when it returns, so it is all of mask_s. With
            a model on CUDA masks are made beside the pass, and nearly all of mask_s is hidden behind it. In device mode
            it is the time of num_device_waits, in which other rows of a batch go on.
        sample_s: seconds spent on masking, truncating and drawing; with a model on CUDA seconds that the host spent on
            what was drawn, because the draws themselves are part of the pass.
        legal_mass_lost: sum over the measured steps of -log(legal mass), in nats, where the legal mass of a step is the
            probability that the model itself gave to the tokens which the mask allowed. Each term is the divergence
            KL(masked || free) of its step. Nan if the model's logits had a nan on an illegal token.
        min_legal_mass: the smallest legal mass of a measured step, 1 if no step was measured.
        num_steps: draws, that of the stop token included. Where the end was the only choice nothing is drawn. In
            device mode the device may have made some after a stop string; they are in all figures but num_tokens.
        num_device_steps: those of them that the device made by itself, 0 in host mode.
        num_device_waits: how often the device waited in a state that a part (`freeze_part`) did not describe yet, until
            the host had described it; that time is in mask_s and mask_wait_s.
        num_measured_steps: those of num_steps behind legal_mass_lost and min_legal_mass: each one with
            `diagnostics=True`. Without it a step with few legal tokens computes only their logits, and one in 16 is
            measured.
        truncated: whether the budget cut anything: a step's legal tokens, or a text that could have gone on.
        stopped_by: the stop string that ended the text, None if none did.
        drafted: tokens that were drafted and read by the target model, by name of the drafter.
        accepted: those of them that became part of the text.
        record: what is needed to run it again.
    """

    law: str
    compile_cache: str
    mode: Literal["host", "device"]
    host_mode_because: str | None
    eager_because: str | None
    num_prompt_tokens: int
    num_tokens: int
    num_target_passes: int
    ttft_s: float
    tpot_s: float
    total_s: float
    prefill_s: float
    verify_s: float
    draft_s: float
    mask_s: float
    mask_wait_s: float
    sample_s: float
    legal_mass_lost: float
    min_legal_mass: float
    num_steps: int
    num_device_steps: int
    num_device_waits: int
    num_measured_steps: int
    truncated: bool
    stopped_by: str | None
    drafted: dict[str, int]
    accepted: dict[str, int]
    record: ReplayRecord

    def __repr__(self) -> str:
        """Show the figures that one looks at first; the rest are attributes."""
        pace = f"first after {self.ttft_s:.3f} s, then {self.tpot_s * 1e3:.1f} ms each"
        return (
            f"Report({self.law}, {self.num_prompt_tokens} prompt tokens, {self.num_tokens} tokens in "
            f"{self.total_s:.3f} s, {pace}, compile cache {self.compile_cache}"
            f"{', truncated' if self.truncated else ''})"
        )

    @property
    def tokens_per_target_pass(self) -> float:
        """Tokens of the text per forward pass, 0 if there was no pass."""
        return self.num_tokens / self.num_target_passes if self.num_target_passes else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Share of the drafted tokens that were accepted, 0 if none was drafted."""
        num_drafted = sum(self.drafted.values())
        return sum(self.accepted.values()) / num_drafted if num_drafted else 0.0

    @property
    def forced_tokens(self) -> int:
        """Tokens of the text that the output type alone had foreseen: those of ForcedRun that were accepted."""
        return self.accepted.get("ForcedRun", 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Result(Generic[ValueT]):
    """A value, the text it was read from, and how it came about.

    Attributes:
        value: the object.
        text: the text that the model wrote.
        token_ids: its tokens, without the stop token.
        report: counts, times and record.
    """

    value: ValueT
    text: str
    token_ids: tuple[int, ...]
    report: Report

    def __repr__(self) -> str:
        """Show the value and what it took."""
        return f"Result({self.value!r}, {len(self.token_ids)} tokens, {self.report!r})"
