"""The memo of values that threads share: made once, side by side, bounded, nothing left behind."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from structgen.grammar.memo import Memo


def test_a_value_is_made_once_by_threads_that_want_it_at_once() -> None:
    """Eight threads ask while the value is being made: all get the one object."""
    memo: Memo[str, object] = Memo(4)
    started, go_on = threading.Event(), threading.Event()
    calls = []

    def make() -> object:
        calls.append(1)
        started.set()
        assert go_on.wait(30)
        return object()

    with ThreadPoolExecutor(8) as pool:
        results = [pool.submit(memo.get, "key", make) for _ in range(8)]
        assert started.wait(30)
        go_on.set()
        values = [result.result(30) for result in results]

    assert calls == [1]
    assert all(value is values[0] for value in values)


def test_other_keys_do_not_wait() -> None:
    """Two values are made at the same time: each waits for the other to have begun."""
    memo: Memo[int, int] = Memo(4)
    both = threading.Barrier(2)

    def make() -> int:
        return both.wait(30)

    with ThreadPoolExecutor(2) as pool:
        values = [pool.submit(memo.get, key, make) for key in range(2)]
        assert sorted(value.result(30) for value in values) == [0, 1]


def test_the_value_used_longest_ago_goes() -> None:
    """A memo of two keeps the two that were asked for last."""
    memo: Memo[str, str] = Memo(2)
    made = []

    def get(key: str) -> str:
        return memo.get(key, lambda: made.append(key) or key.upper())

    assert [get(key) for key in "abacabbc"] == list("ABACABBC")
    assert made == list("abcbc")  # c drives out b, not a, which was asked for after it; then b drives out c
    assert len(memo) == 2


def test_a_failure_is_not_kept() -> None:
    """What make raises reaches the caller, and the next one tries again."""
    memo: Memo[str, int] = Memo(2)

    with pytest.raises(ZeroDivisionError):
        memo.get("key", lambda: 1 // 0)

    assert len(memo) == 0
    assert memo.get("key", lambda: 7) == 7
