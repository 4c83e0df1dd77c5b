"""Checkpoints of Jamba: Mamba, attention and experts (conversion/jamba.py)."""

from __future__ import annotations

from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.experts import ExpertsConverter
from llama_py.checkpoint.names import LLAMA, MAMBA
from llama_py.checkpoint.vocabulary import Vocabulary

NORMS = {
    f"mamba.{module}_layernorm": f"ssm_{tensor}_norm"
    for module, tensor in (("dt", "dt"), ("b", "b"), ("c", "c"), ("B", "b"), ("C", "c"))
}
PARTS = ("gate", "up", "down")


class JambaConverter(ExpertsConverter):
    arch = "jamba"
    classes = ("JambaForCausalLM",)
    names = {**LLAMA, "model.final_layernorm": "output_norm"}
    layers = {
        **MAMBA,
        **NORMS,
        "pre_ff_layernorm": "ffn_norm",
        "pre_moe_layernorm": "ffn_norm",
        "feed_forward.router": "ffn_gate_inp",
        **{f"feed_forward.{part}_proj": f"ffn_{part}" for part in PARTS},
        **{f"feed_forward.experts.{part}_proj": f"ffn_{part}_exps" for part in PARTS},
    }

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        name = name.replace(".moe.", ".feed_forward.")  # Mini-Jamba
        if layer is not None and not self._has_experts(layer):
            name = name.replace(".experts.0.", ".")
        yield from super().tensors(name, array, layer)

    def _has_experts(self, layer: int) -> bool:
        offset, period = self.integer("expert_layer_offset"), self.integer("expert_layer_period")
        return layer >= offset and (layer - offset) % max(period, 1) == 0

    def keys(self) -> None:
        out, n_embd = self.out, self.integer("hidden_size", "mamba_d_model")
        offset, period = self.integer("attn_layer_offset"), self.integer("attn_layer_period")
        heads = self.integer("num_key_value_heads")
        each = [
            heads if i >= offset and (i - offset) % max(period, 1) == 0 else 0
            for i in range(self.n_layer)
        ]
        out.u32("block_count", self.n_layer)
        self.copy(("context_length", "u32!", ("max_position_embeddings", "n_ctx")))
        out.u32("embedding_length", n_embd)
        self.copy(
            ("feed_forward_length", "u32!", ("intermediate_size",)),
            ("attention.head_count", "u32!", ("num_attention_heads",)),
        )
        out.array("attention.head_count_kv", each)
        out.u32("ssm.conv_kernel", self.find("mamba_d_conv") or 4)
        out.u32("ssm.inner_size", self.integer("mamba_expand") * n_embd)
        out.u32("ssm.state_size", self.find("mamba_d_state") or 16)
        out.u32("ssm.time_step_rank", self.find("mamba_dt_rank") or -(n_embd // -16))
        epsilon = self.find("layer_norm_epsilon", "rms_norm_eps") or 1e-6
        out.f32("attention.layer_norm_rms_epsilon", epsilon)
        self.copy(
            ("expert_count", "u32!", ("num_local_experts", "num_experts")),
            ("expert_used_count", "u32!", ("num_experts_per_tok", "num_experts_per_token")),
        )
        out.u32("general.file_type", self.file_type)

    def vocabulary(self, v: Vocabulary) -> None:
        if v.has("tokenizer.model"):
            v.sentencepiece()
        else:
            v.sentencepiece_json()
            self.out.boolean("tokenizer.ggml.add_space_prefix", False)
