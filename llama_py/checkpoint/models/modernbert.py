"""Checkpoints of ModernBERT, NeoBERT and EuroBERT (conversion/bert.py)."""

from __future__ import annotations

import logging

from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.models.bert import BertConverter
from llama_py.checkpoint.names import LLAMA, pairs
from llama_py.checkpoint.pooling import pooling_keys
from llama_py.checkpoint.vocabulary import Vocabulary

log = logging.getLogger("llama_py")

MODERN_BERT = pairs("""
    embeddings.tok_embeddings=token_embd embeddings.norm=token_embd_norm final_norm=output_norm
    head.dense=cls head.norm=cls.norm classifier=cls classifier.out_proj=cls.output
    layers.{}: attn_norm=attn_norm attn.Wqkv=attn_qkv attn.Wo=attn_output mlp_norm=ffn_norm
        mlp.Wi=ffn_up mlp.Wo=ffn_down
""")
NEO_BERT = pairs("""
    encoder=token_embd layer_norm=enc.output_norm dense=cls classifier=cls
    classifier.out_proj=cls.output
    transformer_encoder.{}: attention_norm=attn_norm qkv=attn_qkv wo=attn_output
        ffn_norm=ffn_norm ffn.w12=ffn_up ffn.w3=ffn_down
""")
EPSILON = 1e-5  # of ModernBERT's norms
NEO_EPSILON, NEO_THETA, CLS = 1e-6, 10000.0, 2  # CLS: llama_pooling_type


class ModernBertConverter(BertConverter):
    arch = "modern-bert"
    classes = ("ModernBertModel", "ModernBertForMaskedLM", "ModernBertForSequenceClassification")
    names = MODERN_BERT
    prefixes = ("model.",)
    heads = ("decoder.",)  # predicts tokens

    def keys(self) -> None:
        if self.find("layer_norm_eps") is None:
            epsilon = self.find("norm_eps") or EPSILON
            log.warning("config.json of ModernBERT lacks layer_norm_eps, so norms use %g", epsilon)
            self.config["layer_norm_eps"] = epsilon
        super().keys()
        self.out.u32("attention.sliding_window", self.integer("local_attention"))
        if (every := self.find("global_attn_every_n_layers")) is not None:
            self.out.u32("attention.sliding_window_pattern", every)
        self.out.text("rope.scaling.type", "none")
        self.out.u32("vocab_size", self.integer("vocab_size"))
        if activation := self.find("hidden_activation"):
            self.out.text("hidden_activation", activation)

    def vocabulary(self, v: Vocabulary) -> None:
        for role in ("bos", "eos", "sep"):
            self.out.boolean(f"tokenizer.ggml.add_{role}_token", True)
        v.bpe()


class NeoBertConverter(BertConverter):
    arch = "neo-bert"
    classes = ("NeoBERT", "NeoBERTLMHead", "NeoBERTForSequenceClassification")
    names = NEO_BERT
    prefixes = ("model.",)
    heads = ("decoder.",)

    def keys(self) -> None:
        super().keys()
        self.out.set_all({
            "feed_forward_length": 2 * self.integer("intermediate_size") // 3,
            "rope.freq_base": NEO_THETA,
            "rope.scaling.type": "none",
            "attention.layer_norm_rms_epsilon": self.config.get("norm_eps", NEO_EPSILON),
            "pooling_type": CLS,
        })  # fmt: skip


class EuroBertConverter(Converter):
    arch = "eurobert"
    classes = ("EuroBertModel", "JinaEmbeddingsV5Model")
    names = {name.removeprefix("model."): new for name, new in LLAMA.items()}
    prefixes = ("model.",)

    def keys(self) -> None:
        super().keys()
        self.out.boolean("attention.causal", False)
        self.out.text("rope.scaling.type", "none")
        pooling_keys(self.folder, self.out)

    def vocabulary(self, v: Vocabulary) -> None:
        self.out.boolean("tokenizer.ggml.add_bos_token", False)
        v.bpe()
