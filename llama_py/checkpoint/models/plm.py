"""Checkpoints with Llama's names and no gate in the feed-forward layers: PLM, Jais 2, StarCoder 2,
and Orion (conversion/plm.py, jais.py, starcoder.py, orion.py)."""

from __future__ import annotations

from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.names import ATTENTION, LAYERS, MODEL, PRE_NORMS, name_layers

UP_DOWN = {"mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
UNGATED = {**MODEL, **name_layers(LAYERS, {**PRE_NORMS, **ATTENTION, **UP_DOWN})}
LATENT = {
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
}


class PlmConverter(Converter):
    arch = "plm"
    classes = ("PLMForCausalLM",)
    names = UNGATED
    layers = LATENT

    def keys(self) -> None:
        super().keys()
        n_rot = self.integer("qk_rope_head_dim")
        self.out.set_all({
            "vocab_size": self.integer("vocab_size"),
            "attention.kv_lora_rank": self.integer("kv_lora_rank"),
            "attention.key_length": self.integer("qk_nope_head_dim") + n_rot,
            "attention.value_length": self.integer("v_head_dim"),
            "rope.dimension_count": n_rot,
        })  # fmt: skip


class Jais2Converter(Converter):
    arch = "jais2"
    classes = ("Jais2ForCausalLM",)
    names = UNGATED

    def keys(self) -> None:
        super().keys()
        self.out.u32("rope.dimension_count", self.head_dim)


class StarCoder2Converter(Converter):
    arch = "starcoder2"
    classes = ("Starcoder2ForCausalLM",)
    names = UNGATED
    layers = {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}


class OrionConverter(Converter):
    arch = "orion"
    classes = ("OrionForCausalLM",)
    tokenizer = "tokenizer.model"

    def keys(self) -> None:
        n_head = self.integer("num_attention_heads")
        context = self.integer("max_sequence_length", "max_position_embeddings", "model_max_length")
        self.out.set_all({
            "general.file_type": self.file_type,
            "tensor_data_layout": "Meta AI original pth",
            "context_length": context,
            "embedding_length": self.integer("hidden_size"),
            "block_count": self.n_layer,
            "feed_forward_length": self.integer("intermediate_size"),
            "attention.head_count": n_head,
            "attention.head_count_kv": self.config.get("num_key_value_heads", n_head),
            # its norms subtract the mean, in spite of the name
            "attention.layer_norm_epsilon": self.find("rms_norm_eps"),
        })  # fmt: skip
