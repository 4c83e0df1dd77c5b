"""Checkpoints of EXAONE (conversion/exaone.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter, ConvertOptions
from llama_py.checkpoint.experts import ExpertsConverter
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.models.olmo import Olmo2Converter
from llama_py.checkpoint.models.qwen3next import DRAFT
from llama_py.checkpoint.names import EXPERTS, HEAD_NORMS, LLAMA, NEXTN, SHARED_EXPERTS, pairs
from llama_py.checkpoint.rotary import rope_factors
from llama_py.checkpoint.shared_keys import VOCAB_SIZE

FACTOR = 16.0  # of RoPE, without another


class ExaoneConverter(Converter):
    arch = "exaone"
    classes = ("ExaoneForCausalLM",)
    names = pairs("""
        transformer.wte=token_embd transformer.ln_f=output_norm lm_head=output
        transformer.h.{}: ln_1=attn_norm ln_2=ffn_norm attn.attention.q_proj=attn_q
            attn.attention.k_proj=attn_k attn.attention.v_proj=attn_v
            attn.attention.out_proj=attn_output mlp.c_fc_0=ffn_gate mlp.c_fc_1=ffn_up
            mlp.c_proj=ffn_down
    """)

    def keys(self) -> None:
        if self.config.get("activation_function") != "silu":
            raise self.refuse(("activation_function",), "silu")
        super().keys()
        part = self.rope.get("partial_rotary_factor", 1.0)
        n = self.integer("hidden_size") // self.integer("num_attention_heads")
        self.out.u32("rope.dimension_count", int(part * n))

    def extra(self) -> NamedArrays:
        yield from rope_factors(self.full_rope, self.head_dim)


class Exaone4Converter(Converter):
    arch = "exaone4"
    classes: ClassVar[tuple[str, ...]] = ("Exaone4ForCausalLM",)
    names = Olmo2Converter.names
    layers = NEXTN

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        super().__init__(folder, options)
        self.n_trunk = self.n_layer

    def keys(self) -> None:
        super().keys()
        self.copy(VOCAB_SIZE)
        if (window := self.find("sliding_window")) is not None:
            self.out.u32("attention.sliding_window", window)
            self.out.array("attention.sliding_window_pattern", self._windows())

    def _windows(self) -> list[bool]:
        """Return which layers have a window; sliding_window_pattern is "LLLG", or the period."""
        types, pattern = self.find("layer_types"), self.find("sliding_window_pattern")
        if isinstance(types, list):
            return [t == "sliding_attention" for t in types]
        if isinstance(pattern, str) and pattern:
            return [pattern[i % len(pattern)] == "L" for i in range(self.n_trunk)]
        if isinstance(pattern, int) and pattern > 0:
            return [(i + 1) % pattern != 0 for i in range(self.n_trunk)]
        return []

    def extra(self) -> NamedArrays:
        yield from rope_factors(self.full_rope, self.head_dim, FACTOR)


class DraftingExaoneConverter(Exaone4Converter):
    """A model with layers that draft tokens, after the others."""

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        super().__init__(folder, options)
        self.n_draft = self.integer(DRAFTS) if self.find(DRAFTS) is not None else 0
        self.n_layer += self.n_draft

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        for new_name, number in self._places(name, layer):
            yield from super().tensors(new_name, array, number)

    def _places(self, name: str, layer: int | None) -> Iterator[tuple[str, int | None]]:
        """Yield a name in each layer after the last that has this tensor."""
        if not name.startswith("mtp."):
            yield name, layer
            return
        _, part, *rest = name.split(".")
        drafts = range(self.n_trunk, self.n_trunk + self.n_draft)
        if part == "layers":
            shared = bool(self.config.get("mtp_share_layers", False)) and self.arch == "exaone4"
            module = ".".join(rest[1:])
            numbers = drafts if shared else [self.n_trunk + (layer or 0)] if self.n_draft else ()
        else:
            module = ".".join((DRAFT.get(part, part), *rest))
            numbers = drafts
        for number in numbers:
            yield f"model.layers.{number}.{module}", number


class Exaone45Converter(DraftingExaoneConverter):
    classes = ("Exaone4_5_ForConditionalGeneration",)

    def keys(self) -> None:
        super().keys()
        if self.n_draft:
            self.out.u32("nextn_predict_layers", self.n_draft)


class ExaoneMoeConverter(DraftingExaoneConverter, ExpertsConverter):
    arch = "exaone-moe"
    classes = ("ExaoneMoEForCausalLM", "ExaoneMoeForCausalLM")
    names = LLAMA
    layers = {
        **HEAD_NORMS,
        **EXPERTS,
        **SHARED_EXPERTS,
        **NEXTN,
        "mlp.e_score_correction": "exp_probs_b",
    }

    def keys(self) -> None:
        super().keys()
        out = self.out
        n_ff, n_shared = self.integer("moe_intermediate_size"), self.integer("num_shared_experts")
        out.u32("expert_feed_forward_length", n_ff)
        out.u32("expert_shared_count", n_shared)
        out.u32("expert_shared_feed_forward_length", n_ff * n_shared)
        out.f32("expert_weights_scale", self.find("routed_scaling_factor"))
        out.boolean("expert_weights_norm", self.find("norm_topk_prob"))
        n_dense = self.find("first_k_dense_replace", "first_last_k_dense_replace")
        out.u32("leading_dense_block_count", n_dense or 0)
        out.u32("nextn_predict_layers", self.n_draft)
        out.text("rope.scaling.type", "none")


DRAFTS = "num_nextn_predict_layers"
