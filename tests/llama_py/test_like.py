"""Whose computation a graph follows: by default llama.cpp's, or that of the models' authors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ggml_py.backend.null import NullDevice
from llama_py.context import Context
from llama_py.hparams import HParams
from llama_py.hparams.layer_shape import unturned_pairs
from llama_py.model import Model
from llama_py.models import architecture
from llama_py.params import ModelParams
from llama_py.params.like import LIKE, LLAMA_CPP, TRANSFORMERS, by_pattern
from tests.support.graph_models import declared, file_of, load, run
from tests.support.live_models import changed, logits, made, model_of, nmse

F64 = NDArray[np.float64]
EXACT: dict[str, Any] = {"type_k": "f32", "type_v": "f32", "flash_attn": "off"}
# Windows hide nothing of these few tokens.
GPT_OSS = {"rope__scaling__original_context_length": 4096, "attention__sliding_window": 64}


def hparams(name: str, like: str, **keys: Any) -> HParams:
    metadata, _ = made(name, **keys)
    arch = metadata["general.architecture"]
    return architecture(arch).HParams(metadata, arch, like)


def queries(like: str, name: str, before: str, n: int, **keys: Any) -> tuple[F64, F64]:
    """Queries of layer 0 without and with RoPE, (n, n_head, size)."""
    model = model_of(*made(name, **keys), on="cpu", like=like)
    ctx = model.context(n_ctx=n, n_ubatch=n, **EXACT)
    with ctx.capture(before, "blocks.0.attn.hook_rot_q") as found:
        ctx.decode([i % 64 for i in range(n)])
    after = found["blocks.0.attn.hook_rot_q"].astype(np.float64)
    return found[before].reshape(after.shape).astype(np.float64), after


def rotated(x: F64, frequencies: F64, scale: float = 1.0) -> F64:
    half = x.shape[-1] // 2
    turn = scale * np.exp(1j * np.arange(len(x))[:, None, None] * frequencies)
    pairs = (x[..., :half] + 1j * x[..., half:]) * turn
    return np.concatenate([pairs.real, pairs.imag], -1)


def yarn(hp: HParams, rounded: bool) -> F64:
    """Frequencies of transformers' `_compute_yarn_parameters`."""
    d, base, factor = hp.n_rot, hp.rope_freq_base_train, 1 / hp.rope_freq_scale_train
    bounds = [
        d * math.log(hp.n_ctx_orig_yarn / (turns * 2 * math.pi)) / (2 * math.log(base))
        for turns in (32, 1)
    ]
    low, high = (math.floor(bounds[0]), math.ceil(bounds[1])) if rounded else bounds
    low, high = max(low, 0), min(high, d - 1)
    plain = base ** (-np.arange(d // 2) * 2 / d)
    ramp = np.clip((np.arange(d // 2) - low) / (high - low), 0, 1)
    return np.asarray(plain / factor * ramp + plain * (1 - ramp), np.float64)


@pytest.mark.parametrize("like", LIKE)
def test_bounds_of_yarn_are_rounded_in_llama_cpp_only(like: str) -> None:
    hp = hparams("gpt-oss-moe", like, **GPT_OSS)
    assert hp.rope_scaling_type == "yarn" and len(hp.differences) == 1
    before, after = queries(like, "gpt-oss-moe", "blocks.0.attn.hook_q", 48, **GPT_OSS)
    scale = 1 - 0.1 * math.log(hp.rope_freq_scale_train)
    for rounded in (True, False):
        error = nmse(rotated(before, yarn(hp, rounded), scale), after)
        assert (error < 1e-10) == (rounded == (like == LLAMA_CPP)), error


def test_exact_yarn_moves_keys_likewise() -> None:
    """Tokens whose positions were moved by as much see each other as before."""
    model = model_of(*made("gpt-oss-moe", **GPT_OSS), on="cpu", like=TRANSFORMERS)
    ids = [3, 9, 17, 4, 33]
    moved, plain = (Context(model, n_ctx=256, **EXACT) for _ in range(2))
    moved.decode(ids)
    moved.memory.seq_add(0, 0, -1, 40)
    plain.decode(ids)
    assert nmse(plain.decode([7]), moved.decode([7])) < 1e-10


QWEN3VL = {"attention__key_length": 32, "attention__value_length": 32, "rope__freq_base": 10.0}


@pytest.mark.parametrize("like", LIKE)
def test_pairs_that_sections_leave_out_are_not_rotated_in_llama_cpp_only(like: str) -> None:
    sections = [6, 5, 5, 0]
    assert unturned_pairs(sections, 32) == []
    sections = [8, 4, 4, 0]
    assert unturned_pairs(sections, 32) == [13, 14]
    assert unturned_pairs([24, 20, 20, 0], 128) == [61, 62]  # Qwen3-VL's
    keys = {**QWEN3VL, "rope__dimension_sections": sections}
    before, after = queries(like, "qwen3vl-dense", "Qcur_normed-0", 16, **keys)
    expected = rotated(before, 10.0 ** (-np.arange(16) / 16))
    errors = np.abs(expected - after)[..., :16].max((0, 1))
    left = [] if like == TRANSFORMERS else [13, 14]
    assert np.flatnonzero(errors > 1e-4).tolist() == left


def test_positions_follow_token_by_token() -> None:
    keys = {**QWEN3VL, "rope__dimension_sections": [8, 4, 4, 0]}
    model = model_of(*made("qwen3vl-dense", **keys), on="cpu", like=TRANSFORMERS)
    ids = [5, 8, 13, 21, 34]
    whole = Context(model, n_ctx=256, **EXACT).decode(ids, logits="all")
    ctx = Context(model, n_ctx=256, **EXACT)
    assert nmse(whole, np.concatenate([ctx.decode([i]) for i in ids])) < 1e-9


def test_tied_logits_of_t5_are_divided_by_the_root_of_its_channels() -> None:
    found = []
    for like in LIKE:
        model = model_of(*changed("t5-gated"), like=like)
        ctx = Context(model, n_ctx=256, **EXACT)
        ctx.encode([3, 4, 5, 1])
        found.append(ctx.decode([0, 7], logits="all"))
    n_embd = made("t5-gated")[0]["t5.embedding_length"]
    np.testing.assert_allclose(found[1], found[0] * n_embd**-0.5, rtol=1e-5, atol=1e-6)
    assert not model_of(*changed("t5-dense")).hparams.differences  # its head has weights


def test_windows_of_exaone4_need_no_64_layers_but_in_llama_cpp() -> None:
    windows = {"attention__sliding_window": 5, "attention__sliding_window_pattern": 2}
    plain, theirs = (hparams("exaone4-dense", like, **windows) for like in LIKE)
    assert not plain.has_windows and all(layer.rope for layer in plain.layers)
    assert plain.differences == ["attention.sliding_window is ignored in models without 64 layers"]
    trunk = theirs.layers[: theirs.n_layer]
    assert [layer.window is not None for layer in trunk] == [i % 2 == 0 for i in range(len(trunk))]
    assert all((layer.window is None) == (layer.rope is None) for layer in trunk)
    without = {**windows, "attention__sliding_window": 0}
    assert not hparams("exaone4-dense", TRANSFORMERS, **without).differences


def l2_epsilons(model: Model) -> set[float]:
    """Epsilons of the L2 norms that queries and keys of a model's delta nets come from."""
    found = set()
    for t in run(model, 4)[0].graph.nodes:
        for x in t.src[:2] if t.op == "GATED_DELTA_NET" else ():
            while x.op != "RMS_NORM":
                x = x.src[0]
            found.add(round(x.params[0] * x.ne[0], 9))
    return found


@pytest.mark.parametrize("like", LIKE)
@pytest.mark.parametrize(
    "name", ["kimi-linear-moe", "kimi-k3-moe", "bailingmoe3-axes", "qwen3next-moe", "qwen35-dense"]
)
def test_queries_and_keys_of_delta_nets_have_the_authors_epsilon(name: str, like: str) -> None:
    metadata, shapes = declared(name)
    key = f"{name.rpartition('-')[0]}.attention.layer_norm_rms_epsilon"
    for eps in (1e-6, 2e-5):
        model = Model(file_of({**metadata, key: eps}, shapes), NullDevice(), like=like)
        assert l2_epsilons(model) == {eps if like == LLAMA_CPP else 1e-6}
        noted = any("epsilon" in text for text in model.hparams.differences)
        assert noted == (eps != 1e-6)


def test_glm5_next_has_that_epsilon_in_llama_cpp_too() -> None:
    model = load("glm5-next-moe")
    assert model.hparams.f_norm_rms_eps != 1e-6 and not model.hparams.differences
    assert l2_epsilons(model) == {1e-6}


def with_bias(metadata: dict[str, Any], arrays: dict[str, Any]) -> None:
    n = metadata["ernie4_5.embedding_length"]
    for il in range(2):
        arrays[f"blk.{il}.attn_output.bias"] = np.ones(n, np.float32)


def test_ignored_tensors_are_counted_and_named_in_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plain = logits(model_of(*changed("ernie4_5-dense")))
    caplog.clear()
    np.testing.assert_array_equal(plain, logits(model_of(*changed("ernie4_5-dense", with_bias))))
    (record,) = caplog.records
    assert record.getMessage() == (
        "live.gguf: 2 tensors are ignored, because llama.cpp omits them from its graph:"
        " blk.*.attn_output.bias (2); to apply them, use --like transformers"
    )
    caplog.clear()
    model = model_of(*changed("ernie4_5-dense", with_bias), like=TRANSFORMERS)
    assert nmse(plain, logits(model)) > 1e-4 and not caplog.records


def test_a_difference_is_told_by_default_only(caplog: pytest.LogCaptureFixture) -> None:
    model_of(*changed("t5-gated"))
    (record,) = caplog.records
    assert "not divided by sqrt(embedding_length)" in record.getMessage()
    caplog.clear()
    model_of(*changed("t5-gated"), like=TRANSFORMERS)
    assert not caplog.records


def test_names_are_listed_once_for_all_layers() -> None:
    assert by_pattern(["blk.0.a", "output.bias", "blk.11.a"]) == "blk.*.a (2), output.bias"


def test_like_is_one_of_two() -> None:
    from ggml_py.errors import ModelError

    with pytest.raises(ModelError, match=r"like must be one of llama\.cpp, transformers, got 'hf'"):
        ModelParams(like="hf")
