"""Which pools of tokens there are, and whose keys are made anew."""

from __future__ import annotations

import numpy as np
import pytest

from ggml_py.backend.registry import device
from llama_py.batch import UBatch
from llama_py.memory.kpool import KPoolCache, PoolPlan, pool_pad
from llama_py.memory.kv_slots import CellLayout
from llama_py.memory.kv_tensors import KVLayer

POOL = 4


def cache(unified: bool = True) -> KPoolCache:
    layers = [KVLayer(0, 1, 12, 0, device("ref"))]
    return KPoolCache(POOL, layers, CellLayout(64, 3, unified), scored=True)


def ubatch(seq_id: int, *pos: int) -> UBatch:
    n = len(pos)
    return UBatch(
        True,
        n,
        n,
        1,
        1,
        np.zeros(n, np.int32),
        None,
        np.array(pos, np.int32),
        [(seq_id,)] * n,
        [seq_id],
        np.zeros(n, np.bool_),
        np.arange(n, dtype=np.intp),
    )


def added(kv: KPoolCache, seq_id: int, *pos: int) -> tuple[UBatch, PoolPlan]:
    one = ubatch(seq_id, *pos)
    mctx = kv.place([one])
    mctx.apply()
    return one, mctx.plan


def test_pools_begin_with_the_first_position() -> None:
    kv = cache()
    _, plan = added(kv, 0, *range(3, 14))
    seq = plan.seqs[0]
    assert seq.ends(POOL).tolist() == [6, 10]
    assert seq.members(POOL).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert plan.is_new.tolist() == [True, True]


def test_a_pool_with_a_gap_is_none() -> None:
    kv = cache()
    _, plan = added(kv, 0, 0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11)
    assert plan.seqs[0].ends(POOL).tolist() == [3, 11]


def test_only_a_token_s_own_pool_is_made() -> None:
    kv = cache()
    added(kv, 0, *range(7))
    _, plan = added(kv, 0, 7)
    assert plan.is_new.tolist() == [False, True]
    _, plan = added(kv, 0, 8)
    assert plan.is_new.tolist() == [False, False]
    assert plan.n_new == 1  # of no pool, so that the graph stays the same


def test_what_comes_after_a_change_is_made_anew() -> None:
    kv = cache()
    added(kv, 0, *range(16))
    kv.seq_rm(0, 6)
    assert added(kv, 0, *range(6, 13))[1].is_new.tolist() == [False, True, True]
    kv.seq_add(0, 8, -1, 3)
    kv.seq_add(0, 11, -1, -3)
    assert added(kv, 0, 13)[1].is_new.tolist() == [False, False, True]
    kv.seq_rm(0, 0, 1)  # pools begin elsewhere
    assert added(kv, 0, 14)[1].is_new.tolist() == [True, True, True]
    kv.clear()
    assert added(kv, 0, *range(4))[1].is_new.tolist() == [True]


def test_what_was_not_computed_is_made_by_the_next() -> None:
    kv = cache()
    added(kv, 0, *range(9))
    kv.seq_rm(0, 8)
    kv.seq_add(0, 2, -1, 1)
    kv.seq_add(0, 3, -1, -1)
    lost, plan = added(kv, 1, 0)
    assert plan.is_new.tolist() == [True, True]
    kv.discard(lost)
    assert added(kv, 1, 0)[1].is_new.tolist() == [True, True]
    assert added(kv, 1, 1)[1].is_new.tolist() == [False, False]


@pytest.mark.parametrize("unified", [True, False])
def test_of_shared_cells_nothing_is_kept(unified: bool) -> None:
    kv = cache(unified)
    added(kv, 0, *range(9))
    kv.seq_cp(0, 1)
    _, plan = added(kv, 1, 9)
    assert plan.safe != unified and plan.is_new.tolist() == [True] * 4
    kv.seq_rm(1)
    _, plan = added(kv, 0, 9)
    assert plan.safe and plan.is_new.tolist() == ([True] * 2 if unified else [False] * 2)


def test_there_is_always_one_that_is_not_used() -> None:
    assert [pool_pad(n) for n in (0, 63, 64, 127, 128)] == [64, 64, 128, 128, 192]
