"""Checkpoints of T5, and of its encoder alone (conversion/t5.py)."""

from __future__ import annotations

from typing import ClassVar

from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.names import pairs
from llama_py.checkpoint.unigram import write_t5
from llama_py.checkpoint.vocabulary import Vocabulary

ATTENTION = pairs("""
    q=attn_q k=attn_k v=attn_v o=attn_o relative_attention_bias=attn_rel_b
""")
FEED_FORWARD = pairs("""
    layer_norm=ffn_norm DenseReluDense.wi=ffn_up DenseReluDense.wi_0=ffn_gate
    DenseReluDense.wi_1=ffn_up DenseReluDense.wo=ffn_down
""")


def _block(path: str, new: str, names: dict[str, str]) -> dict[str, str]:
    return {f"{path}.{old}": f"{new}.blk.{{}}.{name}" for old, name in names.items()}


def _stack(side: str, new: str, feed_forward: int) -> dict[str, str]:
    """Return the names of the encoder or the decoder; feed_forward: number of its layer."""
    first = {f"SelfAttention.{old}": name for old, name in ATTENTION.items()}
    cross = {f"EncDecAttention.{old}": f"cross_{name}" for old, name in ATTENTION.items()}
    path = f"{side}.block.{{}}.layer"
    return {
        **_block(f"{path}.0", new, {"layer_norm": "attn_norm", **first}),
        **_block(f"{path}.1", new, {"layer_norm": "cross_attn_norm", **cross}),
        **_block(f"{path}.{feed_forward}", new, FEED_FORWARD),
        f"{side}.final_layer_norm": f"{new}.output_norm",
    }


T5 = {
    "shared": "token_embd",
    "lm_head": "output",
    **_stack("encoder", "enc", 1),
    **_stack("decoder", "dec", 2),
}
SHARED = ("decoder.embed_tokens.weight", "encoder.embed_tokens.weight", "shared.weight")
CONTEXT = 512  # without n_positions


class T5EncoderConverter(Converter):
    arch = "t5encoder"
    classes: ClassVar[tuple[str, ...]] = ("T5EncoderModel",)
    names = T5
    has_decoder = False
    has_embeddings = False  # of tokens

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if name in SHARED:  # the same matrix by several names
            if self.has_embeddings:
                return
            self.has_embeddings, name = True, "shared.weight"
        yield from super().tensors(name, array, layer)

    def keys(self) -> None:
        epsilon, n_decoder = self.find("layer_norm_epsilon"), self.find("num_decoder_layers")
        decoder = {} if n_decoder is None else {"decoder_block_count": n_decoder}
        start = {"decoder_start_token_id": self.find("decoder_start_token_id")}
        self.out.set_all({
            "context_length": self.find("n_positions") or CONTEXT,
            "embedding_length": self.integer("d_model"),
            "feed_forward_length": self.integer("d_ff"),
            "block_count": self.n_layer,
            **(decoder if self.has_decoder else {}),
            "attention.head_count": self.integer("num_heads"),
            "attention.key_length": self.integer("d_kv"),
            "attention.value_length": self.integer("d_kv"),
            "attention.layer_norm_epsilon": epsilon,
            "attention.relative_buckets_count": self.integer("relative_attention_num_buckets"),
            "attention.layer_norm_rms_epsilon": epsilon,
            **(start if self.has_decoder else {}),
            "general.file_type": self.file_type,
        })  # fmt: skip

    def vocabulary(self, v: Vocabulary) -> None:
        write_t5(v)


class T5Converter(T5EncoderConverter):
    arch = "t5"
    classes = (
        "T5WithLMHeadModel",
        "T5ForConditionalGeneration",
        "MT5ForConditionalGeneration",
        "UMT5ForConditionalGeneration",
        "UMT5Model",
    )
    has_decoder = True
