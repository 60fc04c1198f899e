"""The drafters' memories against brute force, and their bounds: in size, between threads, between scopes."""

from __future__ import annotations

import threading
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import structgen as sg
from structgen.decode.drafters.prompt_lookup import EarlierOutputs
from structgen.decode.drafters.state_table import Followers
from structgen.decode.drafters.suffix_automaton import NO_MATCH, SuffixAutomaton
from structgen.drafter import DraftMemories, DraftMemory
from tiny_tokenizer import byte_tokenizer, tiny_llama

texts = st.lists(st.integers(0, 2), max_size=40)


def occurs(part: list[int], text: list[int]) -> list[int]:
    """Return where a part of a text ends, everywhere."""
    return [at for at in range(len(part), len(text) + 1) if text[at - len(part) : at] == part]


@given(texts)
def test_the_longest_end_that_occurred_before_is_found(text: list[int]) -> None:
    """At every place: its length is the brute-force one, and what is said to follow follows an occurrence."""
    automaton, match = SuffixAutomaton(), NO_MATCH
    for number, token_id in enumerate(text):
        match = automaton.follow(match, token_id)
        automaton.append(token_id)
        so_far = text[: number + 1]
        longest = max(
            length for length in range(number + 2) if length == 0 or occurs(so_far[len(so_far) - length :], so_far[:-1])
        )
        assert match.length == longest
        if longest:
            assert automaton.after(match) in occurs(so_far[len(so_far) - longest :], so_far)


@given(texts, texts)
def test_a_match_follows_another_text(text: list[int], other: list[int]) -> None:
    """Walking along another text the match is the longest end of it that occurs, whatever came in between."""
    automaton, match = SuffixAutomaton(), NO_MATCH
    half = len(text) // 2
    for token_id in text[:half]:
        automaton.append(token_id)
    rest = iter(text[half:])
    grown = text[:half]
    for number, token_id in enumerate(other):
        match = automaton.follow(match, token_id)
        so_far = other[: number + 1]
        fits = [n for n in range(len(so_far) + 1) if n == 0 or occurs(so_far[len(so_far) - n :], grown)]
        if number == 0:
            assert match.length == max(fits)
        assert match.length in fits
        if match.length:
            assert automaton.after(match) in occurs(so_far[len(so_far) - match.length :], grown)
        # It grows under the match, as the outputs of other requests do.
        for more in [next(rest, None)]:
            if more is not None:
                automaton.append(more)
                grown = [*grown, more]


def likely(followers: Followers) -> int | None:
    """Return what is drafted at one place."""
    found = followers.likely("here")
    return None if found is None else found.token_id


def test_a_follower_is_likely_from_half_of_the_cases_on() -> None:
    """Never what was not seen; a tie is none; a habit that changes is learnt again."""
    followers = Followers(10)
    assert likely(followers) is None
    followers.add("here", 1)
    assert likely(followers) == 1
    followers.add("here", 2)
    assert likely(followers) is None
    for _ in range(60):
        followers.add("here", 2)
    assert likely(followers) == 2
    for _ in range(70):
        followers.add("here", 3)
    assert likely(followers) == 3


def test_memories_stay_within_their_bounds() -> None:
    """Places, followers of a place, outputs, memories and scopes: the oldest are forgotten."""
    followers = Followers(10)
    for number in range(1000):
        followers.add(number, 1)
        followers.add("here", number)
    assert len(followers) == 10
    outputs = EarlierOutputs(50)
    for number in range(100):
        outputs.add([number] * 20)
        assert len(outputs.automaton.token_ids) <= 52
    outputs.add(list(range(1000)))
    assert len(outputs.automaton.token_ids) <= 51
    memory = DraftMemory()
    assert len({id(memory.of(number, list)) for number in range(100)}) > 16
    assert memory.of(99, list) is memory.of(99, list)
    assert len(memory._kept) == 16
    memories = DraftMemories()
    assert memories.of("a") is memories.of("a") is not memories.of(None)
    for number in range(1000):
        memories.of(str(number))
    assert len(memories._kept) == 64


def test_threads_share_a_table_and_outputs() -> None:
    """Writers and readers side by side: nothing raises, every count arrives."""
    followers, outputs = Followers(100), EarlierOutputs(2000)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(200):
                followers.add("here", 1)
                followers.likely(turn % 7)
                outputs.add([number, turn % 5, turn % 3])
                with outputs.lock:
                    automaton = outputs.automaton
                    automaton.after(automaton.follow(NO_MATCH, number))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert likely(followers) == 1


def test_scopes_do_not_meet() -> None:
    """What one scope wrote is drafted there and in no other, nor by another generator; the texts are the same."""
    model = sg.Model(tiny_llama(), byte_tokenizer())
    remembers = sg.Speculation(drafters=[sg.drafters.StateTable()], adaptive=False)

    def drafted(scope: str | None, output_type: Any = bool) -> int:
        run = model.run(output_type, "x", seed=1, speculation=remembers, scope=scope)
        return sum(run.report.drafted.values())

    assert drafted("a") == 0
    assert drafted("a") > 0
    assert drafted("b") == 0
    assert drafted(None) == 0
    assert drafted(None) > 0
    assert drafted("a", sg.Choice(["true", "false"])) == 0
