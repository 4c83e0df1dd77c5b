"""Checkpoints of Muse Glimmer (conversion/muse_glimmer.py)."""

from __future__ import annotations

import numpy as np

from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.models.llama import RotatedConverter
from llama_py.checkpoint.names import POST_NORMS
from llama_py.checkpoint.shared_keys import WINDOWS
from llama_py.checkpoint.vocabulary import Vocabulary


class MuseGlimmerConverter(RotatedConverter):
    arch = "muse-glimmer"
    classes = ("MuseGlimmerForConditionalGeneration",)
    layers = {
        **POST_NORMS,
        "pre_feedforward_layernorm": "ffn_norm",
        "self_attn.gate_proj": "attn_gate",
    }
    adds_one = ("layernorm.weight",)
    needed = ("sliding_window", "layer_types", "qk_scale_factor")
    own_keys = (
        ("final_logit_softcapping", "f32", ("final_logit_softcapping",)),
        ("logit_scale", "f32", ("output_multiplier",)),
        *WINDOWS,
    )

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if name.endswith(".self_attn.q_proj.weight"):
            # norms of queries and keys have no weights, and queries a factor
            ones = np.ones(self.head_dim, np.float32)
            factor = np.float32(self.find("qk_scale_factor"))
            yield f"blk.{layer}.attn_q_norm.weight", LazyArray.from_values(ones * factor)
            yield f"blk.{layer}.attn_k_norm.weight", LazyArray.from_values(ones)
        yield from super().tensors(name, array, layer)

    def vocabulary(self, v: Vocabulary) -> None:
        v.bpe()
        if (id := v.tokenizer().token_to_id("<|eot|>")) is not None:
            self.out.u32("tokenizer.ggml.eot_token_id", id)
