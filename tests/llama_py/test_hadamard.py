"""Weights folded with Hadamard rotations: the same model as before they were folded, and every
file that does not fit is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dev import tiny_models as tiny
from dev.tiny_models._hadamard import ATTENTION, DELTA_NET, FFN, folded_keys
from ggml_py.errors import ContextError, GGUFError, HParamsError, WeightsError
from ggml_py.ops import mul_mat
from llama_py.blocks.feed_forward import FeedForward
from llama_py.decoding.drafting.draft_vocabulary import draft_vocabulary
from llama_py.gguf.file import GGUFFile
from llama_py.memory.kv_rot import hadamard
from llama_py.model import Model
from llama_py.models import architecture, known_architectures
from llama_py.quantize.prune import pruned_metadata
from tests.support.adapters import pairs, write_adapter
from tests.support.graph_models import known, split
from tests.support.live_models import Arrays, made, model_of, nmse, tokens
from tests.support.split_models import placed

P = "prism.hadamard."
EXPERTS = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
OPTIONS: dict[str, Any] = {"n_ctx": 128, "flash_attn": "off", "type_k": "f32", "type_v": "f32"}


def logits(model: Model) -> Any:
    return model.context(**OPTIONS).decode(tokens(20), logits="all")


def fold(metadata: dict[str, Any], arrays: Arrays) -> Arrays:
    """The weights that compute the same with rotated inputs."""
    n, values = metadata[P + "block_size"], list(metadata.get(P + "sign_values", ()))
    signs = {}
    for width in metadata.get(P + "sign_widths", ()):
        signs[width], values = np.array(values[:width]), values[width:]
    result = dict(arrays)
    names = [*metadata[P + "weight_names"], *metadata.get(P + "inverse_weight_names", ())]
    for name in names:
        w = arrays[name].astype(np.float64)
        if name.endswith("ssm_out.weight") and metadata.get(P + "gdn_v_grouped"):
            size, groups = (metadata[f"qwen35.ssm.{key}"] for key in ("state_size", "group_count"))
            heads = w.reshape(*w.shape[:-1], -1, groups, size)
            w = heads.swapaxes(-3, -2).reshape(w.shape)
        w = w * signs.get(w.shape[-1], 1)
        blocks = w.reshape(*w.shape[:-1], -1, n) @ hadamard(n).astype(np.float64)
        result[name] = blocks.reshape(w.shape).astype(np.float32)
    return result


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("qwen3-dense", folded_keys([[*ATTENTION, *FFN]] * 2, [64, 96, 128])),
        ("qwen3-dense", folded_keys([["attn_q"], FFN], block=1, table=False)),
        ("qwen3-dense", folded_keys([[], ["attn_k", "ffn_up"]], head=False, block=64)),
        ("qwen3moe-moe", folded_keys([[*ATTENTION, *EXPERTS]] * 2, [64, 48, 128])),
        ("llama-dense", folded_keys([FFN, []], version=2, head=False, tied_output=True)),
        (
            "qwen35-dense",
            folded_keys(
                [[*DELTA_NET, *FFN], [*ATTENTION, *FFN]], [64, 96, 128], gdn_v_grouped=True
            ),
        ),
    ],
)
def test_folded_weights_are_the_same_model(name: str, keys: dict[str, Any]) -> None:
    metadata, arrays = made(name)
    expected = logits(model_of(metadata, arrays))
    metadata |= {key[1:]: value for key, value in keys.items()}
    assert nmse(expected, logits(model_of(metadata, fold(metadata, arrays)))) < 1e-10
    if keys["/prism.hadamard.block_size"] > 1:
        assert nmse(expected, logits(model_of(metadata, arrays))) > 1e-3


def test_keys_without_a_version_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    metadata, arrays = made("qwen3-hadamard")
    expected = logits(model_of(*made("qwen3-dense")))
    del metadata[P + "version"]
    assert not caplog.records
    assert np.array_equal(logits(model_of(metadata, arrays)), expected)
    assert "has no effect without prism.hadamard.version" in caplog.text


NAMES = [*made("qwen3-hadamard")[0][P + "weight_names"]]
WIDTHS = [*made("qwen3-hadamard")[0][P + "sign_widths"]]
SIGNS = [*made("qwen3-hadamard")[0][P + "sign_values"]]


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("version", 0, "from 1 to 2"),
        ("version", 3, "from 1 to 2"),
        ("version", 2, "tied_output must be true in version 2, and only there"),
        ("tied_output", True, "tied_output must be true in version 2, and only there"),
        ("block_size", None, "block_size is missing"),
        ("block_size", 0, "a power of two"),
        ("block_size", 12, "a power of two"),
        ("block_size", 64, "sign_widths must be multiples of block_size = 64"),
        ("transform", None, "transform is missing"),
        ("transform", "dct", "transform must be one of normalized-sylvester"),
        ("axis", None, "axis is missing"),
        ("axis", "output", "axis must be one of input-last-dimension"),
        ("sign_mode", None, "sign_mode is missing"),
        ("sign_mode", "random", "sign_mode must be one of identity, explicit"),
        ("weight_names", None, "weight_names must be an array of strings"),
        ("weight_names", NAMES[0], "weight_names must be an array of strings"),
        ("weight_names", [], "weight_names must name a weight"),
        ("weight_names", NAMES + NAMES[:1], "must not repeat 'blk.0.attn_q.weight'"),
        ("weight_names", [*NAMES, "blk.9.attn_q.weight"], "'blk.9.attn_q.weight', which is not"),
        ("weight_names", [*NAMES, "token_embd.weight"], "'token_embd.weight', which cannot be"),
        ("weight_names", [*NAMES, "blk.0.attn_norm.weight"], "which cannot be folded"),
        ("inverse_weight_names", ["output.weight"], "must be empty or have 'token_embd.weight'"),
        ("inverse_weight_names", ["token_embd.weight"] * 2, "must not repeat"),
        ("sign_widths", None, "an array of integers if sign_mode is explicit"),
        ("sign_widths", [], "must be multiples of block_size = 16"),
        ("sign_widths", [0, *WIDTHS], "must be multiples of block_size = 16"),
        ("sign_widths", [*WIDTHS, 5], "must be multiples of block_size = 16"),
        ("sign_widths", WIDTHS + WIDTHS[:1], "must not repeat a width"),
        ("sign_widths", [64, 96, 112, 16], "must have 128, the input width of 'blk.0.attn_output"),
        ("sign_values", None, "an array of integers if sign_mode is explicit"),
        ("sign_values", SIGNS[1:], "must have 288 items, the sum of sign_widths"),
        ("sign_values", [*SIGNS, 1], "must have 288 items, the sum of sign_widths"),
        ("sign_values", [0, *SIGNS[1:]], "items must each be 1 or -1"),
        ("gdn_v_grouped", "yes", "gdn_v_grouped must be true or false"),
    ],
)
def test_invalid_keys(key: str, value: Any, rule: str) -> None:
    metadata, arrays = made("qwen3-hadamard")
    metadata.pop(P + key, None)
    if value is not None:
        metadata[P + key] = value
    with pytest.raises(HParamsError, match=r"prism.hadamard.*convert the model again") as caught:
        model_of(metadata, arrays)
    assert rule in str(caught.value)


def test_a_block_that_does_not_divide_an_input_width() -> None:
    metadata, arrays = made("llama-hadamard")
    metadata[P + "block_size"] = 128
    with pytest.raises(HParamsError, match=r"must divide 64, the input width of 'blk.0.attn_k"):
        model_of(metadata, arrays)


def test_heads_that_do_not_fit() -> None:
    metadata, arrays = made("llama-tied")
    with pytest.raises(HParamsError, match="tied_output must be false in a file with 'output"):
        model_of(metadata, {**arrays, "output.weight": arrays["token_embd.weight"]})
    old = metadata | {P + "version": 1, P + "tied_output": False}
    with pytest.raises(HParamsError, match="tied_output must be true in a file without 'output"):
        model_of(old, arrays)
    del metadata[P + "inverse_weight_names"]
    with pytest.raises(HParamsError, match=r"inverse_weight_names must have 'token_embd.weight'"):
        model_of(metadata, arrays)


def test_other_architectures_are_refused() -> None:
    foldable = {a for a in known_architectures() if architecture(a).folds == a}
    assert foldable == {a for a, v in tiny.every() if v == "hadamard"}
    for name in ("qwen2-dense", "mellum-moe", "llama-embed-dense"):  # two are subclasses
        metadata, arrays = made(name)
        keys = folded_keys([["attn_q"]], head=False, table=False)
        metadata |= {key[1:]: value for key, value in keys.items()}
        with pytest.raises(HParamsError, match=f"must be missing in .* '{split(name)[0]}'"):
            model_of(metadata, arrays)


def test_adapters_of_folded_weights_are_refused(tmp_path: Path) -> None:
    _, arrays = made("llama-hadamard")
    model = known("llama-hadamard")
    file = write_adapter(tmp_path / "a.gguf", "llama", pairs(arrays, ["blk.0.attn_q.weight"]))
    model.load_adapter(file)
    changes = pairs(arrays, ["blk.0.attn_q.weight", "blk.0.attn_k.weight"])
    file = write_adapter(tmp_path / "b.gguf", "llama", changes)
    with pytest.raises(WeightsError, match=r"changes 1 weights .* such as blk.0.attn_k.weight"):
        model.load_adapter(file)


@pytest.mark.parametrize("mode", ["graph", "row"])
def test_devices_cannot_share_layers(mode: str) -> None:
    with pytest.raises(HParamsError, match=r"folded weights, .* use --split-mode layer"):
        model_of(*made("qwen3-hadamard"), placed([1, 1], mode))


def test_drafts() -> None:
    model = model_of(*made("qwen3-hadamard"))
    assert draft_vocabulary(model.context(n_ctx=64), 32) is None
    with pytest.raises(HParamsError, match="a draft model cannot read them"):
        model.architecture.tensors_for_draft()


def test_layers_cannot_be_pruned(tmp_path: Path) -> None:
    path = tiny.write("qwen3", "hadamard", tmp_path)
    with GGUFFile.open(path) as file, pytest.raises(GGUFError, match="weight_names"):
        pruned_metadata(file, {0})


def test_a_graph_without_the_rotation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def project(self: FeedForward, g: Any, x: Any, il: int) -> Any:
        return mul_mat(self.down.weight, x)

    model = model_of(*made("qwen3-hadamard"))
    monkeypatch.setattr(FeedForward, "project_down", project)
    with pytest.raises(ContextError, match=r"blk.0.ffn_down.weight is folded"):
        logits(model)
