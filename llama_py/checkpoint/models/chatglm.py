"""Checkpoints of ChatGLM and GLM-4 (conversion/chatglm.py)."""

from __future__ import annotations

from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.names import LAYERS, LLAMA, name_layers, pairs
from llama_py.checkpoint.sentencepiece import CONTROL, UNUSED, read_sentencepiece
from llama_py.checkpoint.special_tokens import SpecialTokens
from llama_py.checkpoint.vocabulary import Vocabulary

EPS = 1e-5
THETA = 10000
ROPE_PART = 0.5
# Tokens that ChatGLM3 adds to its SentencePiece model, and its names of the first tokens
ADDED = (
    "[MASK]", "[gMASK]", "[sMASK]", "sop", "eop", "<|system|>", "<|user|>", "<|assistant|>",
    "<|observation|>",
)  # fmt: skip
FIRST = ("<unk>", "<bos>", "<eos>")
ROLES = {"eos": "<|endoftext|>", "eot": "<|user|>", "unk": "<|endoftext|>"}


class ChatGLMConverter(Converter):
    arch = "chatglm"
    classes = ("GlmForCausalLM", "ChatGLMModel", "ChatGLMForConditionalGeneration")
    names = {
        **LLAMA,
        **name_layers(LAYERS, {"mlp.gate_up_proj": "ffn_up"}),
        **pairs("""
            embedding.word_embeddings=token_embd encoder.final_layernorm=output_norm
            output_layer=output
            encoder.layers.{}: input_layernorm=attn_norm post_attention_layernorm=ffn_norm
                self_attention.query_key_value=attn_qkv self_attention.dense=attn_output
                mlp.dense_h_to_4h=ffn_up mlp.dense_4h_to_h=ffn_down
        """),
    }  # fmt: skip

    def select(self, name: str) -> str | None:
        if name.endswith(".rotary_pos_emb.inv_freq"):
            return None
        return super().select(name.removeprefix("transformer."))

    def keys(self) -> None:
        out, n_embd = self.out, self.integer("hidden_size", "n_embed")
        n_head = self.integer("n_head", "num_attention_heads")
        n_head_kv = self.find("multi_query_group_num", "num_key_value_heads")
        n_ff = self.find("ffn_hidden_size", "intermediate_size")
        out.u32("context_length", self.config.get("seq_length", n_embd))
        out.u32("embedding_length", n_embd)
        out.u32("feed_forward_length", 4 * n_embd if n_ff is None else n_ff)
        out.u32("block_count", self.n_layer)
        out.u32("attention.head_count", n_head)
        out.u32("attention.head_count_kv", n_head if n_head_kv is None else n_head_kv)
        out.f32("attention.layer_norm_rms_epsilon", self.config.get("layernorm_epsilon", EPS))
        out.u32("general.file_type", self.file_type)
        n_rot = self.config.get("attention_dim", n_embd // n_head)
        part = self.rope.get("partial_rotary_factor", ROPE_PART)
        out.u32("rope.dimension_count", int(n_rot * part))
        out.boolean("tokenizer.ggml.add_bos_token", False)
        out.f32("rope.freq_base", THETA * self.config.get("rope_ratio", 1))

    def vocabulary(self, v: Vocabulary) -> None:
        if v.has("tokenizer.json"):
            v.bpe(roles=ROLES)
        else:
            self._sentencepiece(v)

    def _sentencepiece(self, v: Vocabulary) -> None:
        """Write the vocabulary of ChatGLM3, which has no tokenizer.json."""
        n = len(read_sentencepiece(v.folder.path / "tokenizer.model").pieces)
        v.n_vocab = self.find("padded_vocab_size") or n + len(ADDED)
        tokens, scores, types = v.pieces(with_added=False)
        tokens[: len(FIRST)] = FIRST
        for id in range(n, len(tokens)):
            scores[id], types[id] = 0.0, UNUSED
            if id - n < len(ADDED):
                tokens[id], types[id] = ADDED[id - n], CONTROL
        v.write("llama", "chatglm-spm", tokens, types, scores)
        SpecialTokens(v.folder, n_vocab=len(tokens)).write(self.out)
