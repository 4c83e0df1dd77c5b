"""What every architecture must do on the CPU: sequences that are copied, removed and kept, states
that are saved and read back, no outputs, embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ggml_py.backend import get_tensor
from llama_py.batch import Batch
from llama_py.context import Context, state
from llama_py.memory.compressed import CompressedMemory
from llama_py.memory.specs import CompressedSpec, StateSpec
from tests.support.graph_models import CONTINUING, first_of_each, is_folded, kept, memory_kinds
from tests.support.live_models import NEVER, live, nmse, tokens

PROMPT, OTHER = tokens(40), tokens(25, seed=5)  # the first is longer than the windows
CLOSE = 1e-9
EXACT: dict[str, Any] = {"type_k": "f32", "type_v": "f32", "flash_attn": "off"}

of_every = pytest.mark.parametrize("name", CONTINUING)
# Models with recurrent states or compressed keys; other models have no state to compare.
STATEFUL = [
    n for n in CONTINUING if any(isinstance(one, StateSpec | CompressedSpec) for one in kept(n))
]


def context(name: str, **options: Any) -> Context:
    return Context(live(name, "cpu"), **{"n_ctx": 1024, "n_ubatch": 64, "n_seq_max": 4, **options})


def one(token: int, *seqs: int) -> Batch:
    return Batch([token] * len(seqs), seq_ids=[(s,) for s in seqs], outputs=[True] * len(seqs))


def filled(name: str, **options: Any) -> Context:
    """PROMPT in sequence 0, OTHER in sequence 2."""
    ctx = context(name, **options)
    for s, ids in ((0, PROMPT), (2, OTHER)):
        ctx.decode(Batch(ids, seq_ids=[(s,)] * len(ids)), logits="none")
    return ctx


def states(ctx: Context) -> list[NDArray[Any]]:
    """The recurrent states of cell 0, or what compressed keys of sequence 0 are made of."""
    recr = ctx.memory.recr
    if isinstance(recr, CompressedMemory):
        return [get_tensor(t)[0, 0] for one in recr.kinds.values() for t in one.states()]
    return [] if recr is None else [get_tensor(t)[0, 0, 0].copy() for t in recr.all_tensors()]


@of_every
def test_sequences_are_copied_removed_and_kept(name: str) -> None:
    ctx, ref = filled(name, **EXACT), filled(name, **EXACT)
    expected = ref.decode(one(7, 0, 2))
    ctx.memory.seq_cp(0, 1)
    found = ctx.decode(one(7, 0, 1))
    assert nmse(expected[0], found[0]) < CLOSE
    assert nmse(expected[0], found[1]) < CLOSE
    assert ctx.memory.seq_rm(0)
    ctx.memory.seq_keep(2)
    assert [ctx.memory.seq_pos_max(s) for s in range(3)] == [-1, -1, len(OTHER) - 1]
    assert nmse(expected[1], ctx.decode(one(7, 2))) < CLOSE


@of_every
def test_a_new_sequence_beside_others(name: str) -> None:
    """The sequences before it have other tokens in their cells."""
    ctx, alone, text = filled(name, **EXACT), context(name, **EXACT), tokens(9, seed=8)
    expected = alone.decode(text, logits="all")
    batch = Batch([*text, 7], seq_ids=[(3,)] * 9 + [(2,)], outputs=[True] * 10)
    assert nmse(expected, ctx.decode(batch)[:9]) < CLOSE


def order_noise(name: str, options: dict[str, Any]) -> float:
    """Return the NMSE that the order of sums alone gives: tokens in one batch or one by one. It
    grows with the number of layers."""
    ctx, tokens = context(name, **options), PROMPT[:12]
    batch = context(name, **options).decode(tokens, logits="all")
    return max(nmse(row, ctx.decode([token])) for row, token in zip(batch, tokens, strict=True))


# Without flash attention values are kept transposed.
EACH_KIND = first_of_each(memory_kinds, CONTINUING)
SAVED = [(n, "on") for n in CONTINUING] + [(n, "off") for n in EACH_KIND]


@pytest.mark.parametrize(("name", "flash_attn"), SAVED)
def test_states_are_saved_and_read(name: str, flash_attn: str, tmp_path: Path) -> None:
    """All of them and one; in bytes, and each kind of memory in files. With a window the next
    token may take another cell than it would have, so sums have another order, and F16 may be the
    next one."""
    options, close = {"flash_attn": flash_attn}, 1e-12
    if context(name).memory.windows:
        options = {**EXACT, **options}
        close = max(close, order_noise(name, options)) if flash_attn == "off" else CLOSE
    src = filled(name, **options)
    whole, single = state.save(src), state.save(src, 2)
    assert state.save_file(src, tmp_path / "all", tokens=PROMPT) == len(whole) + 4 * len(PROMPT)
    state.save_file(src, tmp_path / "one", 2, tokens=OTHER)
    expected = src.decode(one(7, 0, 2))
    for in_file in (False, True) if name in EACH_KIND else (False,):
        dst = context(name, **options)
        dst.decode(OTHER[:3])
        found = state.load_file(dst, tmp_path / "all") if in_file else state.load(dst, whole)
        assert found == (PROMPT if in_file else [])
        assert nmse(expected, dst.decode(one(7, 0, 2))) < close
        found = state.load_file(dst, tmp_path / "one", 1) if in_file else state.load(dst, single, 1)
        assert found == (OTHER if in_file else [])
        assert dst.memory.seq_pos_max(1) == len(OTHER) - 1
        assert nmse(expected[1], dst.decode(one(7, 1))) < close


@of_every
def test_outputs_may_be_none_some_or_all(name: str) -> None:
    every = context(name, **EXACT).decode(PROMPT, logits="all")
    ctx = context(name, **EXACT, n_ubatch=16)  # ubatches without any output
    assert ctx.decode(PROMPT[:-1], logits="none").shape == (0, ctx.n_vocab)
    assert nmse(every[-1], ctx.decode(PROMPT[-1:])[0]) < CLOSE
    ctx.clear()
    want = [3, 17, 18, 39]
    found = ctx.decode(Batch(PROMPT, outputs=[i in want for i in range(len(PROMPT))]))
    assert nmse(every[want], found) < CLOSE


@pytest.mark.parametrize("name", [n for n in CONTINUING if not is_folded(n)])
def test_embeddings_are_what_the_head_sees(name: str) -> None:
    ctx = context(name, **EXACT, embeddings=True)
    found, embd = ctx.decode(PROMPT), ctx.embd
    if not len(found):  # beside embeddings there is no head: logits of a context without
        found = context(name, **EXACT).decode(PROMPT, logits="all")
    head = ctx.model.architecture.output
    assert embd is not None and embd.shape == (len(PROMPT), ctx.model.hparams.n_embd)
    expected = embd @ get_tensor(head.weight)[0, 0].T
    if head.bias is not None:
        expected += get_tensor(head.bias)[0, 0]
    expected *= ctx.model.hparams.logit_scale or 1.0
    if ctx.model.hparams.final_logit_softcap:
        cap = ctx.model.hparams.final_logit_softcap
        expected = cap * np.tanh(expected / cap)
    expected = np.where(found < NEVER, found, expected)
    assert nmse(expected, found) < 1e-11


@pytest.mark.parametrize("name", STATEFUL)
def test_states_after_a_prompt_are_those_after_its_tokens(name: str) -> None:
    whole, single = context(name, **EXACT), context(name, **EXACT)
    whole.decode(PROMPT)
    for token in PROMPT:
        single.decode([token])
    assert states(whole)
    for expected, found in zip(states(whole), states(single), strict=True):
        assert nmse(expected, found) < CLOSE
