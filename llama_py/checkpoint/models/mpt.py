"""Checkpoints of MosaicML's names: MPT, DBRX (conversion/mpt.py, dbrx.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ggml_py.types import GGMLType
from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.names import Names, name_layers, pairs
from llama_py.checkpoint.output import choose_type
from llama_py.checkpoint.vocabulary import Vocabulary

MODEL = {"wte": "token_embd", "norm_f": "output_norm", "lm_head": "output"}
MPT: Names = {
    **MODEL,
    "wpe": "position_embd",
    **name_layers(
        "blocks.{}",
        {
            "norm_1": "attn_norm",
            "attn.Wqkv": "attn_qkv",
            "attn.q_ln": "attn_q_norm",
            "attn.k_ln": "attn_k_norm",
            "attn.out_proj": "attn_output",
            "norm_2": "ffn_norm",
            "ffn.up_proj": "ffn_up",
            "ffn.down_proj": "ffn_down",
            "ffn.act.scales": "ffn.act.scales",  # of AWQ
        },
    ),
}
DBRX: Names = {
    **MODEL,
    **pairs("""
        blocks.{}: norm_attn_norm.norm_1=attn_norm norm_attn_norm.norm_2=attn_output_norm
            norm_attn_norm.attn.Wqkv=attn_qkv norm_attn_norm.attn.out_proj=attn_output
            ffn.router.layer=ffn_gate_inp ffn.experts.mlp.w1=ffn_gate_exps
            ffn.experts.mlp.v1=ffn_up_exps ffn.experts.mlp.w2=ffn_down_exps
    """),
}
EPSILON = 1e-5  # of LayerNorm in torch
SEA_LION = {"padding": 3, "eos": 1, "unknown": 0}


class MptConverter(Converter):
    arch = "mpt"
    classes: ClassVar[tuple[str, ...]] = ("MPTForCausalLM", "MptForCausalLM")
    names = MPT
    prefixes = ("transformer.",)

    def find_part(self, name: str) -> Mapping[str, Any]:
        """Return an object of config.json; empty if it is missing."""
        found = self.find(name)
        return found if isinstance(found, dict) else {}

    def keys(self) -> None:
        attention, n_embd = self.find_part("attn_config"), self.integer("d_model")
        n_kv, clip = attention.get("kv_n_heads"), attention.get("clip_qkv")
        self.out.set_all({
            "context_length": self.integer("max_seq_len"),
            "embedding_length": n_embd,
            "block_count": self.n_layer,
            "feed_forward_length": 4 * n_embd,
            "attention.head_count": self.integer("n_heads"),
            **({"attention.head_count_kv": n_kv} if n_kv else {}),
            "attention.layer_norm_epsilon": EPSILON,
            **({} if clip is None else {"attention.clamp_kqv": clip}),
            "attention.max_alibi_bias": (
                attention.get("alibi_bias_max", 8) if attention.get("alibi", True) else 0.0
            ),
        })  # fmt: skip

    def vocabulary(self, v: Vocabulary) -> None:
        if v.has("tokenizer.json"):
            v.bpe()
            return
        v.sentencepiece()  # SEA-LION
        self.out.boolean("tokenizer.ggml.add_bos_token", False)
        for role, id in SEA_LION.items():
            self.out.u32(f"tokenizer.ggml.{role}_token_id", id)


class DbrxConverter(MptConverter):
    arch = "dbrx"
    classes = ("DbrxForCausalLM",)
    names = DBRX

    def choose_tensor_type(self, name: str, array: LazyArray, wanted: GGMLType) -> GGMLType:
        return choose_type(name, array, wanted, frozenset())

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if ".experts.mlp." in name and not name.endswith(".weight"):
            ff, n_embd = self.find_part("ffn_config"), self.integer("d_model")
            array = array.reshape(ff["moe_num_experts"], ff["ffn_hidden_size"], n_embd)
            array = array.swap(1, 2) if name.endswith("w2") else array
            name += ".weight"
        yield from super().tensors(name, array, layer)

    def keys(self) -> None:
        attention, ff = self.find_part("attn_config"), self.find_part("ffn_config")
        self.out.set_all({
            "block_count": self.n_layer,
            "context_length": self.integer("max_seq_len"),
            "embedding_length": self.integer("d_model"),
            "feed_forward_length": ff.get("ffn_hidden_size"),
            "attention.head_count": self.integer("n_heads"),
            "attention.head_count_kv": attention.get("kv_n_heads"),
            "rope.freq_base": attention.get("rope_theta"),
            "attention.clamp_kqv": attention.get("clip_qkv"),
            "expert_count": ff.get("moe_num_experts"),
            "expert_used_count": ff.get("moe_top_k"),
            "attention.layer_norm_epsilon": EPSILON,
            "general.file_type": self.file_type,
        })  # fmt: skip

    def vocabulary(self, v: Vocabulary) -> None:
        v.bpe()
