"""States that are rows of slots: what is computed is the same as with states in cells."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ggml_py.backend import get_tensor
from ggml_py.errors import ContextError
from llama_py.batch import Batch
from llama_py.batch.splitter import BatchSplitter
from llama_py.context import Context
from llama_py.memory.slots import SlotMemory
from tests.support.live_models import EXACT, live, made, model_of, nmse, tokens
from tests.support.split_models import KEYS, shared

NAMES = ["qwen3next-moe", "qwen35-dense", "qwen35moe-moe"]
SLOTS = {"delta_net": "slots"}
BOUND = {"ref": 1e-12, "cpu": 1e-11, "opencl0": 1e-11}  # normalised mean squared error of logits
N_DRAFT = 8
PROMPT, LAST = tokens(13), 5

Floats = NDArray[np.float32]
Lists = Sequence[Sequence[int]]


def context(name: str, on: str = "ref", forms: dict[str, str] = SLOTS, **options: Any) -> Context:
    options = {**EXACT, "n_seq_max": 4, "kv_unified": True, **options}
    return Context(live(name, on), forms=forms, **options)


def slots_of(ctx: Context) -> SlotMemory:
    recr = ctx.memory.recr
    assert isinstance(recr, SlotMemory)
    return recr


def fill(ctx: Context, byte: int) -> None:
    """Bytes for what was not written: 255 is NaN."""
    for _, buffer in slots_of(ctx).buffers:
        buffer.clear(byte)


def several(ids: Lists, seqs: Sequence[int] | None = None) -> Batch:
    """Tokens of each sequence, all of them outputs."""
    seqs = range(len(ids)) if seqs is None else seqs
    of = [(s,) for s, some in zip(seqs, ids, strict=True) for _ in some]
    flat = [t for some in ids for t in some]
    return Batch(flat, seq_ids=of, outputs=[True] * len(flat))


def conversation(ctx: Context) -> list[Floats]:
    """Prompts of three sequences, single tokens of all, of some, and in another order; one that
    goes on with several while others have one; a copy; one that starts again."""
    found = [ctx.decode(several([PROMPT, tokens(5, 1), tokens(1, 2)]))]
    found += [ctx.decode(several([[1], [2], [3]])), ctx.decode(several([[4], [5]], [2, 0]))]
    found.append(ctx.decode(several([[6], [7, 8, 9], [10]])))
    ctx.memory.seq_cp(1, 3)
    found.append(ctx.decode(several([[11], [12], [13], [14]])))
    ctx.memory.seq_rm(0)
    found.append(ctx.decode(several([[3], tokens(4, 3), [2]], [1, 0, 3])))
    ctx.memory.seq_keep(3)
    found.append(ctx.decode(several([[15], [16], [17]], [3, 0, 1])))
    return found


def check_logits(name: str, on: str, unified: bool = True) -> None:
    plain = conversation(context(name, on, {}, kv_unified=unified))
    ctx = context(name, on, kv_unified=unified)
    fill(ctx, 0xFF)
    for expected, found in zip(plain, conversation(ctx), strict=True):
        assert nmse(expected, found) <= BOUND[on]


@pytest.mark.parametrize("on", ["ref", "cpu"])
@pytest.mark.parametrize(
    ("name", "unified"), [*((name, True) for name in NAMES), ("qwen35moe-moe", False)]
)
def test_logits_are_those_of_states_in_cells(name: str, on: str, unified: bool) -> None:
    check_logits(name, on, unified)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n_group", [1, 4])
def test_however_heads_are_repeated(name: str, n_group: int) -> None:
    model = model_of(*made(name, ssm__group_count=n_group))
    a, b = (Context(model, forms=forms, **EXACT).decode(PROMPT) for forms in ({}, SLOTS))
    assert nmse(a, b) <= BOUND["ref"]


@pytest.mark.parametrize("n_ubatch", [1, 5, 64])
def test_side_by_side_is_the_same(n_ubatch: int) -> None:
    both = [
        context("qwen35moe-moe", forms={**SLOTS, "slot_update": form}, n_ubatch=n_ubatch)
        for form in ("cpy", "concat")
    ]
    for a, b in zip(*map(conversation, both), strict=True):
        np.testing.assert_array_equal(a, b)
    rows = [get_tensor(t) for ctx in both for t in slots_of(ctx).all_tensors()]
    np.testing.assert_array_equal(*rows)


def test_one_batch_is_token_by_token() -> None:
    whole = context("qwen3next-moe").decode(PROMPT, logits="all")
    for n_ubatch in (1, 4):
        again = context("qwen3next-moe", n_ubatch=n_ubatch).decode(PROMPT, logits="all")
        assert nmse(whole, again) <= BOUND["ref"]


@pytest.mark.parametrize("on", ["ref", "cpu"])
def test_a_used_slot_is_as_good_as_new(on: str) -> None:
    """Even with NaN in it: zero times that would stay."""
    ctx = context("qwen35moe-moe", on)
    expected = ctx.decode(PROMPT, seq_id=2, logits="all")
    for forget in (lambda: ctx.memory.seq_rm(2), ctx.clear, lambda: ctx.memory.seq_keep(0)):
        forget()
        fill(ctx, 0xFF)
        np.testing.assert_array_equal(expected, ctx.decode(PROMPT, seq_id=2, logits="all"))
    ctx.memory.seq_rm(2)
    later = Batch(PROMPT, pos=[*range(5, 18)], seq_ids=[(2,)] * 13, outputs=[True] * 13)
    other = Batch(PROMPT, pos=[*range(5, 18)], seq_ids=[(1,)] * 13, outputs=[True] * 13)
    fresh = context("qwen35moe-moe", on)
    np.testing.assert_array_equal(ctx.decode(later), fresh.decode(other))


def test_graphs_are_used_again_for_the_same_slots() -> None:
    ctx = context("qwen35moe-moe")
    ctx.decode(several([[1], [2]]))  # starts
    used = []
    for seqs in ([0, 1], [0, 1], [1, 0], [0, 2], [0, 1]):
        before = ctx.n_reused
        ctx.decode(several([[1]] * len(seqs), seqs))
        used.append(ctx.n_reused - before)
    assert used == [0, 1, 0, 0, 1]


def test_a_token_is_of_one_sequence() -> None:
    ctx = context("qwen35moe-moe")
    with pytest.raises(ContextError, match=r"sequences \[0, 1\].* use seq_cp"):
        ctx.decode(Batch([1, 2], seq_ids=[(0, 1), (0, 1)]))
    assert ctx.memory.seq_pos_max(0) == -1
    ctx.decode(several([[1], [2]]))


@pytest.mark.parametrize("tail", [0, 3])
@pytest.mark.parametrize("sequential", [False, True])
def test_ubatches_are_of_one_sequence_or_of_single_tokens(tail: int, sequential: bool) -> None:
    rng = np.random.default_rng(7)
    for _ in range(50):
        of = rng.integers(0, 4, int(rng.integers(1, 30))).tolist()
        batch = Batch([1] * len(of), seq_ids=[(s,) for s in of])
        splitter = BatchSplitter(batch, n_vocab=9, n_embd=1, n_seq_max=4)
        seen: dict[int, list[int]] = {s: [] for s in range(4)}
        sizes: dict[int, list[int]] = {s: [] for s in range(4)}
        while (u := splitter.split_slots(6, sequential, tail)) is not None:
            assert u.n_tokens <= 6 and (u.n_seqs == 1 or u.n_seq_tokens == 1)
            for s, i in zip(u.seq_id, u.batch_idxs, strict=True):
                seen[s[0]].append(int(i))
            for s in u.seq_id_unq:
                sizes[s].append(u.n_seq_tokens)
        assert seen == {s: [i for i, x in enumerate(of) if x == s] for s in range(4)}
        for s, own in sizes.items():
            assert not own or own[-1] == min(tail, len(seen[s])) or not tail


def row(ctx: Context, seq_id: int) -> list[Floats]:
    """What a sequence goes on from."""
    return [get_tensor(t)[0, 0, seq_id].copy() for t in slots_of(ctx).s_l.values()]


def assert_same(a: Context, b: Context, seqs: Sequence[int]) -> None:
    """States, and what follows: a token of each sequence, and two."""
    for s in seqs:
        assert a.memory.seq_pos_max(s) == b.memory.seq_pos_max(s)
        for x, y in zip(row(a, s), row(b, s), strict=True):
            np.testing.assert_array_equal(x, y, f"sequence {s}")
    for n in (1, 2):
        batch = several([tokens(n, seed=20 + s) for s in seqs], seqs)
        np.testing.assert_array_equal(a.decode(batch), b.decode(batch))


@pytest.mark.parametrize(
    ("name", "form"), [*((name, "cpy") for name in NAMES), ("qwen35moe-moe", "concat")]
)
def test_a_draft_rejected_at_each_position_leaves_nothing(name: str, form: str) -> None:
    """Sequence s, in slot s, rejects its draft from position s on; others never had a draft."""
    seqs = range(N_DRAFT + 1)
    drafted, plain = (
        context(name, forms={**SLOTS, "slot_update": form}, n_seq_max=9, n_rs_seq=N_DRAFT)
        for _ in range(2)
    )
    for ctx, byte in ((drafted, 0x3E), (plain, 0xFF)):
        fill(ctx, byte)
        ctx.decode(PROMPT, logits="none")
        for s in seqs[1:]:
            ctx.memory.seq_cp(0, s)
    drafts = [[LAST, *tokens(N_DRAFT, seed=s)] for s in seqs]
    drafted.decode(several(drafts))
    for s, ids in enumerate(drafts):
        assert drafted.memory.seq_rm(s, len(PROMPT) + 1 + s)
        plain.decode(several([ids[: 1 + s]], [s]))
    assert_same(drafted, plain, seqs)


def check_what_was_rejected(name: str, on: str) -> None:
    """Devices may sum otherwise for other sizes of batches: so both contexts had drafts, but other
    ones."""
    both = [context(name, on, n_seq_max=9, n_rs_seq=N_DRAFT) for _ in range(2)]
    for i, ctx in enumerate(both):
        ctx.decode(PROMPT, logits="none")
        for s in range(1, 9):
            ctx.memory.seq_cp(0, s)
        wrong = [tokens(9, seed=100 * i + s) for s in range(9)]
        same = [[LAST, *tokens(N_DRAFT, seed=s)][: 1 + s] for s in range(9)]
        ctx.decode(several([(a + b)[:9] for a, b in zip(same, wrong, strict=True)]))
        for s in range(N_DRAFT):
            assert ctx.memory.seq_rm(s, len(PROMPT) + 1 + s)
    assert_same(*both, range(N_DRAFT))


def test_what_was_rejected_does_not_matter_to_fast_kernels() -> None:
    check_what_was_rejected("qwen35moe-moe", "cpu")


def test_positions_with_a_gap() -> None:
    """One can go back to the tokens behind it only: checkpoints are by token."""
    ctx = context("qwen35moe-moe", n_rs_seq=3)
    ctx.decode(Batch([1, 2, 3, 4], pos=[0, 1, 5, 6]))
    assert not ctx.memory.seq_rm(0, 5) and ctx.memory.seq_pos_max(0) == 6
    assert ctx.memory.seq_rm(0, 6) and ctx.memory.seq_pos_max(0) == 5


def test_how_far_one_can_go_back() -> None:
    """Up to n_rs_seq tokens of the last ubatch, also of a prompt's end and of a copy; in steps."""
    ctx, plain = (context("qwen35moe-moe", n_rs_seq=n) for n in (3, 0))
    fill(ctx, 0xFF)
    ctx.decode(PROMPT, logits="none")
    ctx.memory.seq_cp(0, 2)
    for part in (PROMPT[:9], PROMPT[9:11]):  # the prompt's last tokens have a ubatch of their own
        plain.decode(several([part], [2]), logits="none")
    assert not ctx.memory.seq_rm(0, 9) and ctx.memory.seq_pos_max(0) == 12
    assert ctx.memory.seq_rm(2, 12) and ctx.memory.seq_rm(2, 11)
    assert not ctx.memory.seq_rm(2, 9)
    assert_same(ctx, plain, [2])
    ctx.decode([1])
    assert not ctx.memory.seq_rm(0, 13)
    ctx.memory.seq_rm(0)
    assert ctx.memory.seq_pos_max(0) == -1


def test_states_are_saved_and_read_in_any_slot() -> None:
    name = "qwen3next-moe"
    a, b = context(name, n_rs_seq=2), context(name)
    a.decode(several([PROMPT, tokens(6, 1)], [0, 3]))
    fill(b, 0xFF)
    b.load_state(a.save_state(3), 1)
    b.load_state(a.save_state(0, tokens=PROMPT), 3)
    for s, t in ((0, 3), (3, 1)):
        x, y = a.decode([7, 8], seq_id=s), b.decode([7, 8], seq_id=t)
        np.testing.assert_array_equal(x, y)
    b.load_state(a.save_state())
    np.testing.assert_array_equal(
        a.decode(several([[1], [2]], [0, 3])), b.decode(several([[1], [2]], [0, 3]))
    )
    assert b.memory.seq_pos_max(1) == -1
    cells = context(name, forms={})
    for other, data in ((cells, a.save_state(0)), (a, cells.save_state(0))):
        with pytest.raises(ContextError, match=r"has layout .*(slots|recurrent) \[0\]"):
            other.load_state(data, 0)


def test_positions_can_be_moved() -> None:
    mem = slots_of(context("qwen35-dense"))
    mem.slots[1].pos = 8
    mem.seq_add(1, 0, -1, -3)
    assert mem.seq_pos_max(1) == mem.seq_pos_min(1) == 5
    mem.seq_add(1, 6, -1, -3)
    mem.seq_div(1, 0, -1, 2)
    assert [mem.seq_pos_max(s) for s in range(4)] == [-1, 2, -1, -1]
    with pytest.raises(ContextError, match=r"seq_id must be in \[0, 4\), got 4"):
        mem.seq_cp(1, 4)


def test_an_interrupted_decode_leaves_no_half_state() -> None:
    ctx = context("qwen35-dense")
    ctx.decode(several([PROMPT, [1]]))

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    ctx.on_graph = stop
    with pytest.raises(KeyboardInterrupt):
        ctx.decode([5], seq_id=1)
    ctx.on_graph = None
    assert [ctx.memory.seq_pos_max(s) for s in (0, 1)] == [12, -1]
    expected = context("qwen35-dense").decode([1, 2])
    np.testing.assert_array_equal(expected, ctx.decode([1, 2], seq_id=1))


def test_what_it_takes_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "llama_py")
    ctx = context("qwen35moe-moe", n_rs_seq=3)
    hp = ctx.model.hparams
    mem = slots_of(ctx)
    rows = {t.name: t.ne[:2] for t in mem.all_tensors()}
    assert rows == {
        "cache_s_l0": (hp.n_embd_r + hp.n_embd_s, 4),
        "per_step_conv_l0": (4 * hp.n_embd_r, 4),
        "per_step_ssm_l0": (3 * hp.n_embd_s, 4),
    }
    (line,) = (r.message for r in caplog.records if "4 slots" in r.message)
    assert "1 layers,  3 rs_seq), S (f32):" in line


@pytest.mark.parametrize("name", ["kimi-linear-moe", "llama-dense"])
def test_others_have_no_slots(name: str) -> None:
    with pytest.raises(ContextError, match="only for qwen35, qwen35moe, qwen3next"):
        context(name)


def test_devices_share_the_slots() -> None:
    """Each has its heads' part of the rows; saved states do not depend on that."""
    name = "qwen35moe-moe"
    models = model_of(*made(name, **KEYS[name]), "cpu"), shared(name, [1, 1])
    a, b = (
        Context(m, forms=SLOTS, n_rs_seq=3, **EXACT, n_seq_max=4, kv_unified=True) for m in models
    )
    assert [t.name for t in slots_of(b).s_l.values()] == ["cache_s_l0.0", "cache_s_l0.1"]
    for x, y in zip(conversation(a), conversation(b), strict=True):
        assert nmse(x, y) <= BOUND["cpu"]
    a.load_state(b.save_state(0), 2)
    for ctx, s in ((a, 2), (b, 0)):
        ctx.decode([5, 6, 7], seq_id=s)
        assert ctx.memory.seq_rm(s, ctx.memory.seq_pos_max(s))
    assert nmse(a.decode([1], seq_id=2), b.decode([1], seq_id=0)) <= BOUND["cpu"]
