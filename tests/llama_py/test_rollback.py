"""Taking rejected drafts back, in every recurrent architecture: what is left is what would be there
if nothing had been drafted, bit for bit."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ggml_py.backend import get_tensor
from llama_py.batch import Batch
from llama_py.context import Context
from llama_py.memory.specs import StateSpec
from tests.support.graph_models import CONTINUING, kept
from tests.support.live_models import live, tokens

N_DRAFT = 8
PROMPT, LAST = tokens(13), 5
FILLS = 0x3E, 0  # of the memories of two contexts: what was not written must not be read
Lists = Sequence[Sequence[int]]


NAMES = [name for name in CONTINUING if any(isinstance(what, StateSpec) for what in kept(name))]
# few tokens attend by other nodes than many, which round otherwise
FEW = "glm5-next-moe", "glm5-next-unbounded"


def context(name: str, on: str, fill: int, **options: Any) -> Context:
    """Its memory filled with a byte."""
    options = {"n_ctx": 256, "n_ubatch": 128, "n_rs_seq": N_DRAFT, "kv_unified": True, **options}
    ctx = Context(live(name, on), **options)
    recr = ctx.memory.recr
    assert recr is not None
    for kv in ctx.memory.caches.values():
        for _, buffer in kv.tensors.buffers:
            buffer.clear(fill)
    for _, buffer in recr.buffers:
        buffer.clear(fill)
    return ctx


def several(ids: Lists, seqs: Sequence[int] | None = None) -> Batch:
    """Tokens of each sequence, all of them outputs."""
    seqs = range(len(ids)) if seqs is None else seqs
    of = [(s,) for s, some in zip(seqs, ids, strict=True) for _ in some]
    flat = [t for some in ids for t in some]
    return Batch(flat, seq_ids=of, outputs=[True] * len(flat))


def state(ctx: Context, seq_id: int) -> list[NDArray[Any]]:
    """The recurrent state that a sequence goes on from."""
    recr = ctx.memory.recr
    assert recr is not None
    row = recr.rs_idx[seq_id] * recr.size + recr.cells[seq_id].tail
    return [get_tensor(t)[0, 0, row].copy() for t in recr.all_tensors()]


def assert_same(a: Context, b: Context, n_seqs: int) -> None:
    """States, and what follows: one token of each sequence, and two."""
    for s in range(n_seqs):
        assert a.memory.seq_pos_max(s) == b.memory.seq_pos_max(s)
        for x, y in zip(state(a, s), state(b, s), strict=True):
            np.testing.assert_array_equal(x, y, f"sequence {s}")
    for n in (1, 2):
        batch = several([tokens(n, seed=20 + s) for s in range(n_seqs)])
        np.testing.assert_array_equal(a.decode(batch), b.decode(batch))


def prompted(ctx: Context, n_seqs: int) -> None:
    """PROMPT in all sequences."""
    ctx.decode(PROMPT, logits="none")
    for s in range(1, n_seqs):
        ctx.memory.seq_cp(0, s)


@pytest.mark.parametrize("name", NAMES)
def test_a_draft_rejected_at_each_position_leaves_nothing(name: str) -> None:
    """Sequence s rejects its draft from position s on; other ones never had a draft. The reference
    gives the same for a token whatever it is decoded with."""
    n_seqs = N_DRAFT + 1
    drafted, plain = (context(name, "ref", fill, n_seq_max=n_seqs) for fill in FILLS)
    for ctx in (drafted, plain):
        prompted(ctx, n_seqs)
    drafts = [[LAST, *tokens(N_DRAFT, seed=s)] for s in range(n_seqs)]
    if name not in FEW:
        drafted.decode(several(drafts))
    for s, ids in enumerate(drafts):
        if name in FEW:
            drafted.decode(several([ids], [s]))
        assert drafted.memory.seq_rm(s, len(PROMPT) + 1 + s)
        plain.decode(several([ids[: 1 + s]], [s]))
    assert_same(drafted, plain, n_seqs)


def check_what_was_rejected(name: str, device: str) -> None:
    """Devices may sum otherwise for other sizes of batches: so both contexts had drafts, but other
    ones."""
    n_seqs = N_DRAFT + 1
    both = [context(name, device, fill, n_seq_max=n_seqs) for fill in FILLS]
    for i, ctx in enumerate(both):
        prompted(ctx, n_seqs)
        wrong = [tokens(n_seqs, seed=100 * i + s) for s in range(n_seqs)]
        same = [[LAST, *tokens(N_DRAFT, seed=s)][: 1 + s] for s in range(n_seqs)]
        ctx.decode(several([(a + b)[:n_seqs] for a, b in zip(same, wrong, strict=True)]))
        for s in range(N_DRAFT):
            assert ctx.memory.seq_rm(s, len(PROMPT) + 1 + s)
    assert_same(*both, N_DRAFT)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_rejected_does_not_matter(name: str) -> None:
    """With the kernels that write states to the memory themselves."""
    check_what_was_rejected(name, "cpu")


EACH = [
    "kimi-linear-moe",
    "lfm2-dense",
    "mamba-dense",
    "mamba2-dense",
    "qwen3next-moe",
    "rwkv6-fused",
]


@pytest.mark.parametrize("n_ubatch", [N_DRAFT + 1, 16])
@pytest.mark.parametrize("name", EACH)
def test_prompts_and_drafts_in_pieces(name: str, n_ubatch: int) -> None:
    """Sequences in any order, with drafts of other lengths, each in the ubatch that it falls into;
    in the second round others are decoded before the first one's draft is judged."""
    drafted, plain = (context(name, "ref", fill, n_seq_max=3, n_ubatch=n_ubatch) for fill in FILLS)
    for ctx in (drafted, plain):
        ctx.decode(several([PROMPT] * 3), logits="none")
    for together, accepted in ([[(2, 0, 1)], (4, 9, 1)], [[(1,), (2, 0)], (3, 2, 6)]):
        drafts = {s: tokens((6, 9, 8)[s], seed=30 + s) for s in range(3)}
        for seqs in together:
            drafted.decode(several([drafts[s] for s in seqs], seqs))
        for s, n in enumerate(accepted):
            assert drafted.memory.seq_rm(s, drafted.memory.seq_pos_max(s) + 1 - len(drafts[s]) + n)
            plain.decode(several([drafts[s][:n]], [s]))
    assert_same(drafted, plain, 3)


def test_states_of_earlier_tokens_take_limited_memory(caplog: pytest.LogCaptureFixture) -> None:
    """Fewer are kept, and that is said; what they cost is told."""
    caplog.set_level(logging.INFO, "llama_py")
    model = live("mamba2-dense", "ref")
    hp = model.hparams
    step = 4 * hp.n_layer * (hp.n_embd_r + hp.n_embd_s) * 20  # of 20 sequences
    ctx = Context(model, n_ctx=256, n_seq_max=20, n_rs_seq=64, rs_ram=1)
    n_kept = 2**20 // step
    assert ctx.cparams.n_rs_seq == n_kept > 0
    assert f"n_rs_seq = 64 needs {step / 2**20:.1f} MiB" in caplog.text
    assert f"rollback: {n_kept * step / 2**20:7.2f} MiB" in caplog.text
    assert Context(model, n_ctx=256, n_rs_seq=64, rs_ram=0).cparams.n_rs_seq == 64
    assert Context(live("llama-dense"), n_ctx=256, n_rs_seq=64).cparams.n_rs_seq == 0
