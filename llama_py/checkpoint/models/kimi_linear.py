"""Checkpoints of Kimi-Linear: delta attention, and latent attention without RoPE
(conversion/kimi_linear.py)."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.experts import count_dense
from llama_py.checkpoint.models.deepseek import LatentConverter
from llama_py.checkpoint.names import DELTA_ATTENTION, LATENT, pairs
from llama_py.checkpoint.shared_keys import (
    DENSE_LAYERS,
    EXPERT_SCALE,
    EXPERT_SIZE,
    SHARED_COUNT,
    VOCAB_SIZE,
)
from llama_py.checkpoint.tiktoken import KIMI, kimi_vocabulary
from llama_py.checkpoint.vocabulary import Vocabulary

EXPERTS = pairs("""
    gate=ffn_gate_inp gate.e_score_correction=exp_probs_b experts.w1=ffn_gate_exps
    experts.w2=ffn_down_exps experts.w3=ffn_up_exps shared_experts.gate_proj=ffn_gate_shexp
    shared_experts.up_proj=ffn_up_shexp shared_experts.down_proj=ffn_down_shexp
""")
SPARSE = {f"block_sparse_moe.{module}": tensor for module, tensor in EXPERTS.items()}
CONVOLUTIONS = (".q_conv1d.weight", ".k_conv1d.weight", ".v_conv1d.weight")
DENSE = re.compile(r"\.block_sparse_moe\.((?:gate|up|down)_proj\.weight)$")
# linear_attn_config of the authors, and the names of transformers 5
LINEAR = {"short_conv_kernel_size": "linear_conv_kernel_dim", "head_dim": "linear_head_dim"}


class DeltaConverter(LatentConverter):
    """A model with layers of Kimi's delta attention and layers of latent attention."""

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if name.endswith(CONVOLUTIONS):  # [n_inner, n] or [n_inner, 1, n]
            array = array.reshape(1, array.shape[0], 1, array.shape[-1])
        yield from super().tensors(name, array, layer)

    @cached_property
    def linear(self) -> dict[str, Any]:
        """linear_attn_config, also of the names that transformers 5 stores."""
        found = dict(self.config.get("linear_attn_config") or {})
        for name, new in LINEAR.items():
            if found.get(name) is None and self.config.get(new) is not None:
                found[name] = self.config[new]
        types = self.config.get("layer_types")
        if found.get("full_attn_layers") is None and isinstance(types, list):
            found["full_attn_layers"] = [i + 1 for i, t in enumerate(types) if "full" in str(t)]
        return found

    def is_full(self, layer: int) -> bool:
        """Return True for a layer that attends to all tokens."""
        layers = self.linear.get("full_attn_layers")
        if not isinstance(layers, list):
            raise self.refuse(("linear_attn_config.full_attn_layers", "layer_types"))
        return layer + 1 in layers

    def delta_keys(self) -> None:
        """Set the layers of each kind and the sizes of delta attention."""
        out, linear = self.out, self.linear
        out.array("attention.head_count_kv", [int(self.is_full(i)) for i in range(self.n_layer)])
        for key, kind, name in (
            ("ssm.conv_kernel", "u32", "short_conv_kernel_size"),
            ("kda.head_dim", "u32", "head_dim"),
            ("kda.gate_lower_bound", "f32", "gate_lower_bound"),
        ):
            if (value := linear.get(name)) is not None:
                out.add(kind, key, value)


class KimiLinearConverter(DeltaConverter):
    arch = "kimi-linear"
    classes = ("KimiLinearModel", "KimiLinearForCausalLM")
    layers = {**LATENT, **DELTA_ATTENTION, **SPARSE}
    parts = ("w1", "w2", "w3")

    def select(self, name: str) -> str | None:
        # transformers 5 names a dense layer like the others' experts
        selected = super().select(name)
        return None if selected is None else DENSE.sub(r".mlp.\1", selected)

    def keys(self) -> None:
        self.config["num_key_value_heads"] = 1
        super().keys()
        out = self.out
        self.copy(VOCAB_SIZE)
        self.delta_keys()
        rank = self.integer("kv_lora_rank", "n_lora_kv")
        n_rot = self.integer("qk_rope_head_dim", "n_rot")
        self.copy(("attention.q_lora_rank", "u32", ("q_lora_rank", "n_lora_q")))
        out.u32("attention.kv_lora_rank", rank)
        out.u32("rope.dimension_count", n_rot)
        out.u32("attention.key_length", rank + n_rot)
        n_key = self.find("n_embd_head_k_mla")
        out.u32("attention.key_length_mla", n_key or self.integer("qk_nope_head_dim") + n_rot)
        self.config.setdefault("first_k_dense_replace", self._n_dense())
        values = ("attention.value_length_mla", "u32", ("n_embd_head_v_mla", "v_head_dim"))
        self.copy(values, EXPERT_SIZE, SHARED_COUNT, DENSE_LAYERS, EXPERT_SCALE)

    def _n_dense(self) -> int | None:
        """Return the number of layers without experts, by the names of transformers 5."""
        types = self.config.get("mlp_layer_types")
        return count_dense(types) if isinstance(types, list) else None

    def vocabulary(self, v: Vocabulary) -> None:
        write_vocabulary(v)


def write_vocabulary(v: Vocabulary) -> None:
    """Write the tokens; tokenizer_config.json names the end of a text."""
    if v.has("tokenizer.json") or not v.has(KIMI):
        v.bpe()
        return
    special = kimi_vocabulary(v)
    eos = v.folder.json("tokenizer_config.json").get("eos_token")
    eos = eos.get("content") if isinstance(eos, dict) else eos
    for id, text in special.items():
        if text == eos:  # config.json names another token
            v.out.u32("tokenizer.ggml.eos_token_id", id)
