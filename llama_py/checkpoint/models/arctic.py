"""Checkpoints of Arctic (conversion/arctic.py)."""

from __future__ import annotations

from llama_py.checkpoint.models.llama import LlamaConverter
from llama_py.checkpoint.names import pairs
from llama_py.checkpoint.sentencepiece import CONTROL, UNKNOWN, USER_DEFINED
from llama_py.checkpoint.special_tokens import SpecialTokens
from llama_py.checkpoint.vocabulary import LEAST_SCORE, Vocabulary


class ArcticConverter(LlamaConverter):
    """Each layer has a dense network and experts."""

    arch = "arctic"
    classes = ("ArcticForCausalLM",)
    layers = pairs("""
        residual_layernorm=ffn_norm post_attention_layernorm=ffn_norm_exps residual_mlp.w1=ffn_gate
        residual_mlp.w2=ffn_down residual_mlp.w3=ffn_up
    """)

    def vocabulary(self, v: Vocabulary) -> None:
        """Added tokens replace two of tokenizer.model."""
        tokens, scores, types = v.pieces(with_added=False)
        unknown = v.folder.json("tokenizer_config.json").get("unk_token")
        for id, token in v.added_tokens():
            if id < len(tokens):
                tokens[id], scores[id], types[id] = token["content"], LEAST_SCORE, USER_DEFINED
                if token.get("special"):
                    scores[id] = 0.0
                    types[id] = UNKNOWN if tokens[id] == unknown else CONTROL
        v.write("llama", "default", tokens, types, scores)
        SpecialTokens(v.folder, n_vocab=len(tokens)).write(self.out)
