"""Recurrent memory: which rows states live in, copy on write, rollback, and the hybrid of both.
One file: every test is of the same memory, through the helpers at the top."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggml_py.backend import get_tensor, set_tensor
from ggml_py.errors import BackendError, ContextError
from llama_py.batch import Batch, UBatch
from llama_py.batch.splitter import BatchSplitter
from llama_py.memory import KVCache, MemoryGroup, RecurrentMemory, recurrent
from llama_py.memory.kv_slots import CellLayout
from llama_py.memory.kv_tensors import KVLayer
from llama_py.memory.recurrent import RecurrentContext, StateLayer
from llama_py.memory.recurrent_cells import steps_of_one
from llama_py.memory.specs import StateSpec
from tests.support.host_device import HostDevice

DEVICE = HostDevice()


def memory(size: int = 4, n_rs_seq: int = 0) -> RecurrentMemory:
    layers = [StateLayer(il, DEVICE, StateSpec(3, 5)) for il in (1, 3)]
    return RecurrentMemory(layers, size=size, n_rs_seq=n_rs_seq)


def hybrid(n_seq_max: int = 4, kv_size: int = 16, n_rs_seq: int = 0) -> MemoryGroup:
    layers = [KVLayer(0, 1, 4, 4, DEVICE)]
    kv = KVCache(layers, CellLayout(kv_size, n_seq_max, unified=True))
    return MemoryGroup({"kv": kv}, memory(n_seq_max, n_rs_seq), {0: "kv"})


def start(mem: Any, seq_ids: list[list[int]], n_seq_max: int = 4) -> Any:
    """The places of a batch in a group, or in recurrent memory alone."""
    b = Batch(tokens=[1] * len(seq_ids), seq_ids=seq_ids)
    splitter = BatchSplitter(b, n_vocab=8, n_embd=4, n_seq_max=n_seq_max, memory=mem)
    if isinstance(mem, MemoryGroup):
        return mem.init_batch(splitter, 64)
    return MemoryGroup({}, mem, {}).init_batch(splitter, 64).states(RecurrentContext)


def compute(mem: RecurrentMemory, ctx: RecurrentContext) -> None:
    """What a graph does with the rows: a state is the list of its tokens' positions, as a number
    1pp... in base 100, so that it can be seen where it came from."""
    u = ctx.get_ubatch()
    for t in mem.all_tensors():
        rows = get_tensor(t)[0, 0]
        if ctx.get_rs_z() >= 0:
            rows[ctx.get_rs_z()] = rows[ctx.get_rs_z()] * 0
        read = rows[[ctx.s_copy(i) for i in range(ctx.get_n_rs())]]
        head = ctx.get_head()
        rows[head : head + ctx.get_n_rs()] = read
        for s in range(u.n_seqs):
            state = read[s].copy()
            for i in range(u.n_seq_tokens):
                state = step(state, int(u.pos[s * u.n_seq_tokens + i]))
                back = u.n_seq_tokens - 1 - i
                if back <= mem.n_rs_seq:
                    rows[back * mem.size + head + s] = state
        set_tensor(t, rows)


def step(state: Any, pos: int) -> Any:
    return (state * 31 + pos + 1) % 65521


def decode(mem: Any, *seqs: int | list[int]) -> list[UBatch]:
    """Tokens of these sequences, through all ubatches."""
    ctx = start(mem, [[s] if isinstance(s, int) else s for s in seqs])
    done = []
    while True:
        ctx.apply()
        if isinstance(mem, MemoryGroup):
            compute(mem.recr, ctx.states(RecurrentContext))
        else:
            compute(mem, ctx)
        done.append(ctx.get_ubatch())
        if not ctx.next():
            return done


def state(mem: RecurrentMemory, seq_id: int) -> set[float]:
    """All values of a sequence's state: one, if all was kept together."""
    cell = mem.cells[seq_id].tail
    row = mem.rs_idx[seq_id] * mem.size + cell
    return {float(x) for t in mem.all_tensors() for x in get_tensor(t)[0, 0, row]}


def of(*positions: int) -> set[float]:
    """The state after these positions, from nothing."""
    x = np.float32(0)
    for p in positions:
        x = step(x, p)
    return {float(x)}


def check(mem: RecurrentMemory) -> None:
    """Cells and tails agree."""
    for s in range(mem.size):
        holders = [i for i, c in enumerate(mem.cells) if s in c.seq_id]
        assert holders == ([] if mem.cells[s].tail < 0 else [mem.cells[s].tail])
    for c in mem.cells:
        assert (c.pos >= 0) == bool(c.seq_id)
    assert mem.used == sum(1 for c in mem.cells if c.seq_id)


def test_a_new_sequence_starts_from_zero() -> None:
    mem = memory()
    ctx = start(mem, [[0], [0]])
    ctx.apply()
    assert (ctx.get_head(), ctx.get_n_rs(), ctx.get_rs_z(), ctx.s_copy(0)) == (0, 1, 0, 0)
    ctx = start(mem, [[0]])
    ctx.apply()
    assert (ctx.get_head(), ctx.get_n_rs(), ctx.get_rs_z(), ctx.s_copy(0)) == (0, 1, -1, 0)
    assert mem.seq_pos_max(0) == 2
    check(mem)


def test_states_follow_their_sequences() -> None:
    mem = memory()
    decode(mem, 0, 0, 2)
    decode(mem, 2, 0, 1)
    decode(mem, 1, 2)
    assert state(mem, 0) == of(0, 1, 2)
    assert state(mem, 1) == of(0, 1)
    assert state(mem, 2) == of(0, 1, 2)
    check(mem)


def test_sequences_of_a_ubatch_are_made_neighbours() -> None:
    mem = memory()
    for s in range(4):
        decode(mem, s)
    ctx = start(mem, [[1], [2]])
    ctx.apply()
    assert (ctx.get_head(), ctx.get_n_rs()) == (1, 2)
    compute(mem, ctx)
    decode(mem, 3, 0, 1)
    assert [state(mem, s) for s in range(4)] == [of(0, 1), of(0, 1, 2), of(0, 1), of(0, 1)]


def test_states_in_between_are_moved() -> None:
    hyb = hybrid()
    for s in range(3):
        decode(hyb, s)
    mem = hyb.recr
    ctx = start(hyb, [[0], [2]])
    ctx.apply()
    rec = ctx.states(RecurrentContext)
    assert (rec.get_head(), rec.get_n_rs()) == (0, 3)
    assert [rec.s_copy(i) for i in range(3)] == [0, 2, 1]
    compute(mem, rec)
    assert [state(mem, s) for s in range(3)] == [of(0, 1), of(0), of(0, 1)]
    check(mem)


def test_a_copied_sequence_is_shared_until_written() -> None:
    mem = memory()
    decode(mem, 0, 0)
    mem.seq_cp(0, 1)
    assert mem.cells[0].tail == mem.cells[1].tail
    assert mem.used == 1
    check(mem)
    decode(mem, 1)
    assert mem.cells[0].tail != mem.cells[1].tail
    assert (state(mem, 0), state(mem, 1)) == (of(0, 1), of(0, 1, 2))
    decode(mem, 0)
    assert state(mem, 0) == of(0, 1, 2)
    check(mem)


def test_tokens_of_several_sequences_make_one_state() -> None:
    hyb = hybrid()
    decode(hyb, [0, 1], [0, 1])
    mem = hyb.recr
    assert mem.cells[0].tail == mem.cells[1].tail
    decode(hyb, 1)
    assert (state(mem, 0), state(mem, 1)) == (of(0, 1), of(0, 1, 2))
    check(mem)


def test_a_freed_state_is_zeroed_even_if_it_was_nan() -> None:
    mem = memory(2)
    decode(mem, 0, 1)
    for t in mem.all_tensors():
        set_tensor(t, np.full(t.ne[::-1], np.nan, np.float32))
    mem.clear(data=False)
    decode(mem, 0)
    decode(mem, 1)
    assert (state(mem, 0), state(mem, 1)) == (of(0), of(0))


def test_seq_keep_and_positions() -> None:
    mem = memory()
    for s in range(3):
        decode(mem, s)
    mem.seq_keep(1)
    assert [mem.seq_pos_max(s) for s in range(4)] == [-1, 0, -1, -1]
    check(mem)
    mem.seq_add(1, 0, -1, 9)
    assert mem.seq_pos_min(1) == 9
    mem.seq_div(1, 0, -1, 3)
    assert mem.seq_pos_max(1) == 3
    mem.seq_add(1, 5, -1, 9)
    assert mem.seq_pos_max(1) == 3


def test_only_a_whole_state_can_be_removed() -> None:
    mem = memory()
    decode(mem, 0, 0, 0)
    assert not mem.seq_rm(0, 1, -1)
    assert mem.seq_pos_max(0) == 2
    assert mem.seq_rm(0, 3, -1)  # nothing there
    assert mem.seq_rm(0)
    assert mem.seq_pos_max(0) == -1
    assert not mem.seq_rm(-1, 1, -1)
    assert mem.seq_rm(-1)
    check(mem)


def test_rollback() -> None:
    mem = memory(2, n_rs_seq=3)
    decode(mem, *[1] * 6)
    assert mem.seq_rm(1, 4, -1)
    assert mem.seq_pos_max(1) == 3
    assert state(mem, 1) == of(0, 1, 2, 3)
    assert not mem.seq_rm(1, 3, -1)  # one is pending
    decode(mem, 1, 1)
    assert state(mem, 1) == of(0, 1, 2, 3, 4, 5)
    assert mem.rs_idx == [0, 0]
    check(mem)


@pytest.mark.parametrize(
    ("n", "back", "ok"), [(5, 3, True), (5, 4, False), (2, 1, True), (2, 2, False), (1, 1, False)]
)
def test_rollback_reaches_as_far_as_the_last_ubatch(n: int, back: int, ok: bool) -> None:
    mem = memory(1, n_rs_seq=3)
    decode(mem, *[0] * 8)
    decode(mem, *[0] * n)
    assert mem.seq_rm(0, 8 + n - back, -1) is ok
    assert state(mem, 0) == of(*range(8 + n - (back if ok else 0)))


def test_a_rollback_reaches_through_a_copy() -> None:
    mem = memory(2, n_rs_seq=2)
    decode(mem, *[0] * 4)
    assert mem.seq_rm(0, 3, -1)
    mem.seq_cp(0, 1)
    assert not mem.seq_rm(1, 2, -1)
    decode(mem, 1)
    decode(mem, 0, 0)
    assert (state(mem, 1), state(mem, 0)) == (of(0, 1, 2, 3), of(0, 1, 2, 3, 4))


def test_a_moved_state_keeps_its_snapshots() -> None:
    """Whether they are those of a sequence beside the ubatch's, or where one of the ubatch's
    starts."""
    hyb = hybrid(kv_size=64, n_rs_seq=2)
    mem = hyb.recr
    for s in range(4):
        decode(hyb, *[s] * 4)
    assert hyb.seq_rm(2, 2, -1)
    decode(hyb, 0, 2, 2, 2, 0, 0)  # 2 takes the cell of 1
    assert mem.moves == [(2, 1), (1, 2)]
    assert (state(mem, 0), state(mem, 2)) == (of(*range(7)), of(*range(5)))
    for s, back in ((0, 2), (1, 2), (2, 2), (3, 1)):
        n = hyb.seq_pos_max(s) + 1 - back
        assert hyb.seq_rm(s, n, -1)
        assert state(mem, s) == of(*range(n)), s
    check(mem)


def test_states_that_a_device_refused_to_move_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have theirs, and all can be computed again."""
    hyb = hybrid(kv_size=64, n_rs_seq=2)
    mem = hyb.recr
    for s in range(4):
        decode(hyb, *[s] * 4)
    assert hyb.seq_rm(2, 2, -1)
    ctx = start(hyb, [[s] for s in (0, 2, 2, 2, 0, 0)])
    write = recurrent.write_part

    def refuse(t: Any, *args: Any) -> None:
        if t is mem.s_l[3]:
            raise BackendError("refused")
        write(t, *args)

    with monkeypatch.context() as patch, pytest.raises(BackendError):
        patch.setattr(recurrent, "write_part", refuse)
        ctx.apply()
    assert hyb.discard(ctx.get_ubatch()) == [0, 1, 2]
    assert [hyb.seq_pos_max(s) for s in range(4)] == [-1, -1, -1, 3]
    check(mem)
    for s in range(3):
        decode(hyb, *[s] * 4)
    assert [state(mem, s) for s in range(4)] == [of(*range(4))] * 4
    check(mem)


def test_a_sequence_that_shares_a_state_goes_back_alone() -> None:
    mem = memory(3, n_rs_seq=2)
    decode(mem, *[0] * 4)
    mem.seq_cp(0, 1)
    assert mem.seq_rm(1, 2, -1)
    assert (state(mem, 0), state(mem, 1)) == (of(0, 1, 2, 3), of(0, 1))
    assert mem.seq_rm(0, 3, -1)
    assert not mem.seq_rm(1, 1, -1)
    decode(mem, 0)
    decode(mem, 1)
    assert (state(mem, 0), state(mem, 1)) == (of(0, 1, 2, 3), of(0, 1, 2))
    check(mem)
    mem.seq_cp(1, 2)
    assert not mem.seq_rm(2, 2, -1)


def test_positions_that_are_not_one_apart_are_not_gone_back_over() -> None:
    """An image's tokens share positions; divided ones are no longer those of the states."""
    mem = memory(1, n_rs_seq=3)
    for moved, ok in ((lambda: mem.seq_div(0, 0, -1, 2), False), (lambda: None, True)):
        mem.clear()
        decode(mem, *[0] * 4)
        moved()
        assert mem.seq_rm(0, mem.seq_pos_max(0), -1) is ok
    mem.clear()
    decode(mem, *[0] * 4)
    mem.seq_add(0, 2, -1, 10)  # 0, 1, 12, 13
    assert not mem.seq_rm(0, 11, -1)
    assert mem.seq_rm(0, 13, -1)
    assert mem.seq_pos_max(0) == 12
    assert steps_of_one(np.array([3, 3, 4, 5], np.int32)) == 2


def test_states_that_know_of_later_tokens_are_not_gone_back_to() -> None:
    mem = RecurrentMemory(
        [StateLayer(0, DEVICE, StateSpec(3, 5))], size=1, n_rs_seq=2, causal=False
    )
    decode(mem, *[0] * 4)
    assert not mem.seq_rm(0, 3, -1)


def test_a_moved_state_keeps_a_pending_rollback_but_no_snapshots() -> None:
    hyb = hybrid(n_rs_seq=2)
    mem = hyb.recr
    for s in range(3):
        decode(hyb, *[s] * 4)
    assert hyb.seq_rm(1, 2, -1)
    decode(hyb, 0, 2)  # moves the state of 1
    assert state(mem, 1) == of(0, 1)
    assert not hyb.seq_rm(1, 1, -1)
    decode(hyb, 1)
    assert state(mem, 1) == of(0, 1, 2)
    check(mem)


def test_preparing_changes_nothing() -> None:
    mem = memory()
    decode(mem, 0, 1)
    mem.seq_cp(1, 2)
    before = [c.copy() for c in mem.cells], mem.head, mem.used, mem.n, mem.rs_z
    start(mem, [[1], [2], [3]])
    assert (mem.cells, mem.head, mem.used, mem.n, mem.rs_z) == before


def test_unknown_sequences_are_refused() -> None:
    mem = memory(2)
    with pytest.raises(ContextError, match=r"seq_id must be in \[0, 2\), got 2"):
        mem.seq_pos_max(2)
    with pytest.raises(ContextError, match="larger n_seq_max"):
        start(mem, [[3]])


STEP = st.tuples(
    st.sampled_from(["decode", "decode", "copy", "remove", "back", "keep"]),
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(1, 2),
    st.permutations(range(3)),
)


@given(st.lists(STEP, min_size=1, max_size=12))
def test_any_order_of_operations(steps: list[tuple[str, int, int, int, list[int]]]) -> None:
    """Against a model: each sequence is the list of its positions."""
    n_seq, hyb = 3, hybrid(n_seq_max=3, kv_size=512, n_rs_seq=2)
    model: dict[int, list[int]] = {s: [] for s in range(n_seq)}
    back = [0] * n_seq  # how many tokens each can go back
    for op, a, b, c, order in steps:
        if op == "decode":
            for s in order[: a + 1]:
                decode(hyb, *[s] * (b + 1))
                model[s] += range(len(model[s]), len(model[s]) + b + 1)
                back[s] = b
            decode(hyb, *[s for s in dict.fromkeys([a, b]) for _ in range(c)])
            for s in {a, b}:
                model[s] += range(len(model[s]), len(model[s]) + c)
                back[s] = c - 1
        elif op == "copy" and a != b:
            hyb.seq_rm(b)
            hyb.seq_cp(a, b)
            model[b], back[b] = list(model[a]), back[a]
        elif op == "remove":
            hyb.seq_rm(a)
            model[a] = []
        elif op == "back" and len(model[a]) > c:
            assert hyb.seq_rm(a, len(model[a]) - c, -1) == (c <= back[a])
            if c <= back[a]:
                del model[a][-c:]
                back[a] = 0
        elif op == "keep":
            hyb.seq_keep(a)
            model = {s: p if s == a else [] for s, p in model.items()}
        check(hyb.recr)
        for s, positions in model.items():
            assert hyb.seq_pos_max(s) == len(positions) - 1
            assert hyb.caches["kv"].seq_pos_max(s) == hyb.recr.seq_pos_max(s)
            if positions:
                assert state(hyb.recr, s) == of(*positions), (op, s)


@pytest.mark.parametrize("gap", [False, True])
def test_discard_removes_what_was_being_written_or_moved(gap: bool) -> None:
    hyb = hybrid()
    for s in range(4):
        decode(hyb, s, s)
    if gap:
        hyb.seq_rm(1)  # its cell is moved all the same, and not to be trusted afterwards
    ctx = start(hyb, [[0], [2]])  # moves 1
    ctx.apply()
    assert hyb.discard(ctx.get_ubatch()) == ([0, 2] if gap else [0, 1, 2])
    check(hyb.recr)
    assert [hyb.seq_pos_max(s) for s in range(4)] == [-1, -1, -1, 1]
    assert [hyb.caches["kv"].seq_pos_max(s) for s in range(4)] == [-1, -1, -1, 1]
    for t in hyb.recr.all_tensors():
        rows = get_tensor(t)[0, 0]
        rows[:3] = np.nan
        set_tensor(t, rows)
    decode(hyb, 2)
    decode(hyb, 0)
    decode(hyb, 1)
    assert [state(hyb.recr, s) for s in range(4)] == [of(0), of(0), of(0), of(0, 1)]


def test_hybrid_removes_from_both_or_from_none() -> None:
    hyb = hybrid()
    decode(hyb, 0, 0, 0)
    assert not hyb.seq_rm(0, 1, -1)
    assert hyb.caches["kv"].seq_pos_max(0) == 2
    hyb.seq_cp(0, 1)
    hyb.seq_keep(1)
    assert [hyb.seq_pos_max(s) for s in range(2)] == [-1, 2]
    assert [hyb.seq_pos_min(s) for s in range(2)] == [-1, 2]  # where both parts begin
    with pytest.raises(ContextError, match="a batch of 14 tokens does not fit"):
        start(hyb, [[1]] * 14)
    assert [hyb.caches["kv"].seq_pos_max(1), hyb.recr.seq_pos_max(1)] == [2, 2]
