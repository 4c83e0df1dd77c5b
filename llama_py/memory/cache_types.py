"""Types of KV caches: heads are whole blocks, and a CPU can write the type."""

from __future__ import annotations

from collections.abc import Sequence

from ggml_py.backend import Device
from ggml_py.errors import ContextError
from ggml_py.ops import cast, cpy, set_rows
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F32, I64, GGMLType
from llama_py.memory.kv_tensors import KVLayer
from llama_py.params.caches import CACHE_TYPES
from llama_py.params.near import shorten_list


def check_types(layers: Sequence[KVLayer], type_k: GGMLType, type_v: GGMLType) -> None:
    """Raise ContextError, with usable types, if a layer cannot be cached as these types."""
    for layer in layers:
        _check("type_k", type_k, layer.n_embd_head_k, layer.device)
        if layer.n_embd_head_v:
            _check("type_v", type_v, layer.n_embd_head_v, layer.device)


def _check(option: str, chosen: GGMLType, n_embd_head: int, device: Device) -> None:
    if chosen.block_size == 1 or ((fits := _fits(chosen, n_embd_head)) and _writes(device, chosen)):
        return
    types = (BY_NAME[name] for name in CACHE_TYPES)
    able = [t.name for t in types if _fits(t, n_embd_head) and _writes(device, t)]
    why = f"{device.name} cannot write this type"
    if not fits:
        why = f"head size {n_embd_head} is not a multiple of the block size {chosen.block_size}"
    raise ContextError(f"{option} = {chosen}: {why}; use {shorten_list(able)}")


def _fits(chosen: GGMLType, n_embd_head: int) -> bool:
    return n_embd_head % chosen.block_size == 0


def _writes(device: Device, chosen: GGMLType) -> bool:
    """Return True if `device` is a CPU that can write this type. Other devices are checked when
    the graph assigns nodes."""
    if device.kind != "cpu":
        return True
    n = chosen.block_size
    node = set_rows(Tensor(chosen, (n, 1)), Tensor(F32, (n, 1)), Tensor(I64, (1,)))
    return not device.why_not(node)


def can_rewrite(device: Device, chosen: GGMLType) -> bool:
    """Return True if the device can read keys of a type as floats and store them again."""
    if chosen.block_size == 1:
        return True
    keys = Tensor(chosen, (chosen.block_size, 1))
    floats = cast(keys, F32)
    return not device.why_not(floats) and not device.why_not(cpy(floats, keys))
