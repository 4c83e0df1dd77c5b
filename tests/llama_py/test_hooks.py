"""Values that are looked at and changed while a context decodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ggml_py.errors import ContextError
from ggml_py.tensor import Tensor
from llama_py.context import Context
from llama_py.hooks.values import read
from llama_py.weights.placement import Placement, devices_in_use
from tests.support.live_models import live, made, model_of, tokens
from tests.support.split_models import KEYS, shared

# one of each way to attend, and states of every kind
MODELS = [
    "llama-dense",
    "gemma2-dense",
    "gpt-oss-moe",
    "deepseek2-moe",
    "qwen35moe-moe",
    "kimi-linear-moe",
    "mamba-dense",
    "rwkv6-fused",
    "lfm2-dense",
]
IDS = tokens(9)
F32_CACHE: dict[str, Any] = {"type_k": "f32", "type_v": "f32"}


def context(name: str, device: str = "cpu", **options: Any) -> Context:
    return Context(live(name, device), n_ctx=32, n_threads=1, **options)


def decoded(ctx: Context, ids: list[int] = IDS) -> Any:
    """Logits of a prompt, and of a token after it."""
    ctx.clear()
    return np.concatenate([ctx.decode(ids[:-1], "all"), ctx.decode(ids[-1:])])


class Watched:
    """All values of the last graph by name, from a context that computes nodes one by one."""

    def __init__(self, name: str, device: str, **options: Any) -> None:
        self.values: dict[str, list[Any]] = {}
        self.ctx = context(name, device, watch=self._keep, **options)

    def _keep(self, t: Tensor) -> None:
        self.values.setdefault(t.name, []).append(read(t, list(self.ctx.devices)))


@pytest.mark.parametrize("name", MODELS)
def test_every_value_is_what_a_watching_context_sees(name: str) -> None:
    """On the CPU, too, where nothing of a graph in which all is wanted can be fused: bit for bit;
    also those that later nodes write over."""
    ctx, watched = context(name), Watched(name, "cpu")
    watched.ctx.decode(IDS)
    with ctx.capture("*") as values:
        ctx.decode(IDS)
    names = {n for n in watched.values if n in values}
    assert len(names) > 20
    for n in names:
        np.testing.assert_array_equal(values[n], watched.values[n][-1], err_msg=n)


@pytest.mark.parametrize("name", MODELS)
def test_nothing_changes_by_being_seen(name: str) -> None:
    """Nor by being replaced by itself; the other nodes are fused as before, or some less."""
    ctx = context(name)
    want = decoded(ctx)
    with ctx.capture("l_out-*", "result_norm") as values:
        np.testing.assert_array_equal(decoded(ctx), want)
    assert any(key.startswith("l_out-") for key in values)
    with ctx.patch("l_out-*", lambda x, _: x), ctx.patch("result_norm", lambda x, _: None):
        np.testing.assert_array_equal(decoded(ctx), want)
    np.testing.assert_array_equal(decoded(ctx), want)


@pytest.mark.parametrize("name", ["llama-dense", "qwen35moe-moe"])
def test_a_value_of_another_text(name: str) -> None:
    """The last layer's result from one text, put into another: its logits."""
    ctx, other = context(name), tokens(9, seed=5)
    last = f"blocks.{ctx.model.hparams.n_layer - 1}.hook_resid_post"
    with ctx.capture(last) as values:
        want = ctx.decode(other, "all")
    ctx.clear()
    with ctx.patch(last, values[last]):
        np.testing.assert_array_equal(ctx.decode(IDS, "all"), want)


def test_what_comes_after_reads_the_new_value() -> None:
    """The same as on the reference, where each node is computed by itself."""
    found = []
    for device in ("ref", "cpu"):
        ctx = context("qwen35moe-moe", device)
        with ctx.patch("blocks.1.hook_resid_mid", lambda x, at: x * (1 + at.ubatch.n_tokens)):
            found.append(decoded(ctx))
        assert np.abs(found[-1] - decoded(ctx)).max() > 0.1
    np.testing.assert_allclose(found[1], found[0], atol=2e-3, rtol=2e-3)


def test_hooks_of_one_node_take_turns() -> None:
    ctx = context("llama-dense")
    with (
        ctx.capture("l_out-0") as before,
        ctx.patch("l_out-0", lambda x, _: 2 * x),
        ctx.patch("l_out-0", lambda x, _: x + 1),
        ctx.capture("l_out-0") as after,
    ):
        ctx.decode(IDS)
    np.testing.assert_array_equal(after["l_out-0"], 2 * before["l_out-0"] + 1)


def test_only_while_the_with_lasts() -> None:
    ctx = context("llama-dense")
    want = decoded(ctx)
    n_graphs = len(ctx.runner.graphs)
    with ctx.capture("l_out-0") as values:
        decoded(ctx)
    n = len(values.history("l_out-0"))
    with ctx.patch("l_out-0", 0):
        assert np.abs(decoded(ctx) - want).max() > 0.1
    np.testing.assert_array_equal(decoded(ctx), want)
    assert n == len(values.history("l_out-0")) == 2
    assert len(ctx.runner.graphs) == n_graphs


def test_a_prompt_in_several_ubatches() -> None:
    ctx = context("llama-dense", n_ubatch=4)
    with ctx.capture("l_out-0") as parts:
        ctx.decode(IDS, "all")
    whole = context("llama-dense")
    with whole.capture("l_out-0") as one:
        whole.decode(IDS, "all")
    assert [len(rows) for rows in parts.history("l_out-0")] == [4, 4, 1]
    rows = np.concatenate(parts.history("l_out-0"))
    np.testing.assert_allclose(rows, one["l_out-0"], atol=1e-5, rtol=1e-5)


ATTENDING = ["llama-dense", "gemma2-dense", "gpt-oss-moe", "deepseek2-moe", "qwen35moe-moe"]


@pytest.mark.parametrize("name", ATTENDING)
def test_the_weights_of_attention(name: str) -> None:
    """Flash attention has none in memory; they are those of a context without it."""
    plain = context(name, flash_attn=False, **F32_CACHE)
    flash = context(name, **F32_CACHE)
    for ctx in (plain, flash):
        ctx.decode(IDS[:3])
    with plain.capture("kq_soft_max-*") as want:
        plain.decode(IDS[3:])
    with flash.capture("blocks.*.attn.hook_pattern") as got:
        flash.decode(IDS[3:])
    assert len(got) == len(want) > 0
    for mine, theirs in zip(got.values(), want.values(), strict=True):
        n_kv = theirs.shape[-1]
        np.testing.assert_allclose(mine[..., :n_kv], theirs, atol=2e-3)
        assert mine[..., :3].any() and (np.abs(mine.sum(-1)) < 1 + 1e-5).all()


def test_weights_of_a_quantized_cache() -> None:
    ctx, exact = context("llama-dense", type_k="q8_0"), context("llama-dense")
    with ctx.capture("kq_soft_max-0") as got, exact.capture("kq_soft_max-0") as want:
        ctx.decode(IDS), exact.decode(IDS)
    error = np.abs(got["kq_soft_max-0"] - want["kq_soft_max-0"]).max()
    assert 0 < error < 0.05


def test_on_several_devices() -> None:
    arrays = made("llama-dense", **KEYS["llama-dense"])
    placement = Placement(devices_in_use(["cpu", "cpu"]), n_gpu_layers=1)
    found = []
    for on in ("cpu", placement):
        ctx = Context(model_of(*arrays, on), n_ctx=32, n_threads=1)
        with (
            ctx.capture("l_out-*", "kq_soft_max-*") as values,
            ctx.patch("l_out-0", lambda x, _: 3 * x),
        ):
            logits = ctx.decode(IDS, "all")
        found.append({**values, "logits": logits})
    assert found[0].keys() == found[1].keys()
    for key, want in found[0].items():
        np.testing.assert_allclose(found[1][key], want, atol=1e-3, rtol=1e-3)


def test_devices_that_share_layers() -> None:
    """What all of them have may be seen; a change would have to reach each."""
    one = context("llama-dense")
    ctx = Context(shared("llama-dense", [1, 1]), n_ctx=32, n_threads=1)
    with ctx.capture("l_out-0") as values:
        ctx.decode(IDS)
    assert values["l_out-0"].shape == (len(IDS), one.model.hparams.n_embd)
    with pytest.raises(ContextError, match="split_mode='layer'"), ctx.patch("l_out-0", 0):
        pass


def test_names() -> None:
    asked = [
        "Qcur-1",
        "Qcur-1#0",
        "blocks.1.attn.hook_rot_q",
        "hook_embed",
        "blocks.*.hook_resid_pre",
        "ln_final.hook_normalized",
        "l_out-?",
    ]
    ctx = context("qwen3-dense")
    with ctx.capture(*asked) as values:
        ctx.decode(IDS, "all")
    layers = range(ctx.model.hparams.n_layer)
    several = [f"blocks.{il}.hook_resid_pre" for il in layers] + [f"l_out-{il}" for il in layers]
    assert set(values) == {*asked[:4], asked[5], *several}
    np.testing.assert_array_equal(values["Qcur-1"], values["blocks.1.attn.hook_rot_q"])
    assert np.abs(values["Qcur-1"].reshape(-1) - values["Qcur-1#0"].reshape(-1)).max() > 1e-3
    np.testing.assert_array_equal(values["hook_embed"], values["blocks.0.hook_resid_pre"])
    np.testing.assert_array_equal(values["l_out-0"], values["blocks.1.hook_resid_pre"])


REFUSED = [
    ("l_ouy-0", None, "known: l_out-0"),
    ("nothing like it", None, "llama-py-graph dump"),
    ("l_out-0#x", None, "is not a node name"),
    ("kq_soft_max-0", 0, "flash_attn=False"),
]


@pytest.mark.parametrize(("name", "change", "message"), REFUSED)
def test_names_that_mean_nothing(name: str, change: Any, message: str) -> None:
    ctx = context("llama-dense")
    with (
        pytest.raises(ContextError, match=message),
        ctx.capture(name) if change is None else ctx.patch(name, change),
    ):
        pass
    assert np.isfinite(ctx.decode(IDS)).all()


def test_a_change_that_fails_leaves_the_context_as_it_was() -> None:
    ctx = context("qwen35moe-moe")
    want = decoded(ctx)
    ctx.clear()

    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    with ctx.patch("l_out-1", fail), pytest.raises(ZeroDivisionError):
        ctx.decode(IDS)
    with (
        ctx.patch("l_out-1", np.zeros(3)),
        pytest.raises(ContextError, match=r"l_out-1: new value must have shape .*, got \(3,\)"),
    ):
        ctx.decode(IDS)
    assert ctx.memory.seq_pos_max(0) == -1
    np.testing.assert_array_equal(decoded(ctx), want)


@pytest.mark.parametrize("name", ["ffn_moe_topk-1", "k_cache"])
def test_other_types_than_f32(name: str) -> None:
    """Indices of experts, and what is written to an f16 cache."""
    ctx = context("qwen35moe-moe")
    want = decoded(ctx)
    pattern = name if "topk" in name else "cache_k_l*(view)"
    seen = []

    def reverse(x: Any, at: Any) -> Any:
        seen.append((at.node.type.name, x.dtype))
        return x[..., ::-1] if "topk" in name else x

    with ctx.patch(pattern, reverse):
        got = decoded(ctx)
    assert seen[0] == (("i32", np.int32) if "topk" in name else ("f16", np.float32))
    np.testing.assert_allclose(got, want, atol=1e-4, rtol=1e-4)
