"""Checkpoints of MiniCPM (conversion/minicpm.py)."""

from __future__ import annotations

from llama_py.checkpoint.arrays import NamedArrays
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.models.llama import RotatedConverter
from llama_py.checkpoint.models.qwen35 import Qwen35Converter
from llama_py.checkpoint.names import LATENT
from llama_py.checkpoint.rotary import long_factors
from llama_py.checkpoint.shared_keys import KEY_RANK, QUERY_RANK, RMS_EPSILON, VOCAB_SIZE


class MiniCPMConverter(RotatedConverter):
    arch = "minicpm"
    classes = ("MiniCPMForCausalLM",)
    needed = ("scale_emb", "scale_depth", "dim_model_base")
    tokenizer = "tokenizer.model"

    def keys(self) -> None:
        super().keys()
        self.out.f32("embedding_scale", self.find("scale_emb"))
        self.out.f32("residual_scale", self.find("scale_depth") / self.n_layer**0.5)
        logits = self.integer("hidden_size") / self.find("dim_model_base")
        self.out.f32("logit_scale", logits)

    def extra(self) -> NamedArrays:
        n_rot = self.integer("hidden_size") // self.integer("num_attention_heads")
        yield from long_factors(self.rope, n_rot)


class MiniCPM3Converter(Converter):
    arch = "minicpm3"
    classes = ("MiniCPM3ForCausalLM",)
    layers = {**LATENT, "self_attn.kv_b_proj": "attn_kv_b"}
    tokenizer = "tokenizer.model"

    def keys(self) -> None:
        self.out.u32("general.file_type", self.file_type)
        self.copy(
            ("context_length", "u32!", ("max_position_embeddings",)),
            ("embedding_length", "u32!", ("hidden_size",)),
        )
        self.out.u32("block_count", self.n_layer)
        self.copy(
            ("feed_forward_length", "u32!", ("intermediate_size",)),
            ("attention.head_count", "u32!", ("num_attention_heads",)),
            ("attention.head_count_kv", "u32!", ("num_key_value_heads",)),
            *(RMS_EPSILON, VOCAB_SIZE, QUERY_RANK, KEY_RANK),
        )
        n_rot = self.integer("qk_rope_head_dim")
        self.out.u32("attention.key_length", self.integer("qk_nope_head_dim") + n_rot)
        self.out.u32("rope.dimension_count", n_rot)

    def extra(self) -> NamedArrays:
        yield from long_factors(self.rope, self.integer("qk_rope_head_dim"))


class MiniCPMV46Converter(Qwen35Converter):
    classes = ("MiniCPMV4_6ForConditionalGeneration",)
    skipped = ("model.merger.", "mtp")
    has_nextn = False
