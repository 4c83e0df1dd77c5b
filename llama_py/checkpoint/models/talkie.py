"""Checkpoints of Talkie (conversion/talkie.py)."""

from __future__ import annotations

import numpy as np

from llama_py.checkpoint.arrays import Array, LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.names import pairs

GAINS = {"attn_gain.a_g": "attn_output.scale", "mlp_gain.a_g": "ffn_down.scale"}


class TalkieConverter(Converter):
    arch = "talkie"
    classes = ("TalkieForCausalLM",)
    names = pairs("""
        model.embed=token_embd lm_head=output
        model.blocks.{}: attn.attn_query=attn_q attn.attn_key=attn_k attn.attn_value=attn_v
            attn.attn_resid=attn_output attn.head_gain.head_g=attn_q_norm mlp.mlp_gate=ffn_gate
            mlp.mlp_linear=ffn_up mlp.mlp_resid=ffn_down embed_skip.a_g=layer_output_scale
    """)

    def keys(self) -> None:
        super().keys()
        eps = float(np.finfo(np.float32).eps)  # of torch's rms_norm without another
        self.out.f32("attention.layer_norm_rms_epsilon", eps)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        module = name.removeprefix(f"model.blocks.{layer}.")
        if gain := GAINS.get(module):
            yield f"blk.{layer}.{gain}", array
            return
        if name == "lm_head_gain.w_g":
            self.out.f32("logit_scale", float(array.read().item()))
            return
        if module in ("attn.attn_query.weight", "attn.attn_key.weight"):
            array = array.map(self._turn)
        elif module == "attn.head_gain.head_g":
            array = array.reshape(*array.shape, 1)
        yield from super().tensors(name.removesuffix(".weight") + ".weight", array, layer)

    def _turn(self, weights: Array) -> Array:
        """Negate the second half of each head: the model rotates in the other direction."""
        n = self.head_dim
        heads = weights.reshape(-1, n, weights.shape[-1]).copy()
        heads[:, n // 2 :] *= -1
        return heads.reshape(weights.shape)
