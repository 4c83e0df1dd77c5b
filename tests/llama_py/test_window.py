"""Windows: what a token sees is what llama.cpp lets it see."""

from __future__ import annotations

import numpy as np
import pytest

from llama_py.batch import Batch
from llama_py.context import Context
from llama_py.hparams.layer_shape import Window, WindowKind
from tests.support.live_models import EXACT, live, made, model_of, nmse


def is_masked_swa(n_swa: int, swa_type: str, p0: int, p1: int) -> bool:
    """llama-hparams.h:is_masked_swa, line by line."""
    match swa_type:
        case "standard":
            if p1 - p0 >= n_swa:
                return True
        case "chunked":
            pos_chunk_start = (p1 // n_swa) * n_swa
            if p0 < pos_chunk_start:
                return True
        case "symmetric":
            half_n_swa = n_swa // 2
            pos_diff = p1 - p0
            if pos_diff < -half_n_swa or pos_diff > half_n_swa:
                return True
    return False


@pytest.mark.parametrize("size", [1, 2, 4, 5])
@pytest.mark.parametrize("kind", ["standard", "chunked", "symmetric"])
def test_windows_hide_what_llama_cpp_masks(kind: WindowKind, size: int) -> None:
    window, n = Window(size, kind), 17
    expected = [[is_masked_swa(size, kind, p0, p1) for p0 in range(n)] for p1 in range(n)]
    pos = np.arange(n)
    assert window.hides(pos[None, :], pos[:, None]).tolist() == expected
    assert [[bool(window.hides(p0, p1)) for p0 in range(n)] for p1 in range(n)] == expected


def test_all_may_be_kept() -> None:
    """Then a sequence goes on from any earlier token."""
    model, tokens = live("gemma3-dense", "ref"), [i % 50 for i in range(60)]
    again = []
    for swa_full in (True, False):
        ctx = Context(model, n_ctx=512, n_ubatch=8, swa_full=swa_full)
        ctx.decode(tokens)
        if not swa_full:  # fewer cells than tokens
            assert [kv.kv_size for kv in ctx.memory.windows] == [256]
            ctx = Context(model, n_ctx=512)
            ctx.decode(tokens[:9])
        else:
            assert [kv.kv_size for kv in ctx.memory.windows] == [512]
            assert ctx.memory.seq_rm(0, 9, -1)
        again.append(ctx.decode([3, 4, 5], logits="all"))
    assert np.allclose(*again, atol=1e-9)


def test_a_window_may_be_larger_than_every_position() -> None:
    tokens = [i % 50 for i in range(20)]
    rows = [
        Context(model_of(*made("gemma3-dense", attention__sliding_window=n))).decode(tokens)
        for n in (64, 2**32 - 1)
    ]
    assert (rows[0] == rows[1]).all()


def test_the_last_tokens_are_the_default() -> None:
    assert Window(3) == Window(3, "standard")
    assert [p for p in range(6) if not Window(3).hides(p, 5)] == [3, 4, 5]


def test_keys_are_turned_on_as_their_layer_turns_them() -> None:
    """With a window all channels, elsewhere half of them and with factors; llama.cpp refuses."""
    tokens, rows = [5, 9, 11, 2, 7, 1], []
    for first in (0, 7):
        ctx = Context(live("step35-mtp"), **EXACT)
        ctx.decode(Batch(tokens, pos=[first + i for i in range(6)], outputs=[False] * 6), "none")
        if first == 0:
            ctx.memory.seq_add(0, 0, -1, 7)
        rows.append(ctx.decode(Batch([4], pos=[13], outputs=[True])))
    assert nmse(rows[1], rows[0]) < 1e-11
