"""Contexts of NextN layers: what they give back, what they need, and which files have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ggml_py.errors import ContextError, WeightsError
from llama_py.batch import Batch
from llama_py.context import Context
from llama_py.model import Model
from tests.support.live_models import EXACT, PROMPT, Arrays, changed, model_of, nmse, two_heads

NORMED = ["qwen35-mtp", "qwen35moe-mtp", "qwen3next-mtp", "deepseek32-moe"]
NAMES = [*NORMED, "step35-mtp"]  # whose state is always the one before the last norm
HIDDEN = np.random.default_rng(2).standard_normal((len(PROMPT), 64)).astype(np.float32)
CLOSE = 1e-12
Rows = NDArray[np.float32]


def drafter(name: str, *changes: Any, **options: Any) -> Context:
    model = model_of(*changed(name, *changes), load_mtp=True)
    return Context(model, **{**EXACT, **options}, mtp=True)


def batch(*outputs: int) -> Batch:
    return Batch(PROMPT, embd=HIDDEN, outputs=[i in outputs for i in range(len(PROMPT))])


def states(ctx: Context, *outputs: int, **how: bool) -> Rows:
    ctx.clear()
    ctx.set_embeddings_nextn(True, **how)
    ctx.decode(batch(*outputs))
    assert ctx.h_nextn is not None
    return ctx.h_nextn


@pytest.mark.parametrize("n_ubatch", [64, 4])
@pytest.mark.parametrize("name", NAMES)
def test_states_are_those_of_the_outputs(name: str, n_ubatch: int) -> None:
    """In the graph of some architectures every token still has one."""
    ctx = drafter(name, n_ubatch=n_ubatch)
    every = states(ctx, *range(len(PROMPT)), masked=True)
    for outputs in ([12], [0, 5, 11], []):
        found = states(ctx, *outputs, masked=True)
        assert found.shape == (len(outputs), 64)
        assert not outputs or nmse(every[outputs], found) < CLOSE


@pytest.mark.parametrize("name", NAMES)
def test_states_of_all_tokens_of_which_some_are_outputs(name: str) -> None:
    ctx = drafter(name)
    every = states(ctx, *range(len(PROMPT)), masked=True)
    assert nmse(every, states(ctx, 3, 12)) < CLOSE


def rms(rows: Rows, weight: Rows, eps: float) -> Rows:
    scale = np.sqrt(np.square(rows).mean(1, keepdims=True) + eps)
    return (rows / scale * weight).astype(np.float32)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("mtp", [True, False])
@pytest.mark.parametrize("name", NORMED)
def test_states_before_the_last_norm(name: str, mtp: bool, masked: bool) -> None:
    metadata, arrays = changed(name)
    model = model_of(metadata, arrays, load_mtp=True)
    ctx = Context(model, **EXACT, mtp=mtp)
    post = states(ctx, 2, 12, masked=masked)
    pre = states(ctx, 2, 12, masked=masked, pre_norm=True)
    assert post.shape == pre.shape == (2 if masked else len(PROMPT), 64)
    own = f"blk.{model.hparams.n_layer}.nextn.shared_head_norm.weight"
    weight = arrays[own if mtp and own in arrays else "output_norm.weight"]
    assert nmse(post, rms(pre, weight, model.hparams.f_norm_rms_eps)) < 1e-10
    assert nmse(post, pre) > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_a_draft_needs_the_state_before_each_token(name: str) -> None:
    ctx = drafter(name)
    ctx.decode(batch(12))
    with pytest.raises(ContextError, match="needs the hidden state before each token"):
        ctx.decode([1])
    with pytest.raises(ContextError, match="rows of h_nextn"):
        ctx.decode(Batch([1], outputs=[True]))
    assert ctx.memory.seq_pos_max(0) == 12


def without(*prefixes: str) -> Any:
    def change(metadata: dict[str, Any], arrays: Arrays) -> None:
        for name in [name for name in arrays if name.startswith(prefixes)]:
            del arrays[name]

    return change


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_nextn_layers_alone(name: str) -> None:
    n_layer = drafter(name).model.hparams.n_layer
    trunk = without(*(f"blk.{il}." for il in range(n_layer)))
    whole, alone = (drafter(name, *change).decode(batch(12)) for change in ([], [trunk]))
    assert (whole == alone).all()
    for load_mtp in (True, False):
        model = model_of(*changed(name, trunk), load_mtp=load_mtp)
        with pytest.raises(ContextError, match="it can only draft; pass it as model"):
            Context(model, **EXACT)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_the_trunk_alone(name: str) -> None:
    n_layer = drafter(name).model.hparams.n_layer
    metadata, arrays = changed(name)
    whole = Context(model_of(metadata, arrays), **EXACT).decode(PROMPT)
    metadata, arrays = changed(name, without(f"blk.{n_layer}."))
    assert (Context(model_of(metadata, arrays), **EXACT).decode(PROMPT) == whole).all()
    with pytest.raises(WeightsError, match=r"missing: blk\.\d\.attn_norm"):
        model_of(metadata, arrays, load_mtp=True)


def negative(metadata: dict[str, Any], arrays: Arrays) -> None:
    n_all = metadata[f"{metadata['general.architecture']}.block_count"]
    arrays[f"blk.{n_all - 1}.nextn.eh_proj.weight"] *= -1


@pytest.mark.parametrize("name", NAMES)
def test_each_of_several_heads(name: str) -> None:
    for n, change in enumerate(([], [negative])):
        ctx = drafter(name, two_heads, nextn_layer=n)
        assert nmse(drafter(name, *change).decode(batch(12)), ctx.decode(batch(12))) < CLOSE
    with pytest.raises(
        ContextError, match=r"nextn_layer must be in .0, 2., the NextN layers of the model, got 2"
    ):
        drafter(name, two_heads, nextn_layer=2)


def test_models_without_nextn_layers() -> None:
    model = Model(None, load_mtp=False)
    with pytest.raises(ContextError, match="load_mtp=True"):
        Context(model, n_ctx=256, mtp=True)


def three_matrices(metadata: dict[str, Any], arrays: Arrays) -> None:
    """What queries, keys and values are made by, cut out of one matrix."""
    hp = model_of(metadata, arrays).hparams
    for name in [name for name in arrays if name.endswith("attn_qkv.weight")]:
        stem, shape = name.removesuffix("qkv.weight"), hp.layers[int(name.split(".")[1])]
        joint, scale = arrays.pop(name), arrays.pop(f"{stem}qkv.scale", None)
        ends = shape.n_embd_q, shape.n_embd_q + shape.n_embd_k_gqa
        for x, part in zip("qkv", np.split(joint, ends, axis=-2), strict=True):
            arrays[f"{stem}{x}.weight"] = part
            if scale is not None:
                arrays[f"{stem}{x}.scale"] = scale


def test_three_matrices_draft_as_one() -> None:
    """With three of them llama.cpp ends the process."""
    one, three = (drafter("mimo2-mtp", *c).decode(batch(12)) for c in ([], [three_matrices]))
    assert nmse(one, three) < CLOSE
