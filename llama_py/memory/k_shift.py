"""Turning cached keys to positions that were moved by seq_add or seq_div (build_graph_shift)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from ggml_py.backend import Device, set_tensor
from ggml_py.graph import Graph
from ggml_py.ops import cast, cpy, rope_ext, view
from ggml_py.sched import Scheduler
from ggml_py.tensor import FLAG_INPUT, Tensor
from ggml_py.types import F32, I32
from llama_py.cparams import CParams
from llama_py.hparams import ROPE_NONE, HParams
from llama_py.memory.kv import KVCache


@runtime_checkable
class HasRopeFactors(Protocol):
    """A model whose RoPE has a factor per frequency."""

    def rope_factors(self, n_ctx_seq: int) -> Tensor | None:
        """F32 [n_rot / 2]"""


def shift_keys(
    kv: KVCache, hparams: HParams, cparams: CParams, factors: Tensor | None,
    devices: Sequence[Device],
) -> None:  # fmt: skip
    """Rotate every key by what its cell was moved; `factors` are those of the model's RoPE."""
    if hparams.rope_type != ROPE_NONE:
        shift = Tensor(I32, (kv.kv_size * kv.n_stream,))
        shift.flags |= FLAG_INPUT
        graph = Graph()
        for il in kv.tensors.k:
            keys = _rotated_part(kv, il, hparams)
            turned = _turn(cast(keys, F32), shift, factors, hparams, cparams, hparams.is_swa(il))
            graph.build_forward_expand(cpy(turned, keys))
        plan = Scheduler(list(devices)).plan(graph)
        set_tensor(shift, np.concatenate([cells.shift for cells in kv.cells]))
        plan.run()
    for cells in kv.cells:
        cells.reset_shift()


def _rotated_part(kv: KVCache, il: int, hparams: HParams) -> Tensor:
    """The channels that RoPE turns. [n_rot, n_head_kv, cells]"""
    layer = kv.tensors.layers[il]
    strides = (layer.n_embd_head_k, layer.n_embd_k_gqa)
    ne = (hparams.n_rot, layer.n_head_kv, kv.kv_size * kv.n_stream)
    return view(kv.tensors.k[il], ne, strides, hparams.rope_offset)


def _turn(
    keys: Tensor, shift: Tensor, factors: Tensor | None, hparams: HParams, cparams: CParams,
    swa: bool,
) -> Tensor:  # fmt: skip
    base, scale = cparams.rope_freq_base, cparams.rope_freq_scale
    if swa:
        base, scale = hparams.rope_freq_base_train_swa, hparams.rope_freq_scale_train_swa
    # YaRN also scales, which has been done once: undo the scale that ggml derives from the factor
    scaled = 1 - 0.1 * math.log(scale) if cparams.yarn_ext_factor else 1.0
    return rope_ext(
        keys, shift, factors, hparams.n_rot, hparams.rope_type, cparams.n_ctx_orig_yarn, base,
        scale, cparams.yarn_ext_factor, 1 / scaled, cparams.yarn_beta_fast, cparams.yarn_beta_slow,
    )  # fmt: skip
