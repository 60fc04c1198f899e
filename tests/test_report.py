"""What a call returns, printed: short, and what one looks at first."""

from __future__ import annotations

import structgen as sg
from tiny_tokenizer import byte_tokenizer, tiny_llama


def test_reprs_hold_no_tables() -> None:
    """A prompt of a thousand tokens does not fill the screen; the value and the figures are there."""
    result = sg.Model(tiny_llama(), byte_tokenizer()).run(bool, "x" * 1000, seed=1)
    report = result.report

    assert len(report.record.prompt_token_ids) > 1000
    assert f"seed=1, {report.record.sampling!r}, max_tokens=512, " in repr(report.record)
    assert f"{report.num_prompt_tokens} prompt tokens, {report.num_tokens} tokens in {report.total_s:.3f} s" in repr(
        report
    )
    assert repr(result) == f"Result({result.value}, {report.num_tokens} tokens, {report!r})"
    assert max(map(len, map(repr, (report.record, result, report)))) < 500
