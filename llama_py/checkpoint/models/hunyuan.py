"""Checkpoints of Hunyuan, dense and with experts, and Hy3 (conversion/hunyuan.py)."""

from __future__ import annotations

from typing import Any

from llama_py.checkpoint.converter import Converter, ConvertOptions
from llama_py.checkpoint.experts import ExpertsConverter, NextnConverter
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.names import HEAD_NORMS, NEXTN, ROUTED_EXPERTS
from llama_py.checkpoint.special_tokens import ROLES, SpecialTokens
from llama_py.checkpoint.tiktoken import read_ranks, write_ranks
from llama_py.checkpoint.vocabulary import Vocabulary

LONG = 256 * 1024  # tokens of context that dynamic RoPE reaches
CONTEXTS = (32 * 1024, LONG)
RANKS, N_EXTRA = "hy.tiktoken", 205
SPECIAL = ("<|endoftext|>", "<|startoftext|>", "<|bos|>", "<|eos|>", "<|pad|>")
NORMS = {"self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm"}
EXPERTS = {
    "mlp.gate.wg": "ffn_gate_inp",
    **{f"mlp.experts.{part}_proj": f"ffn_{part}_exps" for part in ("gate", "up", "down")},
    **{f"mlp.shared_mlp.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")},
}


class HunyuanConverter(Converter):
    """Base of the dense models and of models with experts."""

    drops_tied_output = True

    def scaled_rope(self, alpha: float, dim: int) -> None:
        """Set RoPE's base for a longer context: base * alpha ** (dim / (dim - 2))."""
        base = self.rope.get("rope_theta", 10000.0)
        alpha = self.rope.get("alpha", alpha)
        out = self.out
        out.f32("rope.freq_base", base * alpha ** (dim / (dim - 2)))
        out.text("rope.scaling.type", "none")
        out.f32("rope.scaling.factor", 1)
        if self.rope.get("rope_type") != "dynamic":
            return
        out.u32("rope.scaling.original_context_length", LONG)
        out.u32("context_length", LONG)
        if base != 10000.0 or self.find("max_position_embeddings") not in CONTEXTS:
            raise self.refuse(("rope_theta", "max_position_embeddings"), f"10000, and {CONTEXTS}")

    def ranks(self, v: Vocabulary) -> None:
        """Write the vocabulary of hy.tiktoken."""
        ranks = read_ranks(v.folder.path / RANKS)
        names = [*SPECIAL, *(f"<|extra_{i}|>" for i in range(N_EXTRA))]
        special = {len(ranks) + i: name for i, name in enumerate(names)}
        n = len(ranks) + len(names)
        write_ranks(v, ranks, special, v.check_size(n, n), "hunyuan")
        v.out.u32("tokenizer.ggml.bos_token_id", len(ranks) + SPECIAL.index("<|bos|>"))


class HunyuanMoeConverter(HunyuanConverter, ExpertsConverter):
    arch = "hunyuan-moe"
    classes = ("HunYuanMoEV1ForCausalLM",)
    layers = {**NORMS, **EXPERTS}

    def keys(self) -> None:
        super().keys()
        out = self.out
        out.u32("expert_shared_feed_forward_length", self.integer("intermediate_size"))
        out.u32("expert_feed_forward_length", self._one("moe_intermediate_size"))
        out.u32("expert_used_count", self._one("moe_topk"))
        out.u32("expert_shared_count", self._one("num_shared_expert"))
        if self.rope.get("rope_type") == "dynamic":
            size = self.integer("hidden_size") // self.integer("num_attention_heads")
            self.scaled_rope(1000, size)

    def _one(self, name: str) -> Any:
        """Return a value that all layers have. Raises ModelError if they differ."""
        found = self.find(name)
        values = found if isinstance(found, list) else [found]
        if not values or any(value != values[0] for value in values):
            raise self.refuse((name,), "the same for all layers")
        return values[0]

    def vocabulary(self, v: Vocabulary) -> None:
        v.bpe() if v.has("tokenizer.json") else self.ranks(v)


class HunyuanDenseConverter(HunyuanConverter):
    arch = "hunyuan-dense"
    classes = ("HunYuanDenseV1ForCausalLM",)
    layers = NORMS

    def keys(self) -> None:
        self.config.pop("num_experts", None)
        super().keys()
        if self.rope.get("rope_type") in ("dynamic", "xdrope"):
            self.scaled_rope(50, self.integer("head_dim"))

    def vocabulary(self, v: Vocabulary) -> None:
        if v.has("tokenizer.json"):
            tokens, kinds, pre = v.tokens_of_json()
            v.write("gpt2", pre, tokens, kinds)
            has_pad = (self.find("pad_token_id") or 0) >= 0
            roles = [role for role in ROLES if has_pad or role != "pad"]
            SpecialTokens(v.folder, with_merges=True, roles=roles).write(self.out)
        else:
            self.ranks(v)
        if (end := self.find("eod_token_id")) is not None:
            self.out.u32("tokenizer.ggml.eos_token_id", end)
        ends = v.folder.json("generation_config.json").get("eos_token_id")
        if isinstance(ends, list) and len(ends) > 1:
            self.out.u32("tokenizer.ggml.eot_token_id", ends[0])


class HunyuanVLConverter(HunyuanDenseConverter):
    """RoPE has sections for the positions within images."""

    arch = "hunyuan_vl"
    classes = ("HunYuanVLForConditionalGeneration",)

    def _rope(self) -> dict[str, Any]:
        rope = super()._rope()
        if rope.get("rope_type") == "dynamic" and "mrope_section" in rope:
            rope |= {"rope_type": "xdrope", "xdrope_section": [*rope["mrope_section"]]}
        return rope

    def keys(self) -> None:
        super().keys()
        rope, out = self.rope, self.out
        if rope.get("rope_type") != "xdrope":
            return
        if any(rope.get(name) is None for name in ("rope_theta", "alpha", "xdrope_section")):
            raise self.refuse(("rope_theta, alpha and xdrope_section of rope_scaling",))
        out.f32("rope.freq_base", rope["rope_theta"])
        out.f32("rope.scaling.alpha", rope["alpha"])
        out.text("rope.scaling.type", "none")
        out.f32("rope.scaling.factor", rope.get("factor", 1))
        context = self.integer("max_position_embeddings")
        out.u32("rope.scaling.original_context_length", context)
        out.u32("context_length", context)
        out.array("rope.dimension_sections", [*rope["xdrope_section"]])


class HyV3Converter(ExpertsConverter, NextnConverter):
    arch = "hy_v3"
    classes = ("HYV3ForCausalLM",)
    layers = {
        **ROUTED_EXPERTS,
        **HEAD_NORMS,
        **NEXTN,
        "mlp.expert_bias": "exp_probs_b",
        "mlp.router.gate": "ffn_gate_inp",
        **{f"mlp.shared_mlp.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")},
        "mlp.e_score_correction": "exp_probs_b",
    }

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        super().__init__(folder, options)
        self.config.setdefault("num_shared_experts", 1)

    def place(self, name: str) -> str:
        return name.replace(".final_layernorm.", ".shared_head.norm.")

    def keys(self) -> None:
        super().keys()
        length = self.integer("moe_intermediate_size")
        self.out.u32("expert_feed_forward_length", length)
        n_shared = self.integer("num_shared_experts")
        self.out.u32("expert_shared_feed_forward_length", length * n_shared)
        self.out.boolean("expert_weights_norm", self.config.get("route_norm", True))
        self.out.f32("expert_weights_scale", self.config.get("router_scaling_factor", 1.0))
        self.set_gating("sigmoid")
        self.draft_key()
