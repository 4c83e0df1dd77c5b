"""Checkpoints of models that generate tokens by diffusion: LLaDA, Dream, RND1
(conversion/llada.py, dream.py, qwen.py: RND1Model)."""

from __future__ import annotations

from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.experts import ExpertsConverter
from llama_py.checkpoint.models.llama import RotatedConverter
from llama_py.checkpoint.models.qwen3moe import Qwen3MoeConverter
from llama_py.checkpoint.names import pairs
from llama_py.checkpoint.pooling import pooling_keys
from llama_py.checkpoint.shared_keys import VOCAB_SIZE, Keys
from llama_py.checkpoint.vocabulary import Vocabulary

MASK: Keys = (("tokenizer.ggml.mask_token_id", "u32", ("mask_token_id",)),)
LLADA_MOE_MASK = 156895
# Numbers of LLaDA-8B
N_CONTEXT, N_EMBD, N_FF = 4096, 4096, 12288


class LladaConverter(RotatedConverter):
    arch = "llada"
    classes = ("LLaDAModelLM",)
    names = pairs("""
        model.transformer.wte=token_embd model.transformer.ln_f=output_norm
        model.transformer.ff_out=output
        model.transformer.blocks.{}: attn_norm=attn_norm q_proj=attn_q k_proj=attn_k
            v_proj=attn_v attn_out=attn_output ff_norm=ffn_norm ff_proj=ffn_gate up_proj=ffn_up
            ff_out=ffn_down
    """)

    def keys(self) -> None:
        super().keys()
        pooling_keys(self.folder, self.out)
        out = self.out
        self.copy(VOCAB_SIZE)
        n_head = self.integer("num_attention_heads", "n_heads")
        n_rot = self.find("head_dim") or self.integer("hidden_size", "d_model") // n_head
        out.u32("rope.dimension_count", n_rot)
        out.u32("context_length", self.config.get("max_sequence_length", N_CONTEXT))
        out.u32("embedding_length", self.config.get("d_model", N_EMBD))
        out.u32("feed_forward_length", self.config.get("mlp_hidden_size", N_FF))
        out.boolean("attention.causal", False)
        out.boolean("diffusion.shift_logits", False)

    def vocabulary(self, v: Vocabulary) -> None:
        v.bpe(unchanged=True)
        self.out.boolean("tokenizer.ggml.add_bos_token", True)


class LladaMoeConverter(ExpertsConverter):
    arch = "llada-moe"
    classes = ("LLaDAMoEModel", "LLaDAMoEModelLM")
    names = Qwen3MoeConverter.names

    def keys(self) -> None:
        super().keys()
        self.copy(("expert_feed_forward_length", "u32", ("expert_intermediate_size",)))
        self.out.u32("tokenizer.ggml.mask_token_id", LLADA_MOE_MASK)
        self.out.boolean("attention.causal", False)
        self.out.boolean("diffusion.shift_logits", False)


class DreamConverter(Converter):
    arch = "dream"
    classes = ("DreamModel",)
    own_keys = MASK

    def keys(self) -> None:
        super().keys()
        pooling_keys(self.folder, self.out)
        self.out.boolean("attention.causal", False)

    def vocabulary(self, v: Vocabulary) -> None:
        v.sentencepiece() if v.has("tokenizer.model") else v.bpe(unchanged=True)


class Rnd1Converter(Qwen3MoeConverter):
    arch = "rnd1"
    classes = ("RND1",)
    own_keys = MASK

    def keys(self) -> None:
        super().keys()
        self.out.boolean("attention.causal", False)
