"""Drafts from the text itself, by hand."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ggml_py.errors import ModelError
from llama_py.decoding.drafting.drafter import Drafter, DrafterSetting, DraftRequest, drafter
from llama_py.decoding.drafting.drafters.ngram_cache import read_counts
from llama_py.params.speculative import SpeculativeParams

MAP = {"spec_ngram_map_k_size_n": 2, "spec_ngram_map_k_size_m": 3}
MAP_4 = {"spec_ngram_map_k4v_size_n": 2, "spec_ngram_map_k4v_size_m": 2}
MOD = {"spec_ngram_mod_n_match": 2, "spec_ngram_mod_n_max": 4, "spec_ngram_mod_n_min": 2}


def make(name: str, **options: Any) -> Drafter:
    ctx: Any = None
    return drafter(name)(DrafterSetting(ctx, SpeculativeParams(**options)))


def ask(one: Drafter, ids: list[int], n_max: int = 99) -> list[int]:
    array = np.array(ids, np.int32)
    found = one.draft([DraftRequest(0, array, len(ids) - 1, n_max)])
    return list(found.get(0, []))


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([9, 1, 2, 3, 4, 5, 6, 7, 1, 2], [3, 4, 5]),  # three after the pair
        ([9, 1, 2, 3, 4, 5, 1, 2, 7, 8, 6, 1, 2], [7, 8, 6]),  # the last place counts
        ([9, 0, 0, 0, 1, 2, 3, 4, 1, 2], [3, 4, 1]),
        ([9, 0, 0, 0, 5, 1, 2, 3, 1, 2], [3, 1]),  # up to the token before the last
        ([9, 0, 0, 0, 5, 4, 1, 2, 1, 2], []),  # one is too few
        ([1, 2, 3, 4, 5, 6, 7, 8, 1, 2], []),  # not at the very beginning
        ([9, 1, 2, 3, 1, 2], []),  # too short
        ([9, 1, 2, 3, 4, 5, 6, 7, 2, 1], []),
    ],
)
def test_simple(ids: list[int], expected: list[int]) -> None:
    one = make("ngram-simple", spec_ngram_simple_size_n=2, spec_ngram_simple_size_m=3)
    assert ask(one, ids) == expected


def test_map_drafts_what_was_accepted_last() -> None:
    one, text = make("ngram-map-k", **MAP), [9, 1, 2, 3, 4, 5, 6, 7]
    one.begin(0, np.array(text, np.int32))
    assert ask(one, [*text, 1, 2]) == [3, 4, 5]
    one.accept(0, 2, mine=True)
    assert ask(one, [*text, 1, 2, 3, 4, 8, 8, 1, 2]) == [3, 4]
    one.accept(0, 0, mine=False)  # another's draft
    assert ask(one, [*text, 1, 2, 3, 4, 8, 8, 1, 2, 3, 8, 8, 1, 2]) == [3, 4]
    one.accept(0, 0, mine=True)
    assert ask(one, [*text, 1, 2, 3, 4, 8, 8, 1, 2, 3, 8, 8, 1, 2, 6, 6, 1, 2]) == []


def test_map_forgets_what_is_cut_off() -> None:
    one = make("ngram-map-k", **MAP)
    kept = [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0]
    text = [*kept, 11, 12, 13, 14, 15, 16, 0, 0, 0]
    one.begin(0, np.array(text, np.int32))
    assert ask(one, [*text, 11, 12]) == [13, 14, 15]
    one.begin(0, np.array(kept, np.int32))
    other = [*kept, *[20] * 10]
    assert ask(one, [*other, 11, 12]) == []
    assert ask(one, [*other, 8, 7]) == [6, 5, 4]


def test_map_of_several_continuations() -> None:
    one = make("ngram-map-k4v", **MAP_4)
    text = [9, 1, 2, 5, 5, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 0, 0, 0, 0, 0]
    one.begin(0, np.array(text, np.int32))
    assert ask(one, [*text, 1, 2]) == [3, 4]  # three times of four
    text = [9, 1, 2, 5, 5, 1, 2, 3, 4, 1, 2, 7, 7, 0, 0, 0, 0, 0]
    one = make("ngram-map-k4v", **MAP_4)
    assert ask(one, [*text, 1, 2]) == []  # none is frequent enough
    one = make("ngram-map-k4v", **MAP_4, spec_ngram_map_k4v_min_hits=2)
    text = [9, 1, 2, 3, 4, 0, 0, 0, 0, 0]
    assert ask(one, [*text, 1, 2]) == []
    assert ask(one, [*text, 1, 2, 0, 0, 0, 1, 2]) == [3, 4]


def test_mod() -> None:
    one, text = make("ngram-mod", **MOD), [9, 1, 2, 3, 4, 5, 6, 7]
    one.begin(0, np.array(text, np.int32))
    assert ask(one, [*text, 1, 2]) == [3, 4, 5, 6]
    assert ask(one, [*text, 4, 5]) == [6, 7]
    assert ask(one, [*text, 5, 6]) == []  # one is below n_min
    assert ask(one, [*text, 6, 1]) == []
    for _ in range(5):  # poor drafts in turn
        assert ask(one, [*text, 1, 2]) != []
        one.accept(0, 0, mine=True)
    assert ask(one, [*text, 1, 2]) == []


def test_mod_enters_what_was_generated() -> None:
    one, text = make("ngram-mod", **MOD), [9, 8]
    one.begin(0, np.array(text, np.int32))
    later = [*text, 1, 2, 3, 4, 5, *[0] * 40]
    assert ask(one, [*text, 1, 2, 3, 4, 5, 0, 1, 2]) == []  # in chunks
    assert ask(one, [*later, 1, 2]) == [3, 4, 5, 0]
    one.begin(1, np.array([7, 7], np.int32))  # one table for all
    assert list(one.draft([DraftRequest(1, np.array([7, 7, 1, 2], np.int32), 3, 99)])[1])[:2] == [
        3,
        4,
    ]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([5, 1, 2, 3, 9, 5, 1, 2], [3, 9, 5, 1, 2, 3, 9, 5]),  # eight; three tokens, once
        ([1, 2, 3, 9, 1, 2], []),  # once is too rare for two tokens
        ([1, 2, 3, 8, 1, 2, 3, 7, 1, 2], [3, 8, 1, 2, 3, 7, 1, 2]),  # of as many, the first
        ([4, 1, 4, 2, 4, 1, 4], [2, 4, 1, 4, 2, 4, 1, 4]),
        ([4, 1, 9, 4, 2, 8, 4], []),  # a half is too little for one token
        ([4, 1, 9, 4, 2, 8, 4, 1, 7, 4], [1]),  # two thirds
        ([7, 6], []),
    ],
)
def test_cache(ids: list[int], expected: list[int]) -> None:
    found = ask(make("ngram-cache"), ids)
    assert found[: len(expected)] == expected
    assert bool(found) == bool(expected)


def test_cache_counts_what_is_new_with_what_was_before() -> None:
    one = make("ngram-cache")
    text = [5, 1, 2, 3, 9]
    for id in (5, 1, 2):
        text.append(id)
        found = ask(one, text, 2)
    assert found == [3, 9]
    one.begin(0, np.array([5, 1], np.int32))
    assert ask(one, [5, 1, 2], 2) == []


def write(path: Path, counts: dict[tuple[int, ...], dict[int, int]]) -> str:
    data = b""
    for gram, following in counts.items():
        data += struct.pack("<5i", *[*gram, -1, -1, -1][:4], len(following))
        data += b"".join(struct.pack("<2i", *pair) for pair in following.items())
    path.write_bytes(data)
    return str(path)


def test_caches_in_files(tmp_path: Path) -> None:
    dynamic = write(tmp_path / "dynamic", {(7, 8): {1: 3, 2: 1}, (8,): {3: 1}})
    static = write(tmp_path / "static", {(5, 6): {4: 2}, (7, 8): {2: 9}})
    assert read_counts(dynamic) == {(7, 8): {1: 3, 2: 1}, (8,): {3: 1}}
    assert ask(make("ngram-cache", lookup_cache_dynamic=dynamic), [7, 8]) == [1]
    assert ask(make("ngram-cache", lookup_cache_static=static), [5, 6]) == [4]
    both = {"lookup_cache_dynamic": dynamic, "lookup_cache_static": static}
    assert ask(make("ngram-cache", **both), [7, 8]) == [2]  # the corpus says so
    (tmp_path / "dynamic").write_bytes(b"\7\0\0\0")
    with pytest.raises(ModelError, match="lookup cache is truncated"):
        make("ngram-cache", lookup_cache_dynamic=dynamic)
