"""Checkpoints of Gemma 3n and Gemma 4, and of the models that draft for Gemma 4
(conversion/gemma.py)."""

from __future__ import annotations

import re
from functools import cached_property
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import Array, LazyArray, NamedArrays, concat, stack
from llama_py.checkpoint.models.gemma import Gemma3Converter
from llama_py.checkpoint.names import LAYERS, name_layers, pairs
from llama_py.checkpoint.sentencepiece import BYTE, CONTROL, NORMAL, USER_DEFINED
from llama_py.checkpoint.special_tokens import SpecialTokens, special_texts
from llama_py.checkpoint.vocabulary import ADDED_SCORE, Vocabulary, is_byte

PER_LAYER = {
    "model.embed_tokens_per_layer": "per_layer_token_embd",
    "model.per_layer_model_projection": "per_layer_model_proj",
    "model.per_layer_projection_norm": "per_layer_proj_norm",
    **name_layers(
        LAYERS,
        {
            "per_layer_input_gate": "inp_gate",
            "per_layer_projection": "proj",
            "post_per_layer_input_norm": "post_norm",
        },
    ),
}
ALTUP = pairs("""
    altup.correction_coefs=altup_correct_coef altup.correct_output_scale=altup_correct_scale
    altup.prediction_coefs=altup_predict_coef altup.modality_router=altup_router
    altup.router_norm=altup_router_norm laurel.linear_left=laurel_l laurel.linear_right=laurel_r
    laurel.post_laurel_norm=laurel_post_norm
""")
GEMMA4 = pairs("""
    layer_scalar=layer_output_scale router.proj=ffn_gate_inp router.scale=ffn_gate_inp.scale
    router.per_expert_scale=ffn_down_exps.scale experts.gate_up_proj=ffn_gate_up_exps
    experts.down_proj=ffn_down_exps pre_feedforward_layernorm_2=pre_ffw_norm_2
    post_feedforward_layernorm_1=post_ffw_norm_1 post_feedforward_layernorm_2=post_ffw_norm_2
""")
BARE = ("layer_scalar", ".experts.gate_up_proj", ".experts.down_proj")  # names without a suffix
DRAFT = {"pre_projection": "nextn.pre_projection", "post_projection": "nextn.post_projection"}
PROJECTION = re.compile(r"(model\.altup_(?:unembed_)?projections)\.(\d+)\.weight")
N_ALTUP = 4
FULL_HEAD_DIM = 512  # of Gemma 4, unless config.json has another
UNROTATED = 1e30  # divides frequencies to 0
# Tokens of Gemma 4 that a reader of its answers must see
VISIBLE = frozenset({
    "<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>",
    "<tool_response|>", '<|"|>',
})  # fmt: skip


class Gemma3nConverter(Gemma3Converter):
    arch = "gemma3n"
    classes = ("Gemma3nForCausalLM", "Gemma3nForConditionalGeneration")
    names = {
        **Gemma3Converter.names,
        **PER_LAYER,
        "model.altup_projections": "altup_proj",
        "model.altup_unembed_projections": "altup_unembd_proj",
    }
    layers = ALTUP
    suffixes = {"_scale": ".weight"}
    defaults = {
        **Gemma3Converter.defaults,
        "vocab_size": 262400,
        "max_position_embeddings": 32768,
        "num_key_value_heads": 2,
        "final_logit_softcapping": 30.0,
    }
    adds_one = ()

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if "embed_tokens.weight" in name or "embed_tokens_per_layer" in name:
            yield self.rename(name), pad_rows(array, self.integer("vocab_size"))
        elif match := PROJECTION.fullmatch(name):
            found = self.gatherer.add(match[1], int(match[2]), array, N_ALTUP - 1)
            if found is not None:
                yield self.rename(f"{match[1]}.weight"), stack(found)
        else:
            yield from super().tensors(name, array, layer)

    def keys(self) -> None:
        super().keys()
        if (n := self.integer("altup_num_inputs")) != N_ALTUP:
            raise self.refuse(("altup_num_inputs",), str(N_ALTUP))
        types, sparsity = self.find("layer_types"), self.find("activation_sparsity_pattern")
        if not isinstance(types, list) or not isinstance(sparsity, list):
            raise ModelError(
                f"layer_types and activation_sparsity_pattern must be lists, got {str(types)[:50]} "
                f"and {str(sparsity)[:50]}"
            )
        self.out.set_all({
            "altup.active_idx": self.integer("altup_active_idx"),
            "altup.num_inputs": n,
            "embedding_length_per_layer_input": self.integer("hidden_size_per_layer_input"),
            "attention.shared_kv_layers": self.integer("num_kv_shared_layers"),
            "activation_sparsity_scale": [find_quantile(part) for part in sparsity],
            "attention.sliding_window_pattern": [t == "sliding_attention" for t in types],
        })  # fmt: skip


class Gemma4Converter(Gemma3Converter):
    arch = "gemma4"
    classes: ClassVar[tuple[str, ...]] = ("Gemma4ForConditionalGeneration", "Gemma4ForCausalLM")
    names = {**Gemma3Converter.names, **PER_LAYER}
    layers = GEMMA4
    suffixes = dict.fromkeys(BARE, ".weight")
    defaults = {**Gemma3Converter.defaults, "vocab_size": 262144, "num_kv_shared_layers": 0}
    adds_one = ()

    @cached_property
    def windows(self) -> list[bool]:
        """Attention to a window, for each layer."""
        types = self.find("layer_types")
        if not isinstance(types, list) or len(types) != self.n_layer:
            raise ModelError(
                f"layer_types must have {self.n_layer} entries, one per layer, got "
                f"{str(types)[:50]}"
            )
        return [t == "sliding_attention" for t in types]

    def find_full(self, name: str, in_layer: str) -> Any:
        """Return a value for layers that attend to all tokens.

        name      of the value in config.json
        in_layer  name in an entry of per_layer_config
        """
        if (found := self.find(name)) is not None:
            return found
        entries = self.find("per_layer_config")
        for number, entry in entries.items() if isinstance(entries, dict) else ():
            layer = int(number)
            if layer < self.n_layer and not self.windows[layer] and in_layer in entry:
                return entry[in_layer]
        return None

    @property
    def full_head_dim(self) -> int:
        found = self.find_full("global_head_dim", "head_dim")
        return found if type(found) is int else FULL_HEAD_DIM

    def extra(self) -> NamedArrays:
        """Yield the factors of frequencies: a part of each head in full layers is not rotated."""
        rope, half = self.full_rope, self.full_head_dim // 2
        if rope.get("rope_type") != "proportional":
            raise ModelError(
                "rope_type of layers with full attention must be proportional, got "
                f"{str(rope.get('rope_type'))[:50]!r}"
            )
        n = int(self.full_head_dim * rope.get("partial_rotary_factor", 1.0) / 2)
        yield "rope_freqs.weight", LazyArray.from_values([1.0] * n + [UNROTATED] * (half - n))

    def keys(self) -> None:
        super().keys()
        n_shared, head_dim = self.integer("num_kv_shared_layers"), self.integer("head_dim")
        n_kv = None
        if self.config.get("attention_k_eq_v", True):
            n_kv = self.find_full("num_global_key_value_heads", "num_key_value_heads")
        n_expert_ff = self.find("expert_intermediate_size", "moe_intermediate_size")
        part = self.rope.get("partial_rotary_factor", 1.0)
        self.out.set_all({
            "attention.shared_kv_layers": n_shared,
            "embedding_length_per_layer_input": self.find("hidden_size_per_layer_input") or 0,
            "attention.sliding_window_pattern": self.windows,
            "attention.key_length": self.full_head_dim,
            "attention.value_length": self.full_head_dim,
            "attention.key_length_swa": head_dim,
            "attention.value_length_swa": head_dim,
            **({} if n_expert_ff is None else {"expert_feed_forward_length": n_expert_ff}),
        })  # fmt: skip
        if self.find("use_double_wide_mlp"):
            n_ff, first = self.integer("intermediate_size"), self.n_layer - n_shared
            sizes = [n_ff if i < first else 2 * n_ff for i in range(self.n_layer)]
            self.out.array("feed_forward_length", sizes)
        if n_kv is not None:
            own = self.integer("num_key_value_heads")
            counts = [own if is_windowed else n_kv for is_windowed in self.windows]
            self.out.array("attention.head_count_kv", counts)
        self.out.u32("rope.dimension_count", self.full_head_dim)
        self.out.u32("rope.dimension_count_swa", int(head_dim * part))

    def vocabulary(self, v: Vocabulary) -> None:
        tokenizer, named = v.tokenizer(), special_texts(self.folder)
        n_base, tokens, types = tokenizer.get_vocab_size(False), list[str](), list[int]()
        ids = tokenizer.get_vocab(with_added_tokens=True)
        for text, id in sorted(ids.items(), key=lambda pair: pair[1]):
            kind = CONTROL if text in named else NORMAL if id < n_base else USER_DEFINED
            kind = BYTE if id < n_base and is_byte(text) else kind
            tokens.append(text)
            types.append(USER_DEFINED if text in VISIBLE else kind)
        v.write("gemma4", None, tokens, types, [ADDED_SCORE] * len(tokens))
        SpecialTokens(self.folder, with_merges=True).write(self.out)
        self.out.boolean("tokenizer.ggml.add_space_prefix", False)
        self.out.boolean("tokenizer.ggml.add_bos_token", True)


class Gemma4UnifiedConverter(Gemma4Converter):
    arch = "gemma4"
    classes = ("Gemma4UnifiedForConditionalGeneration",)

    def keys(self) -> None:
        super().keys()
        found = self.folder.json("generation_config.json").get("suppress_tokens")
        if found is not None:
            self.out.array("tokenizer.ggml.suppress_tokens", found)


class Gemma4AssistantConverter(Gemma4Converter):
    """Drafts tokens for Gemma 4; its layers use the larger model's keys and values."""

    arch = "gemma4-assistant"
    classes = ("Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM")
    names = {**Gemma4Converter.names, **DRAFT}

    def select(self, name: str) -> str | None:
        return None if "masked_embedding" in name else super().select(name)

    def keys(self) -> None:
        super().keys()
        self.out.u32("embedding_length_out", self.integer("backbone_hidden_size"))
        self.out.u32("nextn_predict_layers", self.n_layer)


def pad_rows(array: LazyArray, n_rows: int) -> LazyArray:
    """Return a matrix with rows of zeros up to n_rows."""
    n, *rest = array.shape
    if n >= n_rows:
        return array
    shape = (n_rows - n, *rest)

    def zeros() -> Array:
        return np.zeros(shape, array.dtype)

    return concat([array, LazyArray(shape, array.dtype, zeros, array.stored)])


def find_quantile(part: float) -> float:
    """Return a quantile of the normal distribution, rounded like torch's icdf of float32."""
    x = np.float32(2) * np.float32(part) - np.float32(1)  # of the inverse error function
    if not -1 < x < 1:
        return float(np.copysign(np.float32(np.inf), x)) if abs(x) == 1 else float("nan")
    inverse = np.float32(NormalDist().inv_cdf((float(x) + 1) / 2) / 2**0.5)
    return float(inverse * np.float32(2**0.5))
