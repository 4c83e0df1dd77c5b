"""Checkpoints of Phi: Phi 1.5 and 2, Phi 3 and 4, Phi 3.5-MoE (conversion/phi.py)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.experts import ExpertsConverter
from llama_py.checkpoint.models.llama import MIXTRAL
from llama_py.checkpoint.names import ATTENTION, LAYERS, LLAMA, name_layers, pairs
from llama_py.checkpoint.sentencepiece import CONTROL, USER_DEFINED, read_sentencepiece
from llama_py.checkpoint.shared_keys import ORIGINAL
from llama_py.checkpoint.vocabulary import ADDED_SCORE, Vocabulary

PHI2 = {
    "model.embed_tokens": "token_embd",
    "model.final_layernorm": "output_norm",
    "lm_head": "output",
    **name_layers(
        LAYERS,
        {
            **ATTENTION,
            "input_layernorm": "attn_norm",
            "self_attn.dense": "attn_output",
            "mlp.fc1": "ffn_up",
            "mlp.fc2": "ffn_down",
        },
    ),
    # names of its first checkpoints
    **pairs("""
        transformer.embd.wte=token_embd lm_head.ln=output_norm lm_head.linear=output
        transformer.h.{}: ln=attn_norm mixer.Wqkv=attn_qkv mixer.out_proj=attn_output mlp.fc1=ffn_up
            mlp.fc2=ffn_down
    """),
}
PHI3 = {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}


class Phi2Converter(Converter):
    arch = "phi2"
    classes: ClassVar[tuple[str, ...]] = ("PhiForCausalLM",)
    names = PHI2
    defaults = {"partial_rotary_factor": 0.5}

    @property
    def n_embd(self) -> int:
        return self.integer("hidden_size", "n_embd")

    @property
    def n_head(self) -> int:
        return self.integer("num_attention_heads", "n_head")

    @property
    def n_rot(self) -> int:
        return int(self.rope.get("partial_rotary_factor", 1.0) * self.n_embd) // self.n_head

    def keys(self) -> None:
        self.out.set_all({
            "context_length": self.integer("n_positions", "max_position_embeddings"),
            "embedding_length": self.n_embd,
            "feed_forward_length": 4 * self.n_embd,
            "block_count": self.n_layer,
            "attention.head_count": self.n_head,
            "attention.head_count_kv": self.n_head,
            "attention.layer_norm_epsilon": self.find("layer_norm_epsilon", "layer_norm_eps"),
            "rope.dimension_count": self.n_rot,
            "general.file_type": self.file_type,
            "tokenizer.ggml.add_bos_token": False,
        })  # fmt: skip


class Phi3Converter(Phi2Converter):
    arch = "phi3"
    classes = ("Phi3ForCausalLM", "Phi4ForCausalLMV")
    names = LLAMA
    layers = PHI3
    defaults = {}

    @property
    def n_context(self) -> int:
        return self.integer("n_positions", "max_position_embeddings")

    @property
    def n_original(self) -> int:
        """Context length of the training, before it was extended."""
        found = self.rope.get(ORIGINAL, self.n_context)
        if type(found) is not int or found < 2:
            raise ModelError(f"{ORIGINAL} must be an integer from 2 on, got {str(found)[:50]}")
        return found

    def keys(self) -> None:
        self.out.set_all({
            "context_length": self.n_context,
            "rope.scaling.original_context_length": self.n_original,
            "embedding_length": self.n_embd,
            "feed_forward_length": self.integer("intermediate_size"),
            "block_count": self.n_layer,
            "attention.head_count": self.n_head,
            "attention.head_count_kv": self.integer("num_key_value_heads", "n_head_kv"),
            "attention.layer_norm_rms_epsilon": self.find("rms_norm_eps"),
            "rope.dimension_count": self.n_rot,
            "rope.freq_base": self.full_rope.get("rope_theta"),
            "general.file_type": self.file_type,
            "attention.sliding_window": self.find("sliding_window") or 0,  # 0: Phi 4
        })  # fmt: skip

    def extra(self) -> NamedArrays:
        factors = {kind: self.rope.get(f"{kind}_factor") for kind in ("long", "short")}
        if not factors["long"]:
            return
        self.out.f32("rope.scaling.attn_factor", self._attention_factor())
        for kind, values in factors.items():
            if not isinstance(values, list) or 2 * len(values) != self.n_rot:
                raise ModelError(
                    f"{kind}_factor of RoPE must have {self.n_rot // 2} values, one for each pair, "
                    f"got {str(values)[:50]}"
                )
            yield f"rope_factors_{kind}.weight", LazyArray.from_values(values)

    def _attention_factor(self) -> float:
        """Return the factor of attention scores for the extended context."""
        scale, kind = self.n_context / self.n_original, str(self.rope.get("rope_type")).lower()
        if kind not in ("su", "longrope", "yarn"):
            raise ModelError(f"rope_type of Phi must be longrope or yarn, got {kind[:50]!r}")
        if scale <= 1:
            return 1.0
        if kind == "yarn":
            return 0.1 * math.log(scale) + 1
        return math.sqrt(1 + math.log(scale) / math.log(self.n_original))

    def vocabulary(self, v: Vocabulary) -> None:
        config = self.folder.json("tokenizer_config.json")
        if config.get("tokenizer_class") == "GPT2Tokenizer" or not v.has("tokenizer.model"):
            v.bpe()
            return
        pieces = read_sentencepiece(self.folder.path / "tokenizer.model").pieces
        tokens, scores, types = v.add_tokens(pieces)
        decoder = config.get("added_tokens_decoder", {}).items()
        listed = self.folder.json("tokenizer.json").get("added_tokens", [])
        added: list[tuple[Any, Any]] = [*decoder, *((token["id"], token) for token in listed)]
        for key, token in added:
            if not 0 <= (id := int(key)) < len(tokens):
                raise ModelError(
                    f"added token {id} must be in the vocabulary, 0..{len(tokens) - 1}; download "
                    "the tokenizer's files again"
                )
            tokens[id], scores[id] = token["content"], ADDED_SCORE
            types[id] = CONTROL if token.get("special") else USER_DEFINED
        v.write("llama", "default", tokens, types, scores)
        v.write_special(len(tokens))


class PhiMoeConverter(ExpertsConverter, Phi3Converter):
    arch = "phimoe"
    classes = ("PhiMoEForCausalLM", "PhimoeForCausalLM")
    layers = MIXTRAL
    parts = ("w1", "w2", "w3")

    def keys(self) -> None:
        super().keys()
        self.out.u32("expert_used_count", self.find("num_experts_per_tok", "num_experts_per_token"))
        self.out.u32("expert_count", self.integer("num_local_experts", "num_experts"))
