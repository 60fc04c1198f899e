"""The disk cache: a hit equals a build, damage is repaired, another tokenizer is another file."""

import os
import threading
import time
from dataclasses import fields

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models

from structgen import array_store, vocabulary_cache
from structgen.token_bytes import TokenTable
from structgen.vocabulary import Vocabulary

TABLE = TokenTable((b"a", b"", b"ab", b"\x00\xff", b"a", b""), frozenset([1, 5]), num_added=1, num_undecodable=0)
KEY = "the key"


def build():
    """Return a small table."""
    return TABLE


def never():
    """Fail: the file should have been used."""
    raise AssertionError("built again")


def same(found):
    """Say whether a loaded pair is what TABLE gives."""
    table, trie = found
    expected = vocabulary_cache.load_or_build(None, KEY, build)[1]
    return table == TABLE and all(
        np.array_equal(getattr(trie, item.name), getattr(expected, item.name))
        and getattr(trie, item.name).dtype == getattr(expected, item.name).dtype
        and not getattr(trie, item.name).flags.writeable
        for item in fields(trie)
    )


def test_second_load_reads_the_file(tmp_path):
    """The table and every array come back as they were, without a build."""
    folder = tmp_path / "made" / "when needed"
    assert same(vocabulary_cache.load_or_build(folder, KEY, build))
    assert same(vocabulary_cache.load_or_build(folder, KEY, never))
    assert len(list(folder.glob("*.arrays"))) == 1
    assert {path.name for path in folder.iterdir()} <= {".lock", *(path.name for path in folder.glob("*.arrays"))}


def test_no_folder_writes_nothing(tmp_path, monkeypatch):
    """None switches the cache off, also for a whole vocabulary."""
    monkeypatch.setattr(vocabulary_cache, "user_folder", lambda: tmp_path)
    Vocabulary.from_tokenizer(small_tokenizer(), cache_dir=None)
    assert list(tmp_path.iterdir()) == []
    Vocabulary.from_tokenizer(small_tokenizer())
    assert len(list(tmp_path.glob("*.arrays"))) == 1


def test_any_damage_is_repaired(tmp_path):
    """A file that is cut anywhere, or has a byte changed anywhere, gives the same arrays or is rebuilt."""
    vocabulary_cache.load_or_build(tmp_path, KEY, build)
    (path,) = tmp_path.glob("*.arrays")
    good = path.read_bytes()
    rebuilt = 0
    for position in range(0, len(good), 29):
        for bad in (good[:position], good[:position] + bytes([good[position] ^ 0x15]) + good[position + 1 :]):
            path.write_bytes(bad)
            calls = []
            assert same(vocabulary_cache.load_or_build(tmp_path, KEY, lambda calls=calls: calls.append(1) or TABLE))
            rebuilt += len(calls)
            assert same(vocabulary_cache.load_or_build(tmp_path, KEY, never))
    assert rebuilt > len(good) // 29


def test_the_stored_key_is_compared(tmp_path):
    """A file under the right name with another key is not used."""
    vocabulary_cache.load_or_build(tmp_path, "another key", build)
    (other,) = tmp_path.glob("*.arrays")
    vocabulary_cache.load_or_build(tmp_path, KEY, build)
    (mine,) = set(tmp_path.glob("*.arrays")) - {other}
    other.replace(mine)
    calls = []
    vocabulary_cache.load_or_build(tmp_path, KEY, lambda: calls.append(1) or TABLE)
    assert calls == [1]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, caplog):
    """The vocabulary is built all the same, and the log says that it was not kept."""
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    assert same(vocabulary_cache.load_or_build(blocked, KEY, build))
    assert "not kept" in caplog.text


def test_threads_build_once(tmp_path):
    """Eight at once: one builds, the others wait and read."""
    calls, results = [], []

    def slow_build():
        calls.append(1)
        time.sleep(0.2)  # long enough for the others to find no file yet
        return TABLE

    def work():
        results.append(vocabulary_cache.load_or_build(tmp_path, KEY, slow_build))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert all(map(same, results))
    assert calls == [1]


def test_only_the_files_used_last_are_kept(tmp_path, monkeypatch):
    """Beyond the bound the file that was read longest ago goes."""
    vocabulary_cache.load_or_build(tmp_path, "one", build)
    (one,) = tmp_path.glob("*.arrays")
    monkeypatch.setattr(vocabulary_cache, "_MAX_BYTES", 5 * one.stat().st_size // 2)
    vocabulary_cache.load_or_build(tmp_path, "two", build)
    for path in tmp_path.glob("*.arrays"):
        os.utime(path, (1000, 1000) if path == one else (2000, 2000))
    vocabulary_cache.load_or_build(tmp_path, "one", never)
    vocabulary_cache.load_or_build(tmp_path, "three", build)
    vocabulary_cache.load_or_build(tmp_path, "one", never)
    calls = []
    vocabulary_cache.load_or_build(tmp_path, "two", lambda: calls.append(1) or TABLE)
    assert calls == [1]


def test_a_table_of_other_code_is_not_used(tmp_path, monkeypatch):
    """After a change in how tokens are read, the table is read from the tokenizer again."""
    assert same(vocabulary_cache.load_or_build(tmp_path, KEY, build))
    monkeypatch.setattr(array_store, "source_digest", lambda *parts: "of a later version")
    calls = []
    assert same(vocabulary_cache.load_or_build(tmp_path, KEY, lambda: calls.append(1) or TABLE))
    assert calls == [1]


def small_tokenizer(**extra):
    """Make a byte-level tokenizer of a few pieces."""
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1, **extra}, []))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def test_key_follows_what_tokens_mean():
    """Padding and truncation, which calls of a tokenizer change, are no part of it; every piece and token is."""
    tokenizer = small_tokenizer()
    keys = [vocabulary_cache.cache_key(tokenizer.to_str())]
    tokenizer.enable_padding(pad_token='","added_tokens":')
    tokenizer.enable_truncation(8)
    assert vocabulary_cache.cache_key(tokenizer.to_str()) == keys[0]
    tokenizer.add_special_tokens(["</s>"])
    keys += [vocabulary_cache.cache_key(t.to_str()) for t in (tokenizer, small_tokenizer(c=2), small_tokenizer(c=3))]
    assert len(set(keys)) == 4


def test_key_of_another_order_uses_the_whole_text():
    """Text before the added tokens that is not known to be volatile counts."""
    first = '{"model":{"vocab":{"a":0}},"added_tokens":[]}'
    second = '{"model":{"vocab":{"b":0}},"added_tokens":[]}'
    assert vocabulary_cache.cache_key(first) != vocabulary_cache.cache_key(second)


def test_vocabulary_from_the_cache_is_the_same(tmp_path):
    """Bytes, stops, encoding and digest do not depend on where the arrays came from."""
    tokenizer = small_tokenizer()
    tokenizer.add_special_tokens(["</s>"])
    made, read = (Vocabulary.from_tokenizer(tokenizer, cache_dir=tmp_path, stop_ids=[2]) for _ in range(2))
    plain = Vocabulary.from_tokenizer(tokenizer, cache_dir=None, stop_ids=[2])
    assert made == read == plain
    assert read.encode(b"abba") == plain.encode(b"abba") == [0, 1, 1, 0]
    assert read.stop_ids == (2,)
    assert len(list(tmp_path.glob("*.arrays"))) == 1


@pytest.mark.parametrize("stop_ids", [[0], [1]])
def test_stop_ids_are_not_kept(tmp_path, stop_ids):
    """A stop of one request does not reach the next one through the file."""
    Vocabulary.from_tokenizer(small_tokenizer(), cache_dir=tmp_path, stop_ids=stop_ids)
    plain = Vocabulary.from_tokenizer(small_tokenizer(), cache_dir=tmp_path)
    assert plain.stop_ids == ()
    assert [plain.token_bytes(i) for i in range(2)] == [b"a", b"b"]
