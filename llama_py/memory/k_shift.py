"""Turning cached keys to positions that were moved by seq_add or seq_div (build_graph_shift)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ggml_py.backend import Device, set_tensor
from ggml_py.graph import Graph
from ggml_py.ops import cast, cpy, rope_ext, view
from ggml_py.plan import Plan
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import FLAG_INPUT, Tensor
from ggml_py.types import F32, I32
from llama_py.hparams.cparams import CParams
from llama_py.hparams.layer_shape import Rope
from llama_py.hparams.yarn import Yarn, yarn
from llama_py.memory.base import LayerKey
from llama_py.memory.kv import KVCache
from llama_py.memory.kv_rot import rotate

RopeFactors = Callable[[int], Tensor | None]


def plan_shift(
    kv: KVCache, cparams: CParams, factors: RopeFactors, devices: Sequence[Device]
) -> Plan:
    """Return a plan that rotates every key by the distance that its cell moved.

    Quantized keys are dequantized, rotated and quantized again.

    Args:
        kv: Cache with moved cells.
        cparams: Parameters of its context.
        factors: Returns the RoPE factors of a layer.
        devices: Devices of the context.
    """
    graph, shift = Graph(), Tensor(I32, (kv.kv_size * kv.n_stream,))
    shift.flags |= FLAG_INPUT
    rot = kv.rotation.build_input("", kv.rotation.n_k)
    yarns: list[tuple[Tensor, Yarn]] = []

    def turn(keys: Tensor, il: int, rope: Rope, offset: int) -> Tensor:
        if rope.rounded or not cparams.yarn_ext_factor:
            return _turn(keys, shift, factors(il), rope, cparams, offset)
        frequencies, found = Tensor(F32, (rope.n_rot // 2,)), yarn(cparams, rope)
        frequencies.flags |= FLAG_INPUT
        yarns.append((frequencies, found))
        return rope_ext(
            keys,
            shift,
            frequencies,
            rope.n_rot,
            rope.type,
            cparams.n_ctx_orig_yarn,
            found.base,
            1.0,
            0.0,
            1.0,
            0.0,
            0.0,
            n_offs=offset,
        )

    for key, layer in kv.tensors.layers.items():
        if layer.rope is None:
            continue
        keys, offset = _turned_part(kv, key, layer.rope)
        moved = cast(keys, F32)
        if rot is not None:
            moved = rotate(moved, rot)  # its own inverse
        moved = turn(moved, layer.il, layer.rope, offset)
        if rot is not None:
            moved = rotate(moved, rot)
        graph.build_forward_expand(cpy(moved, keys))
    if not graph.nodes:
        return Plan(graph, [])
    plan = Scheduler(list(devices)).plan(graph)
    set_tensor(shift, np.concatenate([cells.shift for cells in kv.cells]))
    for tensor, values in yarns:
        set_tensor(tensor, values.factors)
    if rot is not None:
        kv.rotation.set_input(rot)
    return plan


def _turned_part(kv: KVCache, key: LayerKey, rope: Rope) -> tuple[Tensor, int]:
    """Return a view with the dimensions that RoPE rotates, and their offset in the view.

    The view is [n_rot, n_head_kv, cells], or has whole heads if blocks of the type or of the cache
    rotation cross these bounds.
    """
    layer = kv.tensors.layers[key]
    n, offset, rest = rope.n_rot, rope.offset, 0
    unit = math.lcm(kv.tensors.type_k.block_size, kv.rotation.n_k or 1)
    if n % unit or offset % unit:
        n, offset, rest = layer.n_embd_head_k, 0, offset
    strides = (layer.n_embd_head_k, layer.n_embd_k_gqa)
    ne = (n, layer.n_head_kv, kv.kv_size * kv.n_stream)
    return view(kv.tensors.k[key], ne, strides, offset), rest


def _turn(
    keys: Tensor, shift: Tensor, factors: Tensor | None, rope: Rope, cparams: CParams, offset: int
) -> Tensor:
    base, scale = cparams.rope_freq(rope)
    ext_factor, _ = cparams.rope_yarn(rope)
    # YaRN also scales, which was applied before: undo the scale that ggml derives from the factor
    scaled = 1 - 0.1 * math.log(scale) if ext_factor else 1.0
    return rope_ext(
        keys,
        shift,
        factors,
        rope.n_rot,
        rope.type,
        cparams.n_ctx_orig_yarn,
        base,
        scale,
        ext_factor,
        1 / scaled,
        cparams.yarn_beta_fast,
        cparams.yarn_beta_slow,
        n_offs=offset,
    )
