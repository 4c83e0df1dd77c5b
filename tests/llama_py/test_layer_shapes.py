"""Layers that differ from one another: heads in some of them only, windows and states together."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import llama_py
from dev import tiny_models as tiny
from dev.tiny_models import _invent
from ggml_py.errors import HParamsError
from llama_py import models
from llama_py.blocks.attention import Attention
from llama_py.blocks.mamba import Mamba2Mixer, SSMHParams
from llama_py.context import Context, state
from llama_py.gguf.keys import number
from llama_py.hparams import RMS_EPS, HParams, WindowedHParams
from llama_py.hparams.layer_shape import ROPE_NEOX, Window
from llama_py.memory.specs import KVCacheSpec, StateSpec
from llama_py.models.trunks.decoder import Decoder, Layer
from llama_py.weights import Weights
from tests.support.live_models import EXACT, PROMPT, logits, model_of, nmse, tokens
from tests.support.live_models import made as weights_of

SIZES = {
    "vocab_size": 128,
    "context_length": 256,
    "block_count": 2,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.layer_norm_rms_epsilon": 1e-5,
}


class Heads(HParams):
    rope_type = ROPE_NEOX
    required_heads = True


def read(kind: type[HParams], **changes: Any) -> Any:
    """Hyperparameters; `__` in a name is a dot."""
    keys = SIZES | {key.replace("__", "."): value for key, value in changes.items()}
    return kind({f"toy.{key}": value for key, value in keys.items()}, "toy")


def keeps(hp: HParams) -> list[Any]:
    """What layers keep unless an architecture says otherwise."""
    toy = object.__new__(Toy)
    toy.hp = hp
    return [toy.memory_spec(il) for il in range(hp.n_layer)]


def test_heads_of_the_second_layer_only() -> None:
    hp = read(Heads, attention__head_count=[0, 2])
    assert (hp.n_head, hp.n_head_kv) == ((0, 2), (0, 2))
    assert (hp.n_embd_head_k, hp.n_embd_head_v, hp.n_rot) == (32, 32, 32)
    assert [layer.n_embd_q for layer in hp.layers] == [0, 64]
    assert keeps(hp) == [(), (KVCacheSpec(2, 32, 32, None, hp.rope(1)),)]


def test_every_layer_has_its_own_heads() -> None:
    hp = read(Heads, attention__head_count=[4, 2], attention__head_count_kv=[1, 2])
    assert [layer.n_embd_q for layer in hp.layers] == [64, 32]
    assert [layer.n_embd_k_gqa for layer in hp.layers] == [16, 32]
    hp = read(Heads, attention__head_count=2, attention__head_count_kv=[0, 1])
    assert [len(kept) for kept in keeps(hp)] == [0, 1]


def test_no_layer_has_heads() -> None:
    with pytest.raises(HParamsError, match=r"head_count must be at least 1, got \[0, 0\]"):
        read(Heads, attention__head_count=[0, 0])
    with pytest.raises(HParamsError, match="must divide head_count = 3"):
        read(Heads, attention__head_count=[0, 3], attention__head_count_kv=[0, 2])


class ToyHParams(SSMHParams, WindowedHParams):
    """Layers: states, a window, states, everything."""

    rope_type = ROPE_NEOX
    n_pattern = 4
    f_norm_rms_eps: float = number(RMS_EPS)

    def is_recr(self, il: int) -> bool:
        return il % 2 == 0


class Toy(Decoder):
    arch = "toy"
    HParams = ToyHParams
    hp: ToyHParams

    def layer(self, w: Weights, il: int) -> Layer:
        hp, norm = self.hp, w.norm("attn_norm", self.hp.n_embd)
        mixer = Mamba2Mixer(w, hp) if hp.is_recr(il) else Attention(w, hp)
        return Layer(norm, mixer, None, None)


HYBRID = {
    "attention__head_count": [0, 4, 0, 4],
    "attention__head_count_kv": [0, 2, 0, 1],
    "attention__key_length_swa": 32,
    "attention__value_length_swa": 32,
    "block_count": 4,
    "ssm__conv_kernel": 4,
    "ssm__inner_size": 128,
    "ssm__state_size": 16,
    "ssm__time_step_rank": 8,
    "ssm__group_count": 2,
    "attention__sliding_window": 8,
}


def test_states_beside_windows() -> None:
    hp = read(ToyHParams, **HYBRID)
    window = Window(8)
    assert [layer.window for layer in hp.layers] == [None, window, None, None]
    states = (StateSpec(hp.n_embd_r, hp.n_embd_s, *hp.state_sections),)
    seen = (KVCacheSpec(2, 32, 32, window, hp.rope(1)),)
    assert keeps(hp) == [states, seen, states, (KVCacheSpec(1, 16, 16, None, hp.rope(3)),)]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Makes a model, of Toy or an architecture, from keys and gains."""
    found = {"toy": SimpleNamespace(load=lambda: SimpleNamespace(Toy=Toy))}
    monkeypatch.setattr(models, "_entry_points", lambda: found)

    def load(arch: str, keys: dict[str, Any], gain: dict[str, float]) -> Any:
        named = {key.replace("__", "."): value for key, value in keys.items()}
        chosen = tiny.Tiny(keys=SIZES | named, without=["*.bias", "*.scale"], gain=gain)
        for module in (tiny, _invent):
            monkeypatch.setattr(module, "find", lambda *_: chosen, raising=False)
        return llama_py.load(tiny.write(arch, "made", tmp_path), "cpu")

    return load


@pytest.fixture
def hybrid(made: Any) -> Any:
    """Makes a model of Toy with a window."""
    more = {"*.attn_[qk].weight": 2.0}
    return lambda n_swa: made("toy", HYBRID | {"attention__sliding_window": n_swa}, more)


def rows(model: Any, n_batch: int, **how: Any) -> NDArray[np.float32]:
    ctx, ids = context(model, **how), tokens(30)
    parts = [ids[i : i + n_batch] for i in range(0, len(ids), n_batch)]
    return np.concatenate([ctx.decode(part, "all") for part in parts])


def context(model: Any, **how: Any) -> Any:
    return model.context(256, type_k="f32", type_v="f32", flash_attn="off", **how)


def test_states_beside_windows_are_computed(hybrid: Any) -> None:
    model = hybrid(8)
    whole = rows(model, 30)
    assert nmse(whole, rows(model, 1)) < 1e-9
    assert nmse(whole, rows(model, 30, n_ubatch=7)) < 1e-9
    wider = rows(hybrid(16), 30)
    assert nmse(whole[:8], wider[:8]) < 1e-9
    assert nmse(whole[12:], wider[12:]) > 1e-3


@pytest.mark.parametrize(
    ("n_head", "n_ff", "zero"),
    [
        ([0, 4], [96, 96], ["blk.0.attn_output.weight"]),
        ([4, 4], [0, 96], ["blk.0.ffn_down.weight"]),
        ([4, 4], [96, 0], ["blk.1.ffn_down.weight"]),
        ([4, 0], [96, 0], ["blk.1.attn_output.weight", "blk.1.ffn_down.weight"]),
    ],
)
def test_a_layer_without_a_block_is_one_whose_block_gives_nothing(
    made: Any, n_head: list[int], n_ff: list[int], zero: list[str]
) -> None:
    without = rows(
        made("deci", {"attention__head_count": n_head, "feed_forward_length": n_ff}, {}), 30
    )
    whole = {"attention__head_count": 4, "feed_forward_length": 96}
    assert nmse(without, rows(made("deci", whole, dict.fromkeys(zero, 0.0)), 30)) < 1e-9
    assert nmse(without, rows(made("deci", whole, {}), 30)) > 1e-3


def test_states_beside_windows_are_saved(hybrid: Any) -> None:
    model, ids = hybrid(8), tokens(30)
    ctx, other = context(model), context(model)
    ctx.decode(ids[:20])
    other.decode(ids[20:])
    state.load(other, state.save(ctx))
    assert nmse(ctx.decode(ids[20:], "all"), other.decode(ids[20:], "all")) < 1e-9


def test_values_of_one_channel() -> None:
    """Kept transposed, without flash attention, they look like others."""
    model = model_of(*weights_of("plamo3-windows", attention__value_length=1))
    rows = logits(model)
    ctx = Context(model, **EXACT)
    assert nmse(rows, np.concatenate([ctx.decode([t]) for t in PROMPT])) < 1e-9
    flash = Context(model, **EXACT | {"flash_attn": True}).decode(PROMPT, logits="all")
    assert nmse(rows, flash) < 1e-5
