"""Checkpoints of Nemotron, Nemotron-H and its variants with experts (conversion/nemotron.py)."""

from __future__ import annotations

import re
from functools import cached_property

from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter, ConvertOptions
from llama_py.checkpoint.experts import NextnConverter
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.merge import ExpertMerger
from llama_py.checkpoint.models.granite import GraniteHybridConverter, GraniteMoeConverter
from llama_py.checkpoint.names import NEXTN, STATE_SPACE, name_layers, pairs
from llama_py.checkpoint.shared_keys import (
    EXPERT_COUNT,
    EXPERT_NORM,
    EXPERT_SCALE,
    EXPERT_SIZE,
    SHARED_COUNT,
    SHARED_SIZE,
    VOCAB_SIZE,
)
from llama_py.checkpoint.vocabulary import Vocabulary

PADDING, UNKNOWN = 0, 1  # ids of Nemotron's tokens
# Kinds of layers, by characters of hybrid_override_pattern and by names of layers_block_type
STATES = ("M", "mamba", "linear_attention")
ATTENTION = ("*", "attention", "full_attention")
DENSE, SPARSE = ("-", "mlp"), ("E", "moe")
MIXER = {
    **STATE_SPACE,
    **pairs("""
        dt=ssm_dt q_proj=attn_q k_proj=attn_k v_proj=attn_v o_proj=attn_output up_proj=ffn_up
        down_proj=ffn_down gate=ffn_gate_inp gate.e_score_correction=exp_probs_b
        experts.up_proj=ffn_up_exps experts.down_proj=ffn_down_exps
        shared_experts.up_proj=ffn_up_shexp shared_experts.down_proj=ffn_down_shexp
        fc1_latent_proj=ffn_latent_down fc2_latent_proj=ffn_latent_up
    """),
}
# Modules of the layer that drafts tokens; others have the names of layers
DRAFT = pairs("""
    0.enorm=enorm 0.hnorm=hnorm 0.eh_proj=eh_proj 1.norm=post_attention_layernorm
    1.final_layernorm=shared_head.norm
""")
EXPERT_KEYS = (
    *(SHARED_SIZE, EXPERT_COUNT, SHARED_COUNT, EXPERT_NORM, EXPERT_SCALE),
    ("expert_group_count", "u32!", ("n_group",)),
)
DRAFTED = re.compile(r"mtp\.layers\.([01])\.(.*?)\.?(weight|bias)?")


class NemotronConverter(Converter):
    arch = "nemotron"
    classes = ("NemotronForCausalLM",)
    adds_one = ("norm.weight",)

    def keys(self) -> None:
        super().keys()
        epsilon = ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")
        self.copy(VOCAB_SIZE, ("attention.layer_norm_epsilon", "f32!", epsilon))
        if (part := self.rope.get("partial_rotary_factor")) is None:
            raise self.refuse(("partial_rotary_factor",))
        n_embd, n_head = self.integer("hidden_size"), self.integer("num_attention_heads")
        self.out.u32("rope.dimension_count", int(part * n_embd) // n_head)
        factor = self.config.get("factor") or self.rope.get("factor")
        self.out.text("rope.scaling.type", "none" if factor is None else "linear")
        if factor is not None:
            self.out.f32("rope.scaling.factor", factor)

    def vocabulary(self, v: Vocabulary) -> None:
        v.sentencepiece()
        self.out.u32("tokenizer.ggml.padding_token_id", PADDING)
        self.out.u32("tokenizer.ggml.unknown_token_id", UNKNOWN)


class NemotronHConverter(NextnConverter, GraniteHybridConverter):
    """A layer is Mamba 2, attention, feed-forward or experts. One layer may draft tokens: it has
    attention and experts."""

    arch = "nemotron_h"
    classes = ("NemotronHForCausalLM",)
    names = {
        **GraniteMoeConverter.names,
        "backbone.embeddings": "token_embd",
        "backbone.norm_f": "output_norm",
        **name_layers(
            "backbone.layers.{}",
            {"norm": "attn_norm", **{f"mixer.{name}": tensor for name, tensor in MIXER.items()}},
        ),
    }
    layers = {**NEXTN, "post_attention_layernorm": "post_attention_norm"}
    plain_archs = ("", "")

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        self.config = folder.config
        self.is_moe = self.has_experts()
        if self.is_moe:
            self.arch = "nemotron_h_moe"
        if isinstance(types := folder.config.get("layers_block_type"), list):
            folder.config["num_hidden_layers"] = len(types)
        self.head_size = folder.config.get("head_dim", folder.config.get("attention_head_dim"))
        super().__init__(folder, options)
        kinds = SPARSE if self.is_moe else DENSE
        self.feed_forward_layers = [i for i, k in enumerate(self.pattern) if k in kinds]
        self.state_layers = [i for i, k in enumerate(self.pattern) if k in STATES]
        drafts = range(self.n_trunk, self.n_layer)
        self.attention_layers += drafts
        self.feed_forward_layers += drafts

    def has_experts(self) -> bool:
        """Return True if a layer has experts; transformers 5 stores their number for all models."""
        return any(kind in SPARSE for kind in self.pattern)

    def n_drafts(self) -> int:
        count = super().n_drafts() if self.is_moe else 0
        if count not in (0, 1):
            raise self.refuse(("num_nextn_predict_layers",), f"0 or 1, got {count}")
        return count

    @property
    def pattern(self) -> list[str]:
        """The kind of each layer."""
        found = self.find("hybrid_override_pattern", "layers_block_type", "layer_types")
        return [*found] if isinstance(found, str | list) else []

    def find_attention(self) -> list[int]:
        if self.pattern and len(self.pattern) != self.n_layer:
            wanted = f"a kind for each of {self.n_layer} layers, got {len(self.pattern)}"
            raise self.refuse(("hybrid_override_pattern", "layers_block_type"), wanted)
        return [i for i, kind in enumerate(self.pattern) if kind in ATTENTION]

    @property
    def n_inner(self) -> int:
        size = self.integer("mamba_head_dim", "hidden_size", "d_model")
        return self.integer(*self.state_names("num_heads")) * size

    @cached_property
    def experts(self) -> ExpertMerger:
        return ExpertMerger(self.find("n_routed_experts") or 0, ("down_proj", "up_proj"))

    def select(self, name: str) -> str | None:
        if name.startswith("model.layers.") and ".mixer." in name:
            name = f"backbone.{name.removeprefix('model.')}"
        return super().select(name)

    def place(self, name: str) -> str:
        match = DRAFTED.fullmatch(name)
        if match is None:
            return name
        number, module, kind = match.groups()
        suffix = f".{kind}" if kind else ""
        if (renamed := DRAFT.get(f"{number}.{module}")) is not None:
            return f"model.layers.{self.n_trunk}.{renamed}{suffix}"
        return f"backbone.layers.{self.n_trunk}.{module}{suffix}"

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        merged = self.experts.merge(name, array)
        if merged is not None:
            for new_name, new in merged:
                yield self.rename(new_name), new
        elif layer in self.attention_layers:
            yield from GraniteMoeConverter.tensors(self, name, array, layer)
        else:
            yield from self.state_space(name, array)

    def keys(self) -> None:
        super().keys()
        if self.head_size is None:
            raise self.refuse(("head_dim", "attention_head_dim"))
        self.out.u32("attention.key_length", self.head_size)
        self.out.u32("attention.value_length", self.head_size)
        self.feed_forward_keys()
        self.draft_key()

    def feed_forward_keys(self) -> None:
        """Set the sizes of feed-forward layers and of experts."""
        names = ("intermediate_size", "n_inner", "hidden_dim")
        n_ff = self.integer(*(("moe_intermediate_size",) if self.is_moe else names))
        each = [n_ff if i in self.feed_forward_layers else 0 for i in range(self.n_layer)]
        self.out.array("feed_forward_length", each)
        if not self.is_moe:
            return
        self.copy(
            ("expert_used_count", "u32!", ("num_experts_per_tok",)),
            EXPERT_SIZE,
            *EXPERT_KEYS,
            ("moe_latent_size", "u32", ("moe_latent_size",)),
        )

    def vocabulary(self, v: Vocabulary) -> None:
        multiple = 8
        v.n_vocab = -(self.integer("vocab_size") // -multiple) * multiple
        v.bpe()


class NemotronHPuzzleConverter(NemotronHConverter):
    """Layers have different numbers of experts. Layers that draft tokens are not converted."""

    arch = "nemotron_h_moe"
    classes = ("NemotronHPuzzleForCausalLM",)
    has_nextn = False

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        blocks = folder.config.get("block_configs")
        self.shapes = [b for b in blocks if isinstance(b, dict)] if isinstance(blocks, list) else []
        folder.config.pop("hybrid_override_pattern", None)
        folder.config["layers_block_type"] = [str(b.get("block_type")) for b in self.shapes]
        super().__init__(folder, options)

    def select(self, name: str) -> str | None:
        if name.startswith("model."):
            name = f"backbone.{name.removeprefix('model.')}"
        return None if name.startswith("mtp.") else super().select(name)

    def feed_forward_keys(self) -> None:
        lengths, used = (
            [b.get(name) or 0 for b in self.shapes]
            for name in ("moe_intermediate_size", "num_experts_per_tok")
        )
        self.out.array("feed_forward_length", lengths)
        self.out.array("expert_feed_forward_length", lengths)
        self.out.array("expert_used_count", used)
        self.copy(*EXPERT_KEYS, ("moe_latent_size", "u32!", ("moe_latent_size",)))
