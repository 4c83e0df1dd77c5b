"""What layers get, told to drafts: rows in the batch's order, however it is computed."""

from __future__ import annotations

import numpy as np
import pytest

from ggml_py.errors import ContextError
from llama_py.batch import Batch
from llama_py.context import Context
from tests.support.live_models import EXACT, live, tokens

IDS = tokens(11)


def made(name: str, **options: int) -> Context:
    ctx = Context(live(name), **{**EXACT, **options})
    ctx.set_embeddings_layer_inp([2, 0, 1])
    return ctx


@pytest.mark.parametrize("name", ["llama-dense", "qwen3next-moe", "gpt-oss-moe"])
def test_they_are_the_results_of_the_layers_before(name: str) -> None:
    ctx = made(name)
    with ctx.capture("l_out-0", "l_out-1") as captured:
        ctx.decode(IDS)
    assert ctx.layer_inp.keys() == {0, 1, 2}
    for il in (1, 2):
        assert np.array_equal(ctx.layer_inp[il], captured[f"l_out-{il - 1}"].reshape(11, 64))


def test_any_split_gives_the_same() -> None:
    whole = made("llama-dense")
    whole.decode(IDS)
    for n_ubatch in (1, 4):
        ctx = made("llama-dense", n_ubatch=n_ubatch)
        ctx.decode(IDS)
        for il, rows in whole.layer_inp.items():
            assert np.allclose(ctx.layer_inp[il], rows, atol=1e-5)
    ctx = made("llama-dense")
    for i, id in enumerate(IDS):  # the short way of one token after another
        ctx.decode([id])
        assert np.allclose(ctx.layer_inp[2][0], whole.layer_inp[2][i], atol=1e-5)


def test_rows_are_in_the_order_of_the_batch() -> None:
    """Sequences with cells of their own are computed one after another."""
    ctx = made("llama-dense", n_ctx=512, n_seq_max=2)
    mixed = Batch([3, 7, 4, 8, 5], pos=[0, 0, 1, 1, 2], seq_ids=[(0,), (1,), (0,), (1,), (0,)])
    ctx.decode(mixed)
    found = ctx.layer_inp[1]
    for ids, rows in (([3, 4, 5], found[::2]), ([7, 8], found[1::2])):
        alone = made("llama-dense")
        alone.decode(ids)
        assert np.allclose(alone.layer_inp[1], rows, atol=1e-5)


def test_what_there_is_not() -> None:
    ctx = Context(live("llama-dense"), **EXACT)
    with pytest.raises(ContextError, match="do not expose the input of layer 3 of 2"):
        ctx.set_embeddings_layer_inp([3])
    ctx.decode(IDS)
    assert ctx.layer_inp == {}
