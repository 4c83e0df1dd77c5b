"""Batches: what is refused, and how they are cut into ubatches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggml_py.errors import ContextError
from llama_py.batch import Batch, UBatch, ubatch_reserve
from llama_py.batch.splitter import BatchSplitter


class At:
    """A memory that holds positions up to `last[s]` of sequence s."""

    def __init__(self, **last: int) -> None:
        self.last = {int(k[1:]): v for k, v in last.items()}

    def seq_pos_min(self, seq_id: int) -> int:
        return 0 if seq_id in self.last else -1

    def seq_pos_max(self, seq_id: int) -> int:
        return self.last.get(seq_id, -1)


def splitter(batch: Batch, **options: Any) -> BatchSplitter:
    return BatchSplitter(batch, **{"n_vocab": 100, "n_embd": 4, "n_seq_max": 4, **options})


def of_seqs(*seqs: int) -> Batch:
    """One token per entry, of that sequence; the token is its index."""
    return Batch(tokens=range(len(seqs)), seq_ids=[[s] for s in seqs])


def tokens_of(ubatches: list[UBatch]) -> list[list[int]]:
    return [[int(t) for t in u.token] for u in ubatches if u.token is not None]


def all_of(split: Any) -> list[UBatch]:
    return list(iter(split, None))


@pytest.mark.parametrize("id", [4, 2**33, 2**62, -1, -(2**40)])
def test_a_sequence_out_of_range_costs_nothing(id: int) -> None:
    with pytest.raises(ContextError, match=rf"sequence must be in \[0, 4\), got {id}"):
        splitter(Batch([1], seq_ids=[(id,)]))


def test_outputs_are_a_list() -> None:
    with pytest.raises(ContextError, match=r"outputs must have shape \[2\], got \[2, 1\]"):
        splitter(Batch([1, 2], outputs=np.ones((2, 1), bool)))


def test_simple_split_takes_tokens_in_order() -> None:
    b = splitter(of_seqs(0, 1, 0, 1, 1))
    ubatches = all_of(lambda: b.split_simple(2))
    assert tokens_of(ubatches) == [[0, 1], [2, 3], [4]]
    assert [u.seq_id_unq for u in ubatches] == [[0, 1], [0, 1], [1]]
    assert [u.n_seqs for u in ubatches] == [2, 2, 1]
    assert not any(u.equal_seqs for u in ubatches)
    assert b.n_used == b.n_tokens


def test_equal_split_is_sequence_major_and_ragged_ends_follow() -> None:
    b = splitter(of_seqs(0, 1, 0, 1, 0, 0))
    ubatches = all_of(lambda: b.split_equal(6, sequential=True))
    assert tokens_of(ubatches) == [[0, 2, 1, 3], [4, 5]]
    first = ubatches[0]
    assert (first.n_seqs, first.n_seq_tokens, first.equal_seqs) == (2, 2, True)
    assert first.pos.tolist() == [0, 1, 0, 1]
    assert first.batch_idxs.tolist() == [0, 2, 1, 3]


def test_equal_split_keeps_within_n_ubatch() -> None:
    b = splitter(of_seqs(0, 1, 2, 0, 1, 2))
    assert tokens_of(all_of(lambda: b.split_equal(2, False))) == [[0, 1], [3, 4], [2, 5]]


def test_sequential_split_wants_consecutive_sequences() -> None:
    b = splitter(of_seqs(0, 2, 3))
    assert tokens_of(all_of(lambda: b.split_equal(8, sequential=True))) == [[0], [1, 2]]
    b = splitter(of_seqs(0, 2, 3))
    assert tokens_of(all_of(lambda: b.split_equal(8, sequential=False))) == [[0, 1, 2]]


def test_seq_split_takes_one_sequence_set_at_a_time() -> None:
    b = splitter(of_seqs(0, 1, 0, 1, 1))
    assert tokens_of(all_of(lambda: b.split_seq(2))) == [[0, 2], [1, 3], [4]]


@pytest.mark.parametrize(
    ("n", "n_ubatch", "tail", "lengths"),
    [
        (10, 8, 4, [6, 4]),  # 8 would leave 2, of which a rollback needs 4
        (12, 8, 4, [8, 4]),
        (9, 9, 4, [9]),
        (19, 16, 9, [10, 9]),
    ],
)
def test_the_tail_of_a_sequence_stays_together(
    n: int, n_ubatch: int, tail: int, lengths: list[int]
) -> None:
    b = splitter(of_seqs(*[0] * n))
    ubatches = all_of(lambda: b.split_equal(n_ubatch, True, tail))
    assert [u.n_tokens for u in ubatches] == lengths


def test_sequences_that_would_break_their_tail_wait() -> None:
    b = splitter(of_seqs(*[0] * 4, *[1] * 6))
    ubatches = all_of(lambda: b.split_equal(8, True, 3))
    assert [(u.seq_id_unq, u.n_tokens) for u in ubatches] == [([0], 4), ([1], 6)]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(4, 12), st.integers(0, 3))
def test_equal_splits_use_every_token_once(seqs: list[int], n_ubatch: int, tail: int) -> None:
    b = splitter(of_seqs(*seqs))
    ubatches = all_of(lambda: b.split_equal(n_ubatch, sequential=False, n_keep_tail=tail))
    used = np.concatenate([u.batch_idxs for u in ubatches])
    assert sorted(used.tolist()) == list(range(len(seqs)))
    for u in ubatches:
        assert u.n_tokens == u.n_seqs * u.n_seq_tokens <= n_ubatch
        assert [s for (s,) in u.seq_id] == np.repeat(
            [s for (s,) in u.seq_id[:: u.n_seq_tokens]], u.n_seq_tokens
        ).tolist()
    for s in set(seqs):
        mine = [i for i in used.tolist() if seqs[i] == s]
        assert mine == sorted(mine)
        if tail:
            last = max(k for k, u in enumerate(ubatches) if (s,) in u.seq_id)
            together = ubatches[last].seq_id.count((s,))
            assert together >= min(tail, seqs.count(s))


def shared(n_shared: int, seqs: list[int]) -> Batch:
    """A token of sequence 2, n_shared of 0 and 1, then one of each of `seqs`."""
    sets, last = [(2,), *[(0, 1)] * n_shared, *((s,) for s in seqs)], [-1] * 3
    pos = []
    for ids in sets:
        pos.append(last[ids[0]] + 1)
        for s in ids:
            last[s] += 1
    return Batch(range(len(sets)), seq_ids=sets, pos=pos)


WAYS: dict[str, Any] = {
    "simple": lambda b: b.split_simple(6),
    "seq": lambda b: b.split_seq(6),
    "equal": lambda b: b.split_equal(6, False),
}


@pytest.mark.parametrize("way", WAYS)
@given(st.integers(0, 4), st.lists(st.integers(0, 2), max_size=20), st.integers(0, 2**25))
def test_no_ubatch_has_two_kinds(way: str, n_shared: int, seqs: list[int], bits: int) -> None:
    b = splitter(shared(n_shared, seqs))
    kinds = np.array([bits >> i & 1 for i in range(b.n_tokens)], np.intp)
    b.set_kinds(kinds)
    ubatches = all_of(lambda: WAYS[way](b))
    used = [int(i) for u in ubatches for i in u.batch_idxs]
    assert sorted(used) == list(range(b.n_tokens))
    for u in ubatches:
        assert {*kinds[u.batch_idxs]} == {u.kind} and u.n_tokens <= 6
    for s in range(3):
        mine = [i for i in used if s in b.seq_id[i]]
        assert mine == sorted(mine)


def test_split_reset_starts_again() -> None:
    b = splitter(of_seqs(0, 0, 1))
    first = tokens_of(all_of(lambda: b.split_equal(2, False)))
    b.split_reset()
    assert tokens_of(all_of(lambda: b.split_equal(2, False))) == first
    b.split_reset()
    assert tokens_of(all_of(lambda: b.split_simple(3))) == [[0, 1, 2]]


def test_positions_go_on_where_the_memory_stands() -> None:
    b = splitter(of_seqs(1, 1, 2), memory=At(s1=6))
    assert b.pos[0].tolist() == [7, 8, 0]


def test_text_positions_repeat_over_the_axes() -> None:
    u = splitter(Batch([5, 6]), n_pos=4, memory=At(s0=2)).split_simple(2)
    assert u is not None
    assert u.pos.tolist() == [3, 4] * 4


def test_the_last_token_is_the_output_unless_told() -> None:
    def outputs(batch: Batch, **options: Any) -> list[bool]:
        return [bool(x) for x in splitter(batch, **options).output]

    assert outputs(Batch([1, 2, 3])) == [False, False, True]
    assert outputs(Batch([1, 2]), outputs="none") == [False, False]
    assert outputs(Batch([1, 2]), outputs="all") == [True, True]
    assert outputs(Batch([1, 2], outputs=[True, False])) == [True, False]
    assert outputs(Batch([1, 2], outputs=[True, False]), output_all=True) == [True, True]


def test_tokens_of_several_sequences() -> None:
    b = splitter(Batch([1, 2, 3], seq_ids=[[0, 1], [1, 0], [0]]))
    ubatches = all_of(lambda: b.split_equal(4, sequential=False))
    assert tokens_of(ubatches) == [[1, 2], [3]]
    assert ubatches[0].seq_id == [(0, 1), (0, 1)]
    assert dict(ubatches[0].by_seq()).keys() == {0, 1}
    with pytest.raises(ContextError, match="kv_unified=True"):
        splitter(Batch([1], seq_ids=[[0, 1]])).split_equal(4, sequential=True)


def test_by_seq_groups_tokens() -> None:
    u = splitter(of_seqs(2, 0, 2)).split_simple(8)
    assert u is not None
    assert {s: list(np.arange(3)[where]) for s, where in u.by_seq()} == {0: [1], 2: [0, 2]}


def test_embeddings_come_in_place_of_tokens() -> None:
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    u = splitter(Batch(embd=rows, seq_ids=[[0], [1], [0]])).split_equal(4, False)
    assert u is not None
    assert u.token is None
    assert u.embd is not None
    assert u.embd[:, 0].tolist() == [0, 4]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (Batch([]), "the batch is empty"),
        (Batch(), "needs tokens or embd"),
        (Batch([1, 100]), r"tokens\[1\] must be in \[0, 100\), got 100"),
        (Batch([-1]), r"tokens\[0\] must be in .*got -1"),
        (Batch([2**70]), "tokens must be integers"),
        (Batch([1.5]), "tokens must be integers"),  # type: ignore[list-item]
        (Batch([1], seq_ids=[[4]]), r"sequence must be in \[0, 4\), got 4"),
        (Batch([1], seq_ids=[[-1]]), r"sequence must be in .*got -1"),
        (Batch([1], seq_ids=[[]]), r"seq_ids\[0\] is empty"),
        (Batch([1, 2], seq_ids=[[0]]), "seq_ids must have 2 entries, one per token, got 1"),
        (Batch([1, 2], outputs=[True]), "outputs must have 2 entries, one per token, got 1"),
        (Batch([1, 2], pos=[0]), "pos must have 2 entries, one per token, got 1"),
        (Batch([1, 2], pos=[0, 2]), r"positions of sequence 0 must not have a gap, got \[0, 2\]"),
        (Batch([1, 2], pos=[1, 0]), "decrease"),
        (Batch([1], pos=[-1]), r"pos\[0\] must be in .*got -1"),
        (Batch(embd=np.zeros((2, 3), np.float32)), r"embd must have shape \[2, 4\], got \[2, 3\]"),
    ],
)
def test_refused(batch: Batch, message: str) -> None:
    with pytest.raises(ContextError, match=message):
        splitter(batch)


def test_a_batch_must_follow_the_memory() -> None:
    with pytest.raises(ContextError, match=r"ends at position 6 .* position 7, got 9"):
        splitter(Batch([1], pos=[9]), memory=At(s0=6))
    with pytest.raises(ContextError, match="a position above 6, got 6"):
        splitter(Batch([1], pos=[6]), n_pos=4, memory=At(s0=6))
    splitter(Batch([1], pos=[9]), n_pos=4, memory=At(s0=6))  # several axes: gaps are allowed
    with pytest.raises(ContextError, match=r"0 and 1 .* diverged: .*\[0, 3\] and \[0, 4\]"):
        splitter(Batch([1], pos=[5], seq_ids=[[0, 1]]), memory=At(s0=3, s1=4), n_pos=4)


def test_reserved_ubatch() -> None:
    u = ubatch_reserve(3, 2, n_pos=4)
    assert (u.n_tokens, u.n_seqs_unq, u.pos.size) == (6, 2, 24)
    assert u.n_seq_id == [1] * 6
