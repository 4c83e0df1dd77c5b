"""Decoders with latent attention and experts after the first layers: sizes, feed-forward and memory
of layers (models/deepseek2.cpp, deepseek32.cpp, kimi-linear.cpp, kimi-k3.cpp)."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from ggml_py.tensor import Tensor
from llama_py.blocks.experts import ExpertSet, Optional
from llama_py.blocks.latent_attention import LatentSizes, caches_latent
from llama_py.blocks.rope import rope
from llama_py.gguf.keys import Keys, number, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import RMS_EPS, HParams
from llama_py.hparams.layer_shape import LayerShape
from llama_py.hparams.shard import Shard
from llama_py.memory.specs import KVCacheSpec, MemorySpecs
from llama_py.models.trunks.decoder import Block, Decoder
from llama_py.models.trunks.experts import LeadingDenseHParams, expert_layer
from llama_py.weights import Weights


class LatentSizesHParams(HParams):
    """n_lora_kv  rank of the latent vector; n_lora_q: rank of the queries, or 0
    n_embd_head_k_mla, n_embd_head_v_mla   dimensions of a head's unpacked keys and values; the last
                n_rot dimensions of the keys are one part that all heads share
    """

    required_heads = True
    least_nope: ClassVar[int] = 1  # dimensions of a head without RoPE
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_lora_kv: int = uint("attention.kv_lora_rank", least=1)
    n_lora_q: int = uint("attention.q_lora_rank", 0)
    n_embd_head_k_mla: int = uint("attention.key_length_mla", 0)
    n_embd_head_v_mla: int = uint("attention.value_length_mla", 0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.n_embd_head_k_mla = self.n_embd_head_k_mla or self.n_embd_head_k
        self.n_embd_head_v_mla = self.n_embd_head_v_mla or self.n_embd_head_v
        self.check_turned(keys)

    def check_turned(self, keys: Keys) -> None:
        """Raise an error unless the number of rotated key dimensions fits."""
        most = self.n_embd_head_k_mla - self.least_nope
        if self.n_rot == 0 or self.n_rot > most:
            raise keys.error("rope.dimension_count", f"must be from 2 to {most}")

    def shared_heads(self, share: Shard, il: int) -> LayerShape:
        """Return the share of heads of layer il. Every device computes the latent vector itself."""
        shape = self.layers[il]
        if shape.recurrent:
            return shape
        n = share.count_own(shape.n_head, self.latent(il).d_v, "attn_output", il=il)
        return replace(shape, n_head=n)

    def n_embd_values(self, il: int) -> int:
        """Return the dimensions of attention's result before its projection."""
        sizes = self.latent(il)
        return sizes.n_head * sizes.d_v

    def latent(self, il: int) -> LatentSizes:
        return LatentSizes(
            self.n_embd,
            self.layers[il].n_head,
            self.n_lora_kv,
            self.n_lora_q,
            self.n_embd_head_k_mla,
            self.n_embd_head_v_mla,
            self.n_rot,
        )


class LatentHParams(LatentSizesHParams, LeadingDenseHParams):
    """Experts after the first layers."""


class YarnLatentHParams(LatentHParams):
    """Hyperparameters with YaRN's factor on products of queries and keys."""

    # Squared factor, in float32.
    yarn_log_mul: float = number("rope.scaling.yarn_log_multiplier", 0.0, least=0, most=1e6)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        # files have it times 0.1
        self.rope_yarn_log_mul = float(np.float32(self.yarn_log_mul) / np.float32(0.1))


class LatentDecoder(Decoder):
    """absorbed  the cache has latent vectors instead of each head's keys and values"""

    hp: LatentSizesHParams

    def declare(self, w: Weights) -> None:
        self.absorbed = caches_latent(w)
        super().declare(w)

    def memory_spec(self, il: int) -> MemorySpecs:
        hp, shape = self.hp, self.hp.layers[il]
        if shape.recurrent:
            return super().memory_spec(il)
        sizes, rope = hp.latent(il), shape.rope
        offset = sizes.n_lora_kv if self.absorbed else sizes.nope
        rope = None if rope is None else replace(rope, offset=offset)
        if self.absorbed:
            return (KVCacheSpec(1, sizes.n_lora_kv + sizes.n_rot, 0, shape.window, rope),)
        return (KVCacheSpec(sizes.n_head, sizes.d_k, sizes.d_v, shape.window, rope),)


class Latent(LatentDecoder):
    """Decoder with latent attention, and experts after the first layers."""

    hp: LatentHParams

    def feed_forward(
        self,
        w: Weights,
        il: int,
        *,
        need_shexp: bool,
        probs_bias: Optional = "optional",
        scaled: bool = False,
    ) -> Block:
        """Declare the feed-forward of layer il.

        need_shexp, probs_bias  shared experts, and a bias of the choice, are required
        scaled   matrices may have scales
        """
        shared = need_shexp or w.has("ffn_up_shexp.weight")
        return expert_layer(
            w,
            self.hp,
            il,
            shared=shared,
            bias=probs_bias,
            experts=ExpertSet(merged=True, scaled=scaled),
        )


def turn(g: GraphBuilder, x: Tensor, il: int, offset: int) -> Tensor:
    return rope(g, x, il, offset=offset)


def kq_scale(g: GraphBuilder) -> float:
    """Return the scale of scores by the size of unpacked keys."""
    assert isinstance(g.hp, LatentSizesHParams)
    return yarn_kq_scale(g, g.hp.n_embd_head_k_mla)


def yarn_kq_scale(g: GraphBuilder, d: int) -> float:
    """Return 1 / sqrt(d) with YaRN's factors, computed in float32: its attention factor before
    CParams divided out ggml's own, and mscale, both squared because they apply to queries and
    keys."""
    hp, cp, f32 = g.hp, g.cparams, np.float32
    log = np.log(f32(1.0) / f32(cp.rope_freq_scale))
    factor = f32(cp.yarn_attn_factor) * (f32(1.0) + f32(0.1) * log)
    mscale = factor * (f32(1.0) + f32(0.1) * f32(hp.rope_yarn_log_mul) * log)
    return float(mscale * mscale / np.sqrt(f32(d)))
