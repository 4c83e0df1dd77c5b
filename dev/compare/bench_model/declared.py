"""Models of llama.cpp's newest architectures. llama-py's model declares the tensors."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dev.compare.bench_model.spec import Architecture, TensorSpec, Value
from dev.tiny_models import Tiny
from dev.tiny_models._invent import shapes, values

WIDTH, N_LAYER = 1024, 16
EXACT = "inp", "conv"  # parts of names of matrices in F32
ATTENTION: dict[str, Value] = {
    "context_length": 40960,
    "embedding_length": WIDTH,
    "block_count": N_LAYER,
    "feed_forward_length": 3 * WIDTH,
    "attention.head_count": 16,
    "attention.head_count_kv": 8,
    "attention.key_length": 64,
    "attention.value_length": 64,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.freq_base": 1e6,
}
EXPERTS: dict[str, Value] = {
    "expert_count": 32,
    "expert_used_count": 4,
    "expert_feed_forward_length": 512,
}
WINDOWS: dict[str, Value] = {
    "attention.sliding_window": 512,
    "attention.sliding_window_pattern": [True, True, True, False] * 4,
}


@dataclass(frozen=True)
class Newest(Architecture):
    """An architecture at one size; `sizes` is its metadata."""

    name: str
    n_layer: int
    n_embd: int
    sizes: Mapping[str, Value]

    def keys(self) -> dict[str, Value]:
        return dict(self.sizes)

    def tensors(self, n_vocab: int) -> Iterator[TensorSpec]:
        tiny = Tiny(keys={**self.sizes, "vocab_size": n_vocab})
        for name, ne4 in shapes(self.name, tiny).items():
            n_dims = max((i for i, n in enumerate(ne4, 1) if n > 1), default=1)
            is_matrix = n_dims > 1 and not any(part in name for part in EXACT)
            made = None if is_matrix else partial(_values, tiny, name, ne4)
            yield TensorSpec(name, ne4[:n_dims], made)


def _values(
    tiny: Tiny, name: str, ne: tuple[int, ...], rng: np.random.Generator, n: int
) -> NDArray[np.floating]:
    return values(tiny, name, ne)


def _sizes(name: str, *parts: Mapping[str, Value]) -> dict[str, Architecture]:
    return {
        "1b": Newest(name, N_LAYER, WIDTH, dict(ChainMap(*map(dict, reversed(parts)), ATTENTION)))
    }


ALL = {
    "k2-horizon": _sizes(
        "k2-horizon",
        EXPERTS,
        {
            "leading_dense_block_count": 1,
            "expert_shared_count": 1,
            "expert_shared_feed_forward_length": 512,
            "expert_gating_func": 2,
            "expert_weights_norm": True,
            "expert_weights_scale": 1.5,
            "attention.group_norm_groups": 4,
            "attention.value_expert_count": 8,
            "attention.value_expert_used_count": 2,
        },
    ),
    "clef": _sizes(
        "clef",
        {
            "attention.layer_norm_epsilon": 1e-5,
            "rope.dimension_count": 64,
            "rope.dimension_sections": [11, 11, 10, 0],
            "full_attention_interval": 4,
            "ssm.conv_kernel": 4,
            "ssm.inner_size": 2048,
            "ssm.state_size": 128,
            "ssm.time_step_rank": 16,
            "ssm.group_count": 8,
            "decision.head_count": 16,
            "decision.routing_block_count": 2,
            "decision.block_count": 1,
        },
    ),
    "gemma-embedding2": _sizes(
        "gemma-embedding2",
        WINDOWS,
        {
            "attention.key_length_swa": 64,
            "attention.value_length_swa": 64,
            "embedding_length_per_layer_input": 64,
            "rope.dimension_count_swa": 64,
            "rope.freq_base_swa": 1e4,
            "pooling_type": 1,
        },
    ),
    "kolibri1": _sizes(
        "kolibri1",
        EXPERTS,
        WINDOWS,
        {
            "expert_shared_count": 1,
            "expert_shared_feed_forward_length": 512,
            "expert_gating_func": 2,
            "expert_weights_norm": True,
        },
    ),
    "muse-spark": _sizes(
        "muse-spark",
        EXPERTS,
        WINDOWS,
        {
            "post_norm_epsilon": 1e-6,
            "moe_latent_size": 512,
            "expert_weights_norm": True,
            "expert_weights_scale": 2.5,
            "expert_gating_func": 2,
            "logit_scale": 0.5,
            "final_logit_softcapping": 15.0,
            "rope.freq_base_swa": 1e4,
        },
    ),
    "maion-coder": _sizes(
        "maion-coder", EXPERTS, WINDOWS, {"interleave_moe_layer_step": 2, "moe_latent_size": 512}
    ),
    "beam": _sizes(
        "beam",
        EXPERTS,
        WINDOWS,
        {
            "attention.temperature_scale": 0.1,
            "attention.temperature_length": 8192,
            "leading_dense_block_count": 1,
            "expert_weights_norm": True,
            "expert_weights_scale": 2.5,
            "rope.freq_base_swa": 1e4,
        },
    ),
    "vllm-decision2": _sizes("vllm-decision2", {"attention.layer_norm_epsilon": 1e-5}),
}
