"""The KV cache: which cells tokens take, what they see, and what sequence operations change.
One file: every test is of the same cache, through the helpers at the top."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ggml_py.backend import get_tensor, set_tensor
from ggml_py.errors import AllocError, ContextError
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, I64
from llama_py.batch import Batch
from llama_py.batch.splitter import BatchSplitter
from llama_py.hparams.layer_shape import Rope, Window
from llama_py.memory import MemoryGroup
from llama_py.memory.cells import KVCells
from llama_py.memory.io import StateReader, StateWriter
from llama_py.memory.kv import KVCache, KVCacheContext
from llama_py.memory.kv_slots import CellLayout
from llama_py.memory.kv_tensors import KVLayer, RowLayout, runs
from tests.support.host_device import HostDevice, NoCopies

DEVICE = HostDevice()


def cache(kv_size: int = 16, n_seq_max: int = 4, unified: bool = True, **options: Any) -> KVCache:
    layers = options.pop("layers", [KVLayer(il, 2, 4, 4, DEVICE) for il in (0, 2)])
    of_cells = {name: options.pop(name) for name in ("n_pos", "window") if name in options}
    return KVCache(
        layers, CellLayout(kv_size, n_seq_max, unified, **of_cells), RowLayout(**options)
    )


def start(kv: KVCache, seqs: list[int], n_ubatch: int = 64, **batch: Any) -> KVCacheContext:
    """One token per entry, of that sequence: placed, not applied."""
    b = Batch(tokens=[1] * len(seqs), seq_ids=[[s] for s in seqs], **batch)
    n = {"n_vocab": 8, "n_embd": 4, "n_seq_max": kv.n_seq_max, "n_pos": kv.n_pos}
    splitter = BatchSplitter(b, memory=kv, **n)
    return MemoryGroup({"kv": kv}, None, {}).init_batch(splitter, n_ubatch).kv("kv")


def put(kv: KVCache, seqs: list[int], n_ubatch: int = 64, **batch: Any) -> list[list[int]]:
    """Applies all ubatches; the cells of each."""
    ctx = start(kv, seqs, n_ubatch, **batch)
    cells = []
    while True:
        ctx.apply()
        cells.append(np.concatenate(ctx.place.idxs).tolist())
        if not ctx.next():
            return cells


def holds(kv: KVCache, stream: int = 0) -> list[tuple[int, set[int]] | None]:
    """(position, sequences) of each cell up to the last in use."""
    c = kv.cells[stream]
    return [
        (int(c.pos[i]), set(np.flatnonzero(c.seq[:, i]).tolist())) if c.pos[i] >= 0 else None
        for i in range(c.used_max_p1())
    ]


def check(kv: KVCache) -> None:
    """What KVCells keeps besides its arrays agrees with them."""
    for c in kv.cells:
        assert (c.n_seq == c.seq.sum(0)).all()
        assert ((c.pos >= 0) == (c.n_seq > 0)).all()
        assert c.used == np.count_nonzero(c.pos >= 0)
        used = np.flatnonzero(c.pos >= 0)
        assert c.used_max_p1() == (used[-1] + 1 if used.size else 0)
        for s in range(kv.n_seq_max):
            pos = c.pos[c.seq[s]]
            assert c.pos_range(s) == ((pos.min(), pos.max()) if pos.size else (-1, -1))


def randomize(kv: KVCache) -> None:
    rng = np.random.default_rng(3)
    for t in (*kv.tensors.k.values(), *kv.tensors.v.values()):
        raw = rng.integers(0, 256, t.nbytes, np.uint8)
        t.buffer.write(t.offset, raw)  # type: ignore[union-attr]


def test_tokens_take_cells_in_order() -> None:
    kv = cache()
    assert put(kv, [0, 0, 1]) == [[0, 1, 2]]
    assert put(kv, [0]) == [[3]]
    assert holds(kv) == [(0, {0}), (1, {0}), (0, {1}), (2, {0})]
    assert (kv.seq_pos_min(0), kv.seq_pos_max(0), kv.seq_pos_max(3)) == (0, 2, -1)
    check(kv)


def test_freed_cells_are_used_again() -> None:
    kv = cache(8)
    put(kv, [0] * 3 + [1] * 3)
    kv.seq_rm(0, 1, -1)
    assert put(kv, [1] * 4) == [[1, 2, 6, 7]]
    check(kv)
    kv.seq_rm(1)
    assert holds(kv) == [(0, {0})]
    check(kv)


def test_the_search_wraps_around() -> None:
    kv = cache(8)
    put(kv, [0] * 7)
    kv.seq_rm(0, 0, 3)
    kv.heads = [7]
    assert put(kv, [1] * 3) == [[7, 0, 1]]


def test_a_far_head_goes_back_to_the_start() -> None:
    kv = cache(16)
    put(kv, [0] * 12)
    kv.seq_rm(0, 2, -1)
    kv.heads = [12]
    assert put(kv, [1]) == [[2]]


def test_all_ubatches_are_placed_before_any_is_applied() -> None:
    kv = cache(8)
    before = holds(kv)
    ctx = start(kv, [0] * 8, n_ubatch=3)
    assert [p.idxs[0].tolist() for p in ctx.places] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert holds(kv) == before
    check(kv)


@pytest.mark.parametrize("n_ubatch", [3, 64])
def test_what_does_not_fit_changes_nothing(n_ubatch: int) -> None:
    kv = cache(8)
    put(kv, [0] * 5)
    before, heads = holds(kv), list(kv.heads)
    with pytest.raises(ContextError, match=r"a batch of 4 tokens .* 8 cells, . in use.* n_ctx"):
        start(kv, [1] * 4, n_ubatch)
    assert (holds(kv), kv.heads) == (before, heads)
    assert put(kv, [1] * 3) == [[5, 6, 7]]


def test_streams_are_apart() -> None:
    kv = cache(8, n_seq_max=3, unified=False)
    assert put(kv, [0, 1, 1, 2, 1]) == [[0, 0, 0], [1, 2]]
    assert holds(kv, 1) == [(0, {1}), (1, {1}), (2, {1})]
    ctx = start(kv, [1, 2])
    assert (ctx.place.strm, ctx.place.s0, ctx.place.n_stream) == ([1, 2], 1, 2)
    with pytest.raises(ContextError, match="8 cells per sequence"):
        start(kv, [1] * 6)


def test_seq_operations() -> None:
    kv = cache()
    put(kv, [0, 0, 0, 1])
    kv.seq_cp(0, 2, 1, -1)
    assert holds(kv) == [(0, {0}), (1, {0, 2}), (2, {0, 2}), (0, {1})]
    check(kv)
    assert kv.seq_rm(0, 2, 3)
    assert holds(kv) == [(0, {0}), (1, {0, 2}), (2, {2}), (0, {1})]
    check(kv)
    kv.seq_keep(2)
    assert holds(kv) == [None, (1, {2}), (2, {2})]
    check(kv)
    assert kv.seq_rm(-1)
    assert holds(kv) == []
    check(kv)


def test_positions_can_move() -> None:
    kv = cache()
    put(kv, [0] * 4)
    kv.seq_add(0, 2, -1, -2)
    assert holds(kv) == [(0, {0}), (1, {0}), (0, {0}), (1, {0})]
    assert kv.has_shift()
    assert kv.cells[0].shift.tolist()[:4] == [0, 0, -2, -2]
    check(kv)
    kv.seq_add(0, -1, -1, -1)
    assert holds(kv) == [None, (0, {0}), None, (0, {0})]
    check(kv)
    kv.cells[0].reset_shift()
    kv.seq_add(0, -1, -1, 6)
    kv.seq_div(0, -1, -1, 2)
    assert holds(kv) == [None, (3, {0}), None, (3, {0})]
    assert kv.cells[0].shift.tolist()[:4] == [0, 3, 0, 3]
    with pytest.raises(ContextError, match="seq_add: 4 positions per token"):
        cache(n_pos=4).seq_add(0, 0, -1, 1)
    q8 = cache(layers=[KVLayer(0, 1, 32, 32, NoCopies(), Rope(0, 32))], type_k=BY_NAME["q8_0"])
    put(q8, [0] * 8)
    for call, args in (("seq_add", (0, 2, -1, 1)), ("seq_shift", (0, 2, 3))):
        with pytest.raises(ContextError, match=f"{call}: q8_0 keys cannot be moved on host; use"):
            getattr(MemoryGroup({"kv": q8}, None, {}), call)(*args)
        assert holds(q8) == [(i, {0}) for i in range(8)]
    with pytest.raises(ContextError, match="d must be at least 1, got 0"):
        kv.seq_div(0, 0, -1, 0)


@pytest.mark.parametrize("call", ["seq_rm", "seq_keep", "seq_pos_min", "seq_pos_max"])
def test_unknown_sequences_are_refused(call: str) -> None:
    with pytest.raises(ContextError, match=r"seq_id must be in \[0, 4\), got 4"):
        getattr(cache(), call)(4)


def test_discard_takes_back_a_ubatch() -> None:
    kv = cache()
    put(kv, [0, 0, 1])
    before = holds(kv)
    ctx = start(kv, [1, 0, 1])
    ctx.apply()
    kv.discard(ctx.get_ubatch())
    assert holds(kv) == before
    check(kv)


def test_n_kv_grows_in_steps() -> None:
    kv = cache(1024)
    put(kv, [0])
    assert start(kv, [0]).kv.get_n_kv(start(kv, [0]).place) == 256
    put(kv, [0] * 256, 512)
    ctx = start(kv, [0])
    ctx.apply()
    assert ctx.get_n_kv() == 512
    assert kv.init_full().get_n_kv() == 1024
    small = cache(16)
    put(small, [0])
    assert small.get_n_kv(start(small, [0]).place) == 16


def seen(kv: KVCache, pos: int, seq: int, cell: int, causal: bool, stream: int) -> bool:
    """By the definition: same sequence, not later, not hidden by the window."""
    c = kv.cells[stream]
    p0 = int(c.pos[cell])
    if p0 < 0 or not c.seq[seq, cell] or (causal and p0 > pos):
        return False
    return kv.window is None or not kv.window.hides(p0, pos)


@pytest.mark.parametrize("type", [F16, F32])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, Window(3), Window(4, "chunked"), Window(4, "symmetric")])
@pytest.mark.parametrize("unified", [True, False])
@pytest.mark.parametrize("alibi", [True, False])
def test_mask(type: Any, causal: bool, window: Window | None, unified: bool, alibi: bool) -> None:
    kv = cache(32, n_seq_max=2, unified=unified, window=window)
    put(kv, [0, 1] * 5)
    if unified:
        kv.seq_cp(0, 1, 2, 4)
    kv.seq_rm(1, 0, 1)
    ctx = start(kv, [0, 1, 1, 0, 0])
    while True:
        ctx.apply()
        u = ctx.get_ubatch()
        n_stream = 1 if unified else u.n_seqs_unq
        mask = Tensor(type, (32, u.n_tokens // n_stream, 1, n_stream))
        mask.buffer = DEVICE.alloc(mask.nbytes)
        ctx.set_input_kq_mask(mask, u, causal, alibi)
        found = get_tensor(mask).reshape(u.n_tokens, 32)
        for i, (s,) in enumerate(u.seq_id):
            stream = 0 if unified else s
            expected = [seen(kv, int(u.pos[i]), s, j, causal, stream) for j in range(32)]
            far = -abs(int(u.pos[i]) - kv.cells[stream].pos) if alibi else 0
            assert (found[i] == np.where(expected, far, -np.inf)).all(), i
        if not ctx.next():
            break


def test_image_patches_see_those_before_them() -> None:
    kv = cache(n_pos=4)
    rows = np.zeros((4, 4), np.float32)
    grid = np.array([[3] * 4, [0, 0, 1, 1], [0, 1, 0, 1], [0] * 4])  # time, row, column
    b = BatchSplitter(Batch(embd=rows, pos=grid), n_vocab=8, n_embd=4, n_seq_max=4, n_pos=4)
    ctx = MemoryGroup({"kv": kv}, None, {}).init_batch(b, 8).kv("kv")
    ctx.apply()
    mask = Tensor(F32, (16, 4, 1, 1))
    mask.buffer = DEVICE.alloc(mask.nbytes)
    ctx.set_input_kq_mask(mask, ctx.get_ubatch(), True)
    assert (get_tensor(mask)[0, 0, :, :4] == 0).tolist() == np.tri(4, dtype=bool).tolist()


def test_cells_out_of_the_window_are_overwritten() -> None:
    kv = cache(4, window=Window(3))
    for _ in range(8):
        put(kv, [0])
        check(kv)
    assert sorted(kv.cells[0].pos.tolist()) == [4, 5, 6, 7]


def test_a_window_has_no_gaps() -> None:
    kv = cache(8, window=Window(2))
    put(kv, [0] * 6)
    kv.heads = [3]  # overwrites position 3 before 0 to 2
    put(kv, [0] * 3)
    pos = sorted(p for p in kv.cells[0].pos.tolist() if p >= 0)
    assert pos == list(range(pos[0], 9))
    check(kv)


def two(unified: bool = True) -> MemoryGroup:
    caches = {"all": cache(64, 2, unified), "near": cache(8, 2, unified, window=Window(3))}
    return MemoryGroup(caches, None, {})


def feed(kv: MemoryGroup, seqs: list[int], n_ubatch: int = 4) -> None:
    b = Batch(tokens=[1] * len(seqs), seq_ids=[[s] for s in seqs])
    ctx = kv.init_batch(BatchSplitter(b, n_vocab=8, n_embd=4, n_seq_max=2, memory=kv), n_ubatch)
    while True:
        ctx.apply()
        assert all(ctx.kv(name).get_ubatch() is ctx.get_ubatch() for name in kv.caches)
        if not ctx.next():
            return


@pytest.mark.parametrize("unified", [True, False])
def test_two_caches_hold_all_and_the_window(unified: bool) -> None:
    kv = two(unified)
    every, near = kv.caches.values()
    feed(kv, [0, 1] * 10)
    for s in range(2):
        assert (every.seq_pos_min(s), every.seq_pos_max(s)) == (0, 9)
        assert kv.seq_pos_max(s) == 9
        assert 0 < kv.seq_pos_min(s) <= 7  # at least the window
    assert kv.seq_rm(0, 9, -1)
    assert (every.seq_pos_max(0), near.seq_pos_max(0)) == (8, 8)
    kv.seq_keep(1)
    assert (every.seq_pos_max(0), kv.seq_pos_max(1)) == (-1, 9)
    assert kv.windows == [near]
    kv.clear()
    assert kv.seq_pos_max(1) == -1


def test_two_caches_are_saved_together() -> None:
    kv, other = two(), two()
    feed(kv, [0] * 12)
    io = StateWriter()
    kv.state_write(io, 0)
    other.state_read(StateReader(io.bytes()), 1)
    assert (other.caches["all"].seq_pos_min(1), other.seq_pos_max(1)) == (0, 11)
    assert other.caches["near"].seq_pos_min(1) == 9  # what the window does not reach is not saved
    assert kv.layout() != kv.caches["all"].layout()
    with pytest.raises(ContextError, match="attention windows cannot be moved"):
        kv.seq_add(0, 0, -1, 1)


def index(ctx: KVCacheContext, which: str, n: int) -> list[int]:
    t = getattr(ctx, f"build_input_{which}_idxs")(ctx.get_ubatch())
    assert (t.name, t.type, t.ne[0]) == (f"attn_inp_{which}_idxs", I64, n)
    t.buffer = DEVICE.alloc(t.nbytes)
    getattr(ctx, f"set_input_{which}_idxs")(t, ctx.get_ubatch())
    return [int(i) for i in get_tensor(t).reshape(-1)]


def test_rows_to_write() -> None:
    kv = cache(8, n_seq_max=3, unified=False)
    put(kv, [1, 2, 2])
    ctx = start(kv, [1, 2])
    assert index(ctx, "k", 2) == index(ctx, "v", 2) == [8 + 1, 16 + 2]


def test_elements_to_write_when_v_is_transposed() -> None:
    kv = cache(4, n_seq_max=2, unified=False, v_trans=True)
    put(kv, [1])
    ctx = start(kv, [0, 1])
    n_embd = 8
    expected = [j * 4 for j in range(n_embd)] + [4 * n_embd + j * 4 + 1 for j in range(n_embd)]
    assert index(ctx, "v", 2 * n_embd) == expected


@pytest.mark.parametrize("v_trans", [False, True])
def test_views_show_what_was_written(v_trans: bool) -> None:
    kv = cache(4, n_seq_max=2, unified=False, v_trans=v_trans, type_k=F32, type_v=F32)
    put(kv, [1, 1])
    ctx = start(kv, [1])
    ctx.apply()
    rows = np.arange(2 * 4 * 8, dtype=np.float32).reshape(2, 4, 8)  # stream, cell, embd
    set_tensor(kv.tensors.k[2], rows)
    set_tensor(kv.tensors.v[2], rows.swapaxes(1, 2) if v_trans else rows)
    k, v = ctx.get_k(2), ctx.get_v(2)
    for t in (k, v):
        t.buffer, t.offset = t.view_src.buffer, t.view_src.offset + t.view_offs  # type: ignore
    heads = rows[1:].reshape(1, 4, 2, 4)  # stream, cell, head, embd
    assert k.ne == (4, 2, 4, 1)
    assert (get_tensor(k) == heads).all()
    assert (get_tensor(v) == (heads.transpose(0, 3, 2, 1) if v_trans else heads)).all()


def test_keys_only() -> None:
    kv = cache(layers=[KVLayer(0, 1, 6, 0, DEVICE)])
    assert list(kv.tensors.k) == [0]
    assert not kv.tensors.v
    assert kv.memory_breakdown() == {"host": 16 * 6 * 2}


def test_layers_of_different_width_share_indices_when_transposed() -> None:
    layers = [KVLayer(0, 1, 4, 4, DEVICE), KVLayer(1, 2, 4, 4, DEVICE)]
    kv = cache(layers=layers, v_trans=True)
    assert [t.ne[0] for t in kv.tensors.v.values()] == [8, 8]
    ctx = start(kv, [0])
    v_cur = Tensor(F32, (4, 1, 1))
    stored = ctx.cpy_v(v_cur, ctx.build_input_v_idxs(ctx.get_ubatch()), 0)
    assert stored.src[0] is not None
    assert stored.src[0].ne == (1, 8, 1, 1)


def test_seq_cp_between_streams_copies_the_data() -> None:
    kv = cache(4, n_seq_max=2, unified=False)
    put(kv, [0, 0])
    k = kv.tensors.k[0]
    set_tensor(k, np.arange(2 * 4 * 8).astype(np.float16))
    kv.seq_cp(0, 1)
    assert holds(kv, 1) == [(0, {1}), (1, {1})]
    assert (get_tensor(k)[0, 1] == get_tensor(k)[0, 0]).all()
    check(kv)
    with pytest.raises(ContextError, match="kv_unified=True"):
        kv.seq_cp(0, 1, 1, 2)


def test_layouts_tell_caches_apart() -> None:
    layouts = {
        cache().layout(), cache(v_trans=True).layout(), cache(type_k=F32).layout(),
        cache(layers=[KVLayer(0, 2, 4, 4, DEVICE)]).layout(),
    }  # fmt: skip
    assert len(layouts) == 4


def test_runs() -> None:
    assert runs(np.array([1, 2, 3, 7, 9, 10])) == [(1, 4), (7, 8), (9, 11)]
    assert runs(np.array([], np.int64)) == []


def test_clear_zeroes_the_data() -> None:
    kv = cache()
    put(kv, [0])
    randomize(kv)
    kv.clear()
    assert not get_tensor(kv.tensors.k[0]).any()
    assert kv.seq_pos_max(0) == -1


def test_too_large_a_cache_is_refused_before_it_is_allocated() -> None:
    class Small(HostDevice):
        def memory(self) -> tuple[int, int]:
            return (100, 1000)

    with pytest.raises(AllocError, match=r"KV cache needs .* smaller n_ctx"):
        cache(layers=[KVLayer(0, 1, 64, 64, Small())])


@pytest.mark.parametrize(("head", "n_k"), [(64, 64), (128, 128), (192, 64), (96, 0)])
def test_quantized_caches_rotate_heads(head: int, n_k: int) -> None:
    q8 = BY_NAME["q8_0"]
    kv = cache(layers=[KVLayer(0, 1, head, head, DEVICE)], type_k=q8, type_v=q8)
    ctx = start(kv, [0])
    k, v = ctx.build_input_k_rot(), ctx.build_input_v_rot()
    assert (k.ne[0] if k else 0, v.ne[0] if v else 0) == (n_k, 64 if n_k else 0)
    assert cache().init_full().build_input_k_rot() is None


def test_cells_at_a_position() -> None:
    """The likely cell is an answer only if no other cell can have the position."""
    cells = KVCells(16, 2)
    cells.place(np.arange(8), np.arange(8, dtype=np.int32), [(0, slice(0, 8))])
    assert cells.find_position(3, 0, 3, 16) == cells.find_position(3, 0, 9, 16) == [3]
    assert cells.find_position(3, 1, 3, 16) == cells.find_position(6, 0, 6, 4) == []
    cells.pos_div(0, 0, 8, 2)
    assert cells.find_position(3, 0, 6, 16) == [6, 7]
    cells.reset()
    assert not cells.repeats
