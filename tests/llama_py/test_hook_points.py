"""TransformerLens's hook points: each value is what it is there, by how values hang together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ggml_py.backend import set_tensor
from ggml_py.backend.registry import device
from ggml_py.errors import ContextError
from ggml_py.ops import cast, flash_attn_ext
from ggml_py.tensor import Tensor
from ggml_py.types import F16, F32
from llama_py.blocks.softmax import _weights as weights_of
from llama_py.context import Context
from llama_py.hooks.values import as_leaf, compute_tensor, read
from tests.support.live_models import live, tokens

IDS = tokens(7)
ROTATING = ["llama-dense", "qwen2-dense", "qwen3-dense", "gemma2-dense", "glm4-dense"]
SERIAL = [*ROTATING, "gpt2-dense", "olmo2-dense", "gpt-oss-moe", "deepseek2-moe", "qwen35moe-moe"]


def context(name: str, **options: Any) -> Context:
    return Context(live(name, "cpu"), n_ctx=32, n_threads=1, type_k="f32", type_v="f32", **options)


def seen(name: str, *points: str, il: int = 0) -> list[Any]:
    """Values of a layer, the last one's too, whose tokens are all wanted."""
    ctx = context(name)
    with ctx.capture(*(f"blocks.{il}.{point}" for point in points)) as values:
        ctx.decode(IDS, "all")
    return [values[f"blocks.{il}.{point}"] for point in points]


def last_layer(name: str) -> int:
    return live(name, "cpu").hparams.n_layer - 1


@pytest.mark.parametrize("name", SERIAL)
def test_blocks_add_to_the_residual_stream(name: str) -> None:
    for il in (0, last_layer(name)):
        pre, attn, mid, mlp, post = seen(
            name,
            "hook_resid_pre",
            "hook_attn_out",
            "hook_resid_mid",
            "hook_mlp_out",
            "hook_resid_post",
            il=il,
        )
        np.testing.assert_allclose(pre + attn, mid, atol=1e-5, rtol=1e-5)
        np.testing.assert_allclose(mid + mlp, post, atol=1e-5, rtol=1e-5)
        assert np.abs(attn).max() > 1e-3 < np.abs(mlp).max()


@pytest.mark.parametrize("name", [*ROTATING, "gpt2-dense", "gpt-oss-moe", "qwen35moe-moe"])
def test_norms(name: str) -> None:
    """Rows of length sqrt(n_embd), whatever weights come after; each of its own input."""
    pre, mid, ln1, ln2 = seen(
        name, "hook_resid_pre", "hook_resid_mid", "ln1.hook_normalized", "ln2.hook_normalized"
    )
    for x, normed in ((pre, ln1), (mid, ln2)):
        if name == "gpt2-dense":
            x = x - x.mean(-1, keepdims=True)
        want = x / np.sqrt(np.square(x).mean(-1, keepdims=True))
        np.testing.assert_allclose(normed, want, atol=5e-3, rtol=5e-3)


def heads(values: Any, d: int) -> Any:
    """-> [n_head, n_tokens, d]"""
    return values.reshape(len(values), -1, d).swapaxes(0, 1)


@pytest.mark.parametrize("name", ROTATING[:3])
def test_heads(name: str) -> None:
    """RoPE turns q and k; their products make the pattern; that and v make z."""
    q, k, v, rot_q, rot_k, z, pattern = seen(
        name,
        "attn.hook_q",
        "attn.hook_k",
        "attn.hook_v",
        "attn.hook_rot_q",
        "attn.hook_rot_k",
        "attn.hook_z",
        "attn.hook_pattern",
        il=1,
    )
    d = rot_q.shape[-1]
    q, k, v, rot_q, rot_k, z = (heads(t, d) for t in (q, k, v, rot_q, rot_k, z))
    if name != "qwen3-dense":  # which norms between them
        np.testing.assert_allclose(
            np.linalg.norm(rot_q, axis=-1), np.linalg.norm(q, axis=-1), rtol=1e-4
        )
        np.testing.assert_allclose(q[:, 0], rot_q[:, 0], atol=1e-5)
        np.testing.assert_allclose(k[:, 0], rot_k[:, 0], atol=1e-5)
    assert min(np.abs(q - rot_q).max(), np.abs(k - rot_k).max()) > 0.05
    n_rep, n = len(q) // len(k), len(IDS)
    scores = rot_q @ np.repeat(rot_k, n_rep, 0).swapaxes(1, 2) / np.sqrt(d)
    scores = np.where(np.tril(np.ones((n, n), bool)), scores, -np.inf)
    want = np.exp(scores - scores.max(-1, keepdims=True))
    want /= want.sum(-1, keepdims=True)
    np.testing.assert_allclose(pattern[..., :n], want, atol=2e-3)
    np.testing.assert_allclose(want @ np.repeat(v, n_rep, 0), z, atol=5e-3, rtol=5e-3)


def test_neurons() -> None:
    pre, linear, post = seen("llama-dense", "mlp.hook_pre", "mlp.hook_pre_linear", "mlp.hook_post")
    np.testing.assert_allclose(pre / (1 + np.exp(-pre)) * linear, post, atol=1e-4, rtol=1e-3)
    pre, post = seen("gpt2-dense", "mlp.hook_pre", "mlp.hook_post")
    tanh = np.tanh(np.sqrt(2 / np.pi) * (pre + 0.044715 * pre**3))
    np.testing.assert_allclose(0.5 * pre * (1 + tanh), post, atol=1e-3, rtol=1e-3)
    probs, chosen = seen("qwen35moe-moe", "mlp.hook_expert_weights", "mlp.hook_expert_indices")
    np.testing.assert_allclose(probs.sum(-1), 1, rtol=1e-5)
    assert (np.sort(chosen) == np.sort(np.argsort(-probs)[:, : chosen.shape[1]])).all()


def test_the_ends() -> None:
    ctx = context("gpt2-dense")
    with ctx.capture(
        "hook_embed", "hook_pos_embed", "blocks.0.hook_resid_pre", "ln_final.hook_normalized"
    ) as values:
        ctx.decode(IDS, "all")
    both = values["hook_embed"] + values["hook_pos_embed"]
    np.testing.assert_allclose(both, values["blocks.0.hook_resid_pre"], atol=1e-6)
    np.testing.assert_allclose(np.square(values["ln_final.hook_normalized"]).mean(-1), 1, rtol=1e-2)


def test_a_value_without_a_name_is_changed() -> None:
    ctx = context("qwen3-dense")
    with (
        ctx.patch("blocks.1.hook_attn_out", 0),
        ctx.capture("blocks.1.hook_resid_pre", "blocks.1.hook_resid_mid") as values,
    ):
        ctx.decode(IDS, "all")
    pre, mid = values.values()
    np.testing.assert_array_equal(pre, mid)


def test_with_a_control_vector() -> None:
    ctx = context("llama-dense")
    points = [f"blocks.1.hook_{point}" for point in ("resid_mid", "mlp_out", "resid_post")]
    direction = np.linspace(-1, 1, ctx.model.hparams.n_embd, dtype=np.float32)
    ctx.set_control_vector(direction[None])
    with ctx.capture(*points) as values:
        ctx.decode(IDS, "all")
    mid, mlp, post = (values[point] for point in points)
    np.testing.assert_allclose(mid + mlp + direction, post, atol=1e-5)


ABSENT = [
    ("qwen35moe-moe", "blocks.1.mlp.hook_post", r"known: blocks\.1\.(hook_)?mlp"),
    ("mamba-dense", "blocks.1.hook_resid_mid", r"known: blocks\.1\.hook_resid_p"),
    ("deepseek2-moe", "blocks.0.attn.hook_k", r"known: blocks\.0\.attn\.hook_"),
    ("llama-dense", "blocks.9.hook_resid_post", r"known: blocks\.\d\.hook_resid_post"),
    ("llama-dense", "blocks.1.attn.hook_zz", r"known: blocks\.1\.attn\.hook_z"),
]


@pytest.mark.parametrize(("name", "point", "message"), ABSENT)
def test_others_are_named_where_there_is_none(name: str, point: str, message: str) -> None:
    with pytest.raises(ContextError, match=message), context(name).capture(point):
        pass


@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_weights_with_biases_by_distance(softcap: float) -> None:
    """ALiBi, which no architecture here has: what flash attention makes of a unit matrix."""
    rng, n = np.random.default_rng(1), 8
    hp: Any = SimpleNamespace(attn_logit_softcap=softcap, max_alibi_bias=8.0)
    q, k = (leaf(rng.standard_normal((heads, rows, 16))) for heads, rows in ((4, 3), (2, n)))
    v = leaf(np.broadcast_to(np.eye(n), (2, n, n)))
    k, v = (cast(t, F16) for t in (k, v))
    distances = leaf(np.minimum(0, np.arange(n)[None] - np.arange(3)[:, None] - 5.0)[None])
    mask, sinks = cast(distances, F16), leaf(rng.standard_normal(4))
    attended = flash_attn_ext(q, k, v, mask, 0.3, 8.0, softcap, sinks)
    devices = [device("ref")]
    want = read(compute_tensor(attended, devices), devices).swapaxes(
        0, 1
    )  # [n_head, n_tokens, n_kv]
    sources = [as_leaf(s) for s in attended.src if s is not None]
    got = read(compute_tensor(weights_of(0.3, hp, sources), devices), devices)
    np.testing.assert_allclose(got, want, atol=2e-3)
    assert want.sum(-1).max() < 0.99


def leaf(values: Any) -> Tensor:
    """A tensor with these values, its dimensions reversed."""
    t = Tensor(F32, values.shape[::-1])
    t.buffer, t.offset = device("ref").alloc(t.nbytes), 0
    set_tensor(t, np.ascontiguousarray(values, np.float32))
    return t
