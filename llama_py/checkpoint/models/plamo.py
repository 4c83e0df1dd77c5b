"""Checkpoints of PLaMo 1 to 3 (conversion/plamo.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.names import MODEL, name_layers, pairs
from llama_py.checkpoint.shared_keys import RMS_EPSILON, VOCAB_SIZE
from llama_py.checkpoint.vocabulary import Vocabulary
from llama_py.checkpoint.vocabulary_files import plamo_vocabulary

PLAMO_LAYERS = "model.layers.layers.{}"
CONTEXT, KEY_HEADS, GROUP = 4096, 5, 8  # of PLaMo 13B; config.json lacks or misstates them
NORMS = pairs("""
    pre_mixer_norm=attn_norm post_mixer_norm.weight=post_attention_norm pre_mlp_norm=ffn_norm
    post_mlp_norm.weight=post_ffw_norm mlp.gate_up_proj=ffn_up mlp.down_proj=ffn_down
    mixer.qkv_proj=attn_qkv mixer.o_proj=attn_output
""")
STATES = pairs("""
    mixer.q=attn_q_norm mixer.k=attn_k_norm mixer.in_proj=ssm_in mixer.conv1d=ssm_conv1d
    mixer.bcdt_proj=ssm_x mixer.dt_proj=ssm_dt mixer.A_log=ssm_a mixer.D=ssm_d
    mixer.out_proj=ssm_out mixer.dt_norm.weight=ssm_dt_norm mixer.B_norm.weight=ssm_b_norm
    mixer.C_norm.weight=ssm_c_norm
""")
# Weights of norms are stored less these values
OFFSETS = {".post_mixer_norm.weight": 1.0 / 5, ".post_mlp_norm.weight": 1.0 / 5**1.5}
WEIGHTS = ("dt_norm", "B_norm", "C_norm", "k", "q")  # stored as `NAME_weight`


class PlamoConverter(Converter):
    """Checkpoints store the query heads of a key head together; llama.cpp alternates key heads."""

    arch = "plamo"
    classes = ("PlamoForCausalLM",)
    names = {
        **MODEL,
        **name_layers(
            PLAMO_LAYERS,
            {
                "norm": "attn_norm",
                **{f"self_attn.{part}_proj": f"attn_{part}" for part in "qkv"},
                "self_attn.o_proj": "attn_output",
                **{f"mlp.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")},
            },
        ),
    }
    tokenizer = "tokenizer.model"

    def keys(self) -> None:
        self.out.u32("context_length", CONTEXT)
        self.copy(
            ("embedding_length", "u32!", ("hidden_size",)),
            ("feed_forward_length", "u32!", ("intermediate_size",)),
        )
        self.out.u32("block_count", self.n_layer)
        self.copy(("attention.head_count", "u32!", ("num_attention_heads",)))
        self.out.u32("attention.head_count_kv", KEY_HEADS)
        self.copy(RMS_EPSILON)
        self.out.u32("general.file_type", self.file_type)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        shape = array.shape
        if name.endswith("q_proj.weight"):
            array = array.reshape(GROUP, KEY_HEADS, -1, shape[1]).swap(0, 1).reshape(*shape)
        elif name.endswith("o_proj.weight"):
            array = array.reshape(shape[0], GROUP, KEY_HEADS, -1).swap(1, 2).reshape(*shape)
        yield from super().tensors(name, array, layer)


class Plamo2Converter(Converter):
    arch = "plamo2"
    classes = ("Plamo2ForCausalLM", "PLaMo2ForCausalLM")
    names = {**MODEL, **name_layers(PLAMO_LAYERS, {**NORMS, **STATES})}

    def keys(self) -> None:
        out, get = self.out, self.config.get
        self.copy(VOCAB_SIZE)
        if get("mamba_enabled", True):
            for key, name, default in (
                ("attention.head_count_kv", "num_key_value_heads", 4),
                ("attention.head_count", "num_attention_heads", 32),
            ):
                heads = get(name, default)
                each = [0 if self._is_state(i) else heads for i in range(self.n_layer)]
                out.array(key, each)
        size, n_heads = get("hidden_size_per_head", 128), get("mamba_num_heads", 64)
        out.u32("context_length", get("max_position_embeddings", 2048))
        out.u32("embedding_length", get("hidden_size", 4096))
        out.u32("attention.key_length", size)
        out.u32("attention.value_length", size)
        out.u32("block_count", self.n_layer)
        out.f32("attention.layer_norm_rms_epsilon", get("rms_norm_eps", 1e-06))
        out.f32("rope.freq_base", self.rope.get("rope_theta", 10000))
        out.u32("ssm.state_size", get("mamba_d_state", 64))
        out.u32("ssm.conv_kernel", get("mamba_d_conv", 4))
        out.u32("ssm.time_step_rank", n_heads)
        out.u32("ssm.inner_size", n_heads * size)
        out.u32("ssm.group_count", 0)
        out.u32("feed_forward_length", get("intermediate_size", 13312))
        out.u32("general.file_type", self.file_type)

    def _is_state(self, layer: int) -> bool:
        """Return True for a layer of Mamba."""
        step: Any = self.config.get("mamba_step", 2)
        if self.n_layer <= step // 2:
            return layer != self.n_layer - 1
        return bool(layer % step != step // 2)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        path, _, last = name.rpartition(".")
        if last.removesuffix("_weight") in WEIGHTS and last.endswith("_weight"):
            name = f"{path}.{last.removesuffix('_weight')}.weight"
        elif name.endswith("norm.weight"):
            array = add_offset(name, array)
        yield from super().tensors(name, array, layer)

    def vocabulary(self, v: Vocabulary) -> None:
        plamo_vocabulary(v)


def add_offset(name: str, array: LazyArray) -> LazyArray:
    """Return the weights of a norm, which are stored less a constant."""
    offset = next((value for end, value in OFFSETS.items() if name.endswith(end)), 1.0)
    return array.map(lambda x: x + np.float32(offset))


class Plamo3Converter(Converter):
    arch = "plamo3"
    classes = ("Plamo3ForCausalLM", "PLaMo3ForCausalLM")
    names = {
        **MODEL,
        **name_layers(
            PLAMO_LAYERS, {**NORMS, "mixer.q_norm": "attn_q_norm", "mixer.k_norm": "attn_k_norm"}
        ),
    }

    def _rope(self) -> dict[str, Any]:
        rope, factor = super()._rope(), self.config.get("rope_scaling_factor", 1)
        if factor != 1 and "rope_type" not in rope:
            rope |= {
                "rope_type": "yarn",
                "factor": float(factor),
                "original_max_position_embeddings": self.integer("initial_context_length"),
                "beta_fast": 32.0,
                "beta_slow": 1.0,
            }
        return rope

    def keys(self) -> None:
        super().keys()
        self.copy(VOCAB_SIZE)
        if (window := self.find("window_size", "sliding_window")) is not None:
            self.out.u32("attention.sliding_window", window)
            pattern = self.find("sliding_window_pattern")
            self.out.count("attention.sliding_window_pattern", pattern)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if name.endswith("norm.weight"):
            array = add_offset(name, array)
        yield from super().tensors(name, array, layer)

    def vocabulary(self, v: Vocabulary) -> None:
        plamo_vocabulary(v)
        config = v.folder.json("tokenizer_config.json")
        template = v.folder.text("chat_template.jinja") or config.get("chat_template")
        if template:
            self.out.text("tokenizer.chat_template", template)
