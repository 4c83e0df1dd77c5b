"""Hyperparameters: every key that is missing or makes no sense is told by name and value."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from ggml_py.errors import HParamsError
from llama_py.gguf.keys import Keys
from llama_py.hparams import HParams
from llama_py.hparams.cparams import CParams
from llama_py.hparams.layer_shape import Window
from llama_py.models import architecture
from llama_py.params import ContextParams
from tests.support.graph_models import declared


def read(name: str, **changes: Any) -> HParams:
    """Hyperparameters of a tiny model; `None` removes a key, `__` in a name is a dot."""
    metadata, _ = declared(name)
    del metadata["tokenizer.ggml.tokens"]
    arch = metadata["general.architecture"]
    for key, value in changes.items():
        full_key = f"{arch}.{key.replace('__', '.')}"
        metadata.pop(full_key, None)
        if value is not None:
            metadata[full_key] = value
    return architecture(arch).HParams(metadata, arch)


def refusal(name: str, **changes: Any) -> str:
    with pytest.raises(HParamsError) as caught:
        read(name, **changes)
    return str(caught.value)


def test_values_of_a_hybrid_model() -> None:
    hp = read("qwen35moe-moe")
    assert (hp.n_layer, hp.n_layer_all, hp.n_embd, hp.n_vocab) == (2, 2, 64, 64)
    assert (hp.n_head[0], hp.n_head_kv[0], hp.n_embd_head_k, hp.n_rot) == (4, 2, 32, 16)
    assert (hp.layers[1].n_embd_k_gqa, hp.layers[1].n_embd_v_gqa) == (64, 64)
    assert (hp.n_expert, hp.layers[0].n_expert_used, hp.layers[0].n_ff) == (6, 3, 96)
    assert [layer.recurrent for layer in hp.layers] == [True, False]
    assert (hp.n_embd_r, hp.n_embd_s) == (3 * 256, 32 * 128)
    assert hp.rope_sections == (4, 2, 2, 0)
    assert hp.n_pos_per_embd == 4


def test_windows_of_a_certain_number_of_layers() -> None:
    """EXAONE 4: in so many layers, one of four sees all tokens, and has no RoPE."""
    assert all(layer.window is None and layer.rope for layer in read("exaone4-dense").layers)
    layers = read("exaone4-dense", block_count=64, nextn_predict_layers=None).layers
    assert [layer.window is not None for layer in layers] == [True, True, True, False] * 16
    assert [layer.rope is not None for layer in layers] == [True, True, True, False] * 16
    assert layers[0].window == Window(12)


def test_defaults_of_optional_keys() -> None:
    hp = read(
        "llama-dense",
        attention__head_count_kv=None,
        attention__key_length=None,
        attention__value_length=None,
        rope__dimension_count=None,
        rope__freq_base=None,
        rope__scaling__factor=None,
        rope__scaling__original_context_length=None,
        attention__causal=None,
    )
    assert (hp.n_head_kv[0], hp.n_embd_head_k, hp.n_embd_head_v, hp.n_rot) == (4, 16, 16, 16)
    assert (hp.rope_freq_base_train, hp.rope_freq_scale_train) == (10000.0, 1.0)
    assert (hp.n_ctx_orig_yarn, hp.causal_attn) == (256, True)


def test_one_number_or_one_per_layer() -> None:
    hp = read("llama-dense", feed_forward_length=np.array([384, 512], np.int32))
    assert tuple(layer.n_ff for layer in hp.layers) == (384, 512)
    message = refusal("llama-dense", feed_forward_length=np.array([1, 2, 3]))
    wrong = "llama.feed_forward_length must have 2 items instead of 3, got [1, 2, 3]"
    assert message == f"{wrong}; convert the model again"


def test_every_fourth_layer_attends_unless_told_otherwise() -> None:
    hp = read("qwen35moe-moe", attention__recurrent_layers=None, block_count=8)
    assert [layer.recurrent for layer in hp.layers] == [True, True, True, False] * 2
    changes = {"block_count": 6, "full_attention_interval": 2, "nextn_predict_layers": 1}
    hp = read("qwen35moe-moe", attention__recurrent_layers=None, **changes)
    assert [layer.recurrent for layer in hp.layers] == [True, False, True, False, True, False]
    assert hp.n_layer == 5


def test_tokens_of_the_tokenizer_count_before_vocab_size() -> None:
    metadata, _ = declared("llama-dense")
    metadata["tokenizer.ggml.tokens"] = ["a", "b", "c"]
    assert architecture("llama").HParams(metadata, "llama").n_vocab == 3


@pytest.mark.parametrize(
    "key",
    [
        "context_length",
        "embedding_length",
        "block_count",
        "vocab_size",
        "attention.layer_norm_rms_epsilon",
    ],
)
def test_missing_key_is_named(key: str) -> None:
    message = refusal("llama-dense", **{key.replace(".", "__"): None})
    assert f"llama.{key} is missing," in message
    assert "'llama'" in message


@pytest.mark.parametrize(
    "key",
    [
        "ssm.conv_kernel",
        "ssm.inner_size",
        "ssm.state_size",
        "ssm.time_step_rank",
        "ssm.group_count",
        "rope.dimension_sections",
    ],
)
def test_missing_key_of_an_architecture_is_named(key: str) -> None:
    assert f"qwen35moe.{key} is missing," in refusal(
        "qwen35moe-moe", **{key.replace(".", "__"): None}
    )


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("block_count", 0, "from 1 to 512"),
        ("block_count", 2**31, "from 1 to 512"),
        ("block_count", -1, "an integer from 0"),
        ("block_count", 2.0, "an integer from 0"),
        ("block_count", True, "an integer from 0"),
        ("block_count", "two", "an integer from 0"),
        ("nextn_predict_layers", 2, "less than block_count = 2"),
        ("context_length", 0, "from 1 to"),
        ("embedding_length", 0, "at least 1"),
        ("embedding_length", 2**32, "an integer from 0"),
        ("attention.head_count", 0, "at least 1"),
        ("attention.head_count_kv", 3, "divide head_count = 4"),
        ("attention.key_length", 0, "at least 1"),
        ("attention.value_length", 64, "key_length = 32"),
        ("attention.layer_norm_rms_epsilon", -1.0, "at least 0"),
        ("attention.layer_norm_rms_epsilon", float("nan"), "a finite number"),
        ("attention.layer_norm_rms_epsilon", "small", "a finite number"),
        ("attention.causal", 2, "true or false"),
        ("rope.dimension_count", 16, "head size 32"),
        ("rope.dimension_count", 7, "even"),
        ("rope.dimension_count", 0, "head size 32"),
        ("rope.freq_base", 0.0, "positive"),
        ("rope.freq_base", float("inf"), "a positive finite number"),
        ("rope.freq_base", float("nan"), "a positive finite number"),
        ("rope.freq_base", -1.0, "positive"),
        ("rope.freq_base", 1e-300, "from 1e-30 to 1e+30"),
        ("rope.scaling.factor", 1e-45, "from 1e-30 to 1e+30"),
        ("rope.scaling.factor", 1e38, "from 1e-30 to 1e+30"),
        ("rope.scaling.original_context_length", 2**31, "from 0 to 2147483647"),
        ("context_length", 2**31, "from 1 to 2147483647"),
        ("attention.layer_norm_rms_epsilon", 1e39, "a finite number"),
        ("rope.scaling.type", "cubic", "must be one of none, linear, yarn, longrope"),
        ("rope.scaling.type", 1, "a string"),
        ("rope.scaling.factor", -2.0, "not be negative"),
        ("expert_count", 4096, "from 0 to 1024"),
        ("expert_count", 4, "from 1 to expert_count = 4"),
        ("expert_used_count", 1, "0 without experts"),
    ],
)
def test_senseless_value_is_told(key: str, value: Any, why: str) -> None:
    message = refusal("llama-dense", **{key.replace(".", "__"): value})
    assert message.startswith("llama.")
    assert why in message


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("expert_count", 0, "0 without experts"),
        ("expert_used_count", 7, "from 1 to expert_count = 6"),
        ("expert_group_count", 4, "divide expert_count = 6"),
        ("expert_group_count", 2, "from 1 to expert_group_count - 1 = 1"),
        ("ssm.group_count", 0, "at least 1"),
        ("ssm.group_count", 3, "divide time_step_rank = 4"),
        ("ssm.inner_size", 100, "state_size * time_step_rank"),
        ("rope.dimension_count", 0, "from 2 to the head size 32"),
        ("rope.dimension_sections", [0, 0, 0, 0], "sum must be from 1 to 32"),
        ("rope.dimension_sections", [1, 2], "4 items instead of 2"),
        ("attention.recurrent_layers", [1, 7], "items must each be true or false"),
    ],
)
def test_senseless_value_of_an_architecture_is_told(key: str, value: Any, why: str) -> None:
    assert why in refusal("qwen35moe-moe", **{key.replace(".", "__"): value})


def test_head_count_must_divide_when_head_sizes_are_not_given() -> None:
    changes = {"attention__key_length": None, "attention__head_count": 3}
    message = refusal("llama-dense", attention__head_count_kv=None, **changes)
    assert "llama.attention.head_count must divide embedding_length = 64" in message


def test_zero_interval_is_refused() -> None:
    changes = {"attention__recurrent_layers": None, "full_attention_interval": 0}
    assert "at least 1" in refusal("qwen35moe-moe", **changes)


def test_lying_counts_allocate_nothing() -> None:
    for key in ("block_count", "nextn_predict_layers", "expert_count", "context_length"):
        refusal("llama-dense", **{key: 2**32 - 1})
    for key in ("embedding_length", "feed_forward_length", "vocab_size"):
        read("llama-dense", **{key: 2**32 - 1})  # the tensors will tell


def test_long_values_are_cut_in_messages() -> None:
    message = refusal("llama-dense", feed_forward_length=list(range(1000)))
    assert len(message) < 200


def test_getters_take_numpy_scalars_as_arrays_hold_them() -> None:
    keys = Keys({"a.n": np.uint32(3), "a.f": np.float32(0.5), "a.b": np.bool_(True)}, "a")
    assert (keys.uint("n"), keys.number("f"), keys.flag("b")) == (3, 0.5, True)


# Another value than the default of each field that CParams has from ContextParams.
GIVEN: dict[str, Any] = {
    "n_ctx": 512,
    "n_batch": 16,
    "n_ubatch": 8,
    "n_seq_max": 2,
    "n_rs_seq": 3,
    "rope_freq_base": 5.0,
    "rope_freq_scale": 0.5,
    "yarn_ext_factor": 0.5,
    "yarn_attn_factor": 0.7,
    "yarn_beta_fast": 16.0,
    "yarn_beta_slow": 2.0,
    "flash_attn": "off",
    "pooling": "rank",
    "reduce_type": "bf16",
    "nextn_layer": 1,
    "forms": {"delta_net": "chunked"},
}
SHARED = sorted({f.name for f in fields(CParams)} & {f.name for f in fields(ContextParams)})


class TestContextParameters:
    hp = read("llama-dense")

    @pytest.mark.parametrize("name", SHARED)
    def test_a_field_of_both_classes_is_copied(self, name: str) -> None:
        open_ones = ContextParams()
        value = GIVEN[name] if name in GIVEN else not getattr(open_ones, name)
        before, after = (
            getattr(CParams.resolve(self.hp, p), name)
            for p in (open_ones, replace(open_ones, **{name: value}))
        )
        assert after != before
        assert after == {"flash_attn": False, "forms": (("delta_net", "chunked"),)}.get(name, value)

    def test_sizes_are_rounded_up_to_whole_steps(self) -> None:
        cp = CParams.resolve(self.hp, ContextParams(n_ctx=300, n_batch=4096))
        assert (cp.n_ctx, cp.n_ctx_seq, cp.n_batch, cp.n_ubatch) == (512, 512, 300, 300)
        cp = CParams.resolve(self.hp, ContextParams(n_ctx=300, n_seq_max=2))
        assert (cp.n_ctx, cp.n_ctx_seq) == (512, 256)
        cp = CParams.resolve(self.hp, ContextParams(n_ctx=300, n_seq_max=2, kv_unified=True))
        assert (cp.n_ctx, cp.n_ctx_seq) == (512, 512)

    def test_model_decides_what_is_left_open(self) -> None:
        cp = CParams.resolve(self.hp, ContextParams())
        assert (cp.n_ctx, cp.rope_freq_base, cp.rope_freq_scale) == (256, 10000.0, 1.0)
        assert (
            CParams.resolve(
                self.hp, ContextParams(rope_freq_base=5.0, rope_freq_scale=0.5)
            ).rope_freq_scale
            == 0.5
        )
        scaled = read("llama-dense", rope__scaling__factor=4.0)
        assert CParams.resolve(scaled, ContextParams()).rope_freq_scale == 0.25
        unscaled = read("llama-dense", rope__scaling__factor=4.0, rope__scaling__type="none")
        assert CParams.resolve(unscaled, ContextParams()).rope_freq_scale == 1.0

    def test_yarn_leaves_the_kernel_its_own_factor(self) -> None:
        hp = read("llama-dense", rope__scaling__factor=4.0, rope__scaling__type="yarn")
        cp = CParams.resolve(hp, ContextParams())
        assert cp.yarn_ext_factor == 1.0
        assert cp.yarn_attn_factor == pytest.approx(1.0, rel=1e-6)
        hp.rope_yarn_log_mul = 0.5
        mscale = (0.1 * np.log(4) + 1) / (0.05 * np.log(4) + 1)
        wanted = mscale / (1 + 0.1 * np.log(4))
        assert CParams.resolve(hp, ContextParams()).yarn_attn_factor == pytest.approx(
            wanted, rel=1e-6
        )

    def test_scaling_that_is_asked_for(self) -> None:
        """As llama_context settles it: YaRN's factor of attention counts where nothing is
        extrapolated, and a scale makes the model's context longer."""
        cp = CParams.resolve(self.hp, ContextParams(rope_scaling="yarn", rope_freq_scale=0.25))
        assert (cp.yarn_ext_factor, cp.rope_freq_scale, cp.n_ctx) == (1.0, 0.25, 4 * 256)
        assert (cp.yarn_beta_fast, cp.yarn_beta_slow, cp.n_ctx_orig_yarn) == (32.0, 1.0, 256)
        cp = CParams.resolve(
            self.hp,
            ContextParams(
                rope_scaling="yarn",
                rope_freq_scale=0.5,
                yarn_orig_ctx=1024,
                yarn_ext_factor=0.0,
                yarn_attn_factor=0.7,
                yarn_beta_fast=16.0,
                yarn_beta_slow=2.0,
            ),
        )
        assert (cp.n_ctx, cp.n_ctx_orig_yarn) == (2048, 1024)
        assert (cp.yarn_ext_factor, cp.yarn_attn_factor) == (0.0, 0.7)
        assert (cp.yarn_beta_fast, cp.yarn_beta_slow) == (16.0, 2.0)
        mixed = CParams.resolve(self.hp, ContextParams(rope_freq_scale=0.25, yarn_ext_factor=0.5))
        assert mixed.yarn_attn_factor == pytest.approx(1.0, rel=1e-6)
        scaled = read("llama-dense", rope__scaling__factor=4.0)
        assert CParams.resolve(scaled, ContextParams(rope_scaling="none")).rope_freq_scale == 1.0
        assert CParams.resolve(scaled, ContextParams(rope_freq_scale=0.5)).n_ctx == 256


def test_order_of_position_axes() -> None:
    assert read("qwen2vl-dense", rope__section_order="zyxt").position_axes == (3, 1, 2, 0)
    assert read("llama-dense", rope__section_order="tyxz").position_axes == (0, 1, 2, 3)
    message = refusal("llama-dense", rope__section_order="zyxt")
    assert "must be 'tyxz' for a model without several position axes, got 'zyxt'" in message
    assert "must be one of tyxz, zyxt, got ''" in refusal("qwen2vl-dense", rope__section_order="")


@pytest.mark.parametrize("name", ["k2-horizon-mova", "kolibri1-moe", "beam-moe", "muse-spark-moe"])
def test_unequal_numbers_of_chosen_experts_are_refused(name: str) -> None:
    """llama.cpp b11739 chooses layer 0's number, and adds each layer's."""
    n = read(name).n_layer_all
    assert read(name, expert_used_count=[2] * n).layers[1].n_expert_used == 2
    message = refusal(name, expert_used_count=[3] + [2] * (n - 1))
    assert "expert_used_count must be the same number in all layers" in message
    assert read("maion-coder-moe", expert_used_count=[3, 2, 2]).n_expert_used == (3, 2, 2)


def test_sizes_of_shared_experts_follow_their_layers() -> None:
    assert read("k2-horizon-sizes").n_ff_shared == (128, 64, 96)  # type: ignore[attr-defined]
    hp = read("k2-horizon-sizes", expert_shared_feed_forward_length=40)
    assert hp.n_ff_shared == (40, 40, 40)  # type: ignore[attr-defined]
