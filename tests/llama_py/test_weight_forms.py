"""The same weights as files have them in other forms: the logits do not change."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray

from ggml_py.errors import WeightsError
from ggml_py.tensor import Tensor
from llama_py.params.like import TRANSFORMERS
from llama_py.weights import Weights
from tests.support.graph_models import CONTINUING, is_folded, known, load
from tests.support.live_models import (
    Arrays,
    Change,
    changed,
    live,
    logits,
    model_of,
    nmse,
    random,
    take,
)

SAME = 1e-12


def layers_with(tensors: Iterable[str], name: str) -> list[str]:
    """Prefixes `blk.N.` of the layers that have a tensor."""
    return [key.removesuffix(name) for key in tensors if re.fullmatch(rf"blk\.\d+\.{name}", key)]


PLAIN = [name for name in CONTINUING if not is_folded(name)]
DECLARED = {name: [*known(name).file.tensors] for name in PLAIN}


def with_tensor(name: str) -> list[str]:
    return [n for n, tensors in DECLARED.items() if layers_with(tensors, name)]


def run(name: str, *changes: Change, **options: Any) -> NDArray[np.float32]:
    return logits(model_of(*changed(name, *changes)), **options)


def plain(name: str) -> NDArray[np.float32]:
    """Logits of the weights as they are."""
    return logits(live(name))


def no_scales(metadata: dict[str, Any], arrays: Arrays) -> None:
    """attn_q, attn_k and attn_v without the scales that one matrix could not have."""
    for key in [key for key in arrays if key.endswith("scale") and "attn_" in key]:
        del arrays[key]


def one_matrix(metadata: dict[str, Any], arrays: Arrays) -> None:
    """Queries, keys and values of a layer in attn_qkv, the biases as they were."""
    for p in layers_with(arrays, "attn_v.weight"):
        parts = [take(arrays, f"{p}attn_{x}") for x in "qkv"]
        arrays[f"{p}attn_qkv.weight"] = np.concatenate(parts, axis=-2)


def one_bias(metadata: dict[str, Any], arrays: Arrays) -> None:
    for p in layers_with(arrays, "attn_k.bias"):
        parts = [arrays.pop(f"{p}attn_{x}.bias") for x in "qkv"]
        arrays[f"{p}attn_qkv.bias"] = np.concatenate(parts, axis=-1)


# Values of some layers are from experts, so there is no such matrix.
SEPARATE = [f"k2-horizon-{variant}" for variant in ("mova", "dense", "plain", "sizes")]


@pytest.mark.parametrize("name", [n for n in with_tensor("attn_k.weight") if n not in SEPARATE])
def test_queries_keys_and_values_in_one_matrix(name: str) -> None:
    scaled = any("attn_" in key and key.endswith("scale") for key in DECLARED[name])
    expected = run(name, no_scales) if scaled else plain(name)
    assert nmse(expected, run(name, no_scales, one_matrix)) < SAME
    if layers_with(DECLARED[name], "attn_k.bias"):
        assert nmse(expected, run(name, no_scales, one_matrix, one_bias)) < SAME


def merged_experts(metadata: dict[str, Any], arrays: Arrays) -> None:
    """Gates and ups of the experts in one matrix."""
    for p in layers_with(arrays, "ffn_gate_exps.weight"):
        parts = [take(arrays, f"{p}ffn_{x}_exps") for x in ("gate", "up")]
        arrays[f"{p}ffn_gate_up_exps.weight"] = np.concatenate(parts, axis=-2)


@pytest.mark.parametrize("name", ["qwen35moe-moe", "qwen3next-moe", "deepseek2-moe"])
def test_gates_and_ups_of_experts_in_one_matrix(name: str) -> None:
    assert nmse(run(name, unscaled), run(name, unscaled, merged_experts)) < SAME


def own_head(metadata: dict[str, Any], arrays: Arrays) -> None:
    arrays["output.weight"] = arrays["token_embd.weight"].copy()


def tied_head(metadata: dict[str, Any], arrays: Arrays) -> None:
    arrays.pop("output.weight", None)


# The head is always the embeddings, or never (one has what the other would be, or other tokens).
ONE_FORM = [
    "cohere2-dense",
    "command-r-dense",
    "pockettts-dense",
    "codeshell-dense",
    "qwen3tts-dense",
    "muse-spark-moe",
    "muse-spark-joint",
    "maion-coder-moe",
    "maion-coder-fused",
]


@pytest.mark.parametrize("name", [name for name in PLAIN if name not in ONE_FORM])
def test_head_that_is_the_embeddings(name: str) -> None:
    has_own = "output.weight" in DECLARED[name]
    assert nmse(run(name, own_head), run(name, tied_head) if has_own else plain(name)) < SAME


def scales(arrays: Arrays) -> list[str]:
    """Those of results; there may be one of an input, of as many channels."""
    found = [key for key in arrays if key.endswith(".scale")]
    return [key for key in found if not key.endswith(".ffn_gate_inp.scale")]


def fold_scales(metadata: dict[str, Any], arrays: Arrays) -> None:
    """Every scale multiplied into its matrix, and into the bias of a dense feed-forward, which
    comes before it."""
    for key in scales(arrays):
        stem, scale = key.removesuffix(".scale"), arrays.pop(key).reshape(-1, 1, 1)
        arrays[f"{stem}.weight"] = scale * arrays[f"{stem}.weight"]
        if f"{stem}.bias" in arrays and ".ffn_" in stem and scale.size == 1:
            arrays[f"{stem}.bias"] = scale.reshape(1) * arrays[f"{stem}.bias"]


def unscaled(metadata: dict[str, Any], arrays: Arrays) -> None:
    for key in scales(arrays):
        del arrays[key]


SCALED = [n for n in PLAIN if any(key.endswith(".scale") for key in DECLARED[n])]


@pytest.mark.parametrize("name", SCALED)
def test_scales_multiply_what_their_matrix_gives(name: str) -> None:
    expected = plain(name)
    n_layer = live(name).hparams.n_layer  # each rounds
    assert nmse(expected, run(name, fold_scales)) < SAME * max(1, n_layer / 4)
    # by the norms after each of these matrices
    undone = name.startswith(
        ("gemma3", "olmo2-windows", "plamo2", "plamo3", "exaone4-dense", "kolibri1-softmax")
    )
    assert (nmse(expected, run(name, unscaled)) > 1e-6) != undone


def shared_keys(metadata: dict[str, Any], arrays: Arrays) -> None:
    """Layer 1's heads have the keys and values of the first."""
    for x in "kv":
        for key in (f"blk.1.attn_{x}.weight", f"blk.1.attn_{x}.bias"):
            if key in arrays:
                axis = -2 if key.endswith("weight") else -1
                first = np.split(arrays[key], 2, axis=axis)[0]
                arrays[key] = np.concatenate([first, first], axis=axis)


def heads_by_layer(metadata: dict[str, Any], arrays: Arrays) -> None:
    """Layer 1 with that one head of keys and values, and four more of queries, which lead
    nowhere."""
    metadata |= {"llama.attention.head_count": [4, 8], "llama.attention.head_count_kv": [2, 1]}
    for x in "kv":
        for key in (f"blk.1.attn_{x}.weight", f"blk.1.attn_{x}.bias"):
            if key in arrays:
                axis = -2 if key.endswith("weight") else -1
                arrays[key] = np.split(arrays[key], 2, axis=axis)[0]
    q, out = (arrays[f"blk.1.attn_{x}.weight"][0, 0] for x in ("q", "output"))
    arrays["blk.1.attn_q.weight"] = np.concatenate([q, random(*q.shape)])
    arrays["blk.1.attn_output.weight"] = np.concatenate([out, np.zeros_like(out)], axis=1)
    if "blk.1.attn_q.bias" in arrays:
        bias = arrays["blk.1.attn_q.bias"].ravel()
        arrays["blk.1.attn_q.bias"] = np.concatenate([bias, bias])


@pytest.mark.parametrize("flash_attn", ["on", "off"])
def test_each_layer_may_have_its_own_number_of_heads(flash_attn: str) -> None:
    options = {"flash_attn": flash_attn}
    expected = run("llama-dense", shared_keys, **options)
    found = run("llama-dense", shared_keys, heads_by_layer, **options)
    assert nmse(expected, found) < SAME
    assert nmse(expected, run("llama-dense", **options)) > 1e-6


S, N_EMBD = 32, 64  # size of a head of the delta nets


def spread_heads(order: list[int]) -> Change:
    """A delta net in layer 0 with its four value heads, and a key head for each of `order`: of two,
    which one it is."""
    heads = random(4, S, N_EMBD)  # of queries, then of keys
    convs = random(4, S, 4)

    def change(metadata: dict[str, Any], arrays: Arrays) -> None:
        arch, p = metadata["general.architecture"], "blk.0."
        metadata[f"{arch}.ssm.group_count"] = len(order)
        for stem in ("ssm_ba", "ssm_beta", "ssm_alpha", "attn_qkv"):
            if f"{p}{stem}.weight" in arrays:
                take(arrays, f"{p}{stem}")
        q, k = (x[order].reshape(-1, N_EMBD) for x in (heads[:2], heads[2:]))
        arrays[f"{p}attn_qkv.weight"] = 3 * np.concatenate([q, k, random(4 * S, N_EMBD)])
        q, k = (x[order].reshape(-1, 4) for x in (convs[:2], convs[2:]))
        arrays[f"{p}ssm_conv1d.weight"] = np.concatenate([q, k, random(4 * S, 4)])
        beta, alpha = 3 * random(2, 4, N_EMBD)
        arrays |= {f"{p}ssm_beta.weight": beta, f"{p}ssm_alpha.weight": alpha}

    return change


@pytest.mark.parametrize("delta_net", ["fused", "chunked", "autoregressive"])
@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("qwen35-dense", [0, 1, 0, 1]),
        ("qwen35moe-moe", [0, 1, 0, 1]),
        ("qwen3next-moe", [0, 0, 1, 1]),
    ],
)
def test_value_heads_share_key_heads(name: str, order: list[int], delta_net: str) -> None:
    """In turn, or with Qwen3-Next in a row."""
    found = run(name, spread_heads([0, 1]), forms={"delta_net": delta_net})
    assert nmse(run(name, spread_heads(order), forms={"delta_net": delta_net}), found) < 1e-10
    assert nmse(run(name, spread_heads([0, 1, 1, 0]), forms={"delta_net": delta_net}), found) > 1e-6


def joined_gates(metadata: dict[str, Any], arrays: Arrays) -> None:
    """ssm_beta and ssm_alpha in one matrix: of each key head its betas, then its alphas."""
    b, a = (take(arrays, f"blk.0.ssm_{x}").reshape(2, 2, N_EMBD) for x in ("beta", "alpha"))
    arrays["blk.0.ssm_ba.weight"] = np.concatenate([b, a], axis=1).reshape(8, N_EMBD)


def joined_projections(metadata: dict[str, Any], arrays: Arrays) -> None:
    """attn_qkv and attn_gate in one matrix, key head by key head, as older files have them."""
    qkv, gate = (take(arrays, f"blk.0.attn_{part}").reshape(-1, N_EMBD) for part in ("qkv", "gate"))
    q, k, v = np.split(qkv, [2 * S, 4 * S])
    heads = [np.split(x, 2) for x in (q, k, v, gate)]
    arrays["blk.0.ssm_in.weight"] = np.concatenate([part[h] for h in range(2) for part in heads])


@pytest.mark.parametrize("delta_net", ["fused", "chunked"])
def test_qwen3next_with_one_matrix_or_two(delta_net: str) -> None:
    four = spread_heads([0, 1])
    expected = run("qwen3next-moe", four)
    for changes in ([joined_gates], [joined_projections], [joined_gates, joined_projections]):
        found = run("qwen3next-moe", four, *changes, forms={"delta_net": delta_net})
        assert nmse(expected, found) < (SAME if delta_net == "fused" else 1e-9)


def test_qwen3next_needs_both_gates() -> None:
    metadata, arrays = changed("qwen3next-moe", spread_heads([0, 1]))
    take(arrays, "blk.0.ssm_alpha")
    with pytest.raises(WeightsError, match=r"1 missing: blk\.0\.ssm_ba\.weight"):
        model_of(metadata, arrays)


@pytest.mark.parametrize("shape", [(1, 64, 1, 4), (64, 1, 4), (64, 4)])
def test_kimis_convolutions_may_have_two_dimensions_to_four(shape: tuple[int, ...]) -> None:
    def change(metadata: dict[str, Any], arrays: Arrays) -> None:
        for part in "qkv":
            name = f"blk.0.ssm_conv1d_{part}.weight"
            arrays[name] = arrays[name].reshape(shape)
        arrays["blk.0.ssm_a"] = arrays["blk.0.ssm_a"].reshape(2, 1)

    assert nmse(plain("kimi-linear-moe"), run("kimi-linear-moe", change)) < SAME


def test_other_shapes_of_a_convolution_are_refused() -> None:
    metadata, arrays = changed("kimi-linear-moe")
    name = "blk.0.ssm_conv1d_q.weight"
    for shape in ((32, 8), (4, 64), (64, 4, 1)):
        arrays[name] = arrays[name].reshape(shape)
        with pytest.raises(WeightsError, match=r"ssm_conv1d_q.*wrong shape"):
            model_of(metadata, arrays)


BIAS_FIRST = re.compile(r"ffn_(up|gate|down)$")  # before the scale


@cache
def left_out_by_llama_cpp(name: str) -> dict[str, int]:
    """Stems of the matrices whose scales are not in tiny models, and the length of a scale."""
    found: dict[str, int] = {}
    read: set[str] = set()
    scale_of = Weights.scale

    def seen(self: Weights, stem: str, n: int, weight: Tensor, scaled: bool) -> Tensor | None:
        if scaled:
            read.add(self.prefix + stem)
        else:
            found[self.prefix + stem] = n
        return scale_of(self, stem, n, weight, scaled)

    with mock.patch.object(Weights, "scale", seen):
        load(name)
    return {stem: n for stem, n in found.items() if stem not in read}


@pytest.mark.parametrize("name", [name for name in PLAIN if left_out_by_llama_cpp(name)])
def test_scales_that_llama_cpp_leaves_out(name: str) -> None:
    """Like transformers, halves and twos change nothing, not even in a bit. By default, scales do
    not."""
    stems = left_out_by_llama_cpp(name)

    def halve(metadata: dict[str, Any], arrays: Arrays) -> None:
        for stem, n in stems.items():
            arrays[f"{stem}.weight"] = arrays[f"{stem}.weight"] / 2
            if BIAS_FIRST.search(stem) and f"{stem}.bias" in arrays:
                arrays[f"{stem}.bias"] = arrays[f"{stem}.bias"] / 2
            arrays[f"{stem}.scale"] = np.full(n, 2, np.float32)

    def double(metadata: dict[str, Any], arrays: Arrays) -> None:
        arrays |= {f"{stem}.scale": np.full(n, 2, np.float32) for stem, n in stems.items()}

    np.testing.assert_array_equal(plain(name), run(name, double))
    metadata, arrays = changed(name, halve)
    halved = logits(model_of(metadata, arrays, like=TRANSFORMERS))
    np.testing.assert_array_equal(logits(model_of(*changed(name), like=TRANSFORMERS)), halved)
