"""Tiny models with weights that can be changed, for tests that compute."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from dev import tiny_models as tiny
from dev.tiny_models._invent import tensors
from ggml_py.backend import tensor_bytes
from ggml_py.types import BY_NAME, F32, I32, I64, GGMLType
from ggml_ref.quants import quantizer
from llama_py.context import Context
from llama_py.gguf.file import TensorInfo
from llama_py.loading import model as loaded
from llama_py.memory.compressed import CompressedMemory
from llama_py.model import Model
from llama_py.models.trunks.architecture import Architecture
from llama_py.weights.placement import Placement
from tests.support.graph_models import split

N_VOCAB = tiny.COMMON["vocab_size"]

Arrays = dict[str, NDArray[np.float32]]


def made(name: str, **keys: Any) -> tuple[dict[str, Any], Arrays]:
    """Metadata and weights of a tiny model, or of one with other sizes (`__` in a key is a dot);
    arrays have ggml's shapes reversed."""
    arch, variant = split(name)
    found, others = tiny.find(arch, variant), {k.replace("__", "."): v for k, v in keys.items()}
    if not others:
        return tiny.metadata(arch, found), {key: a.copy() for key, a in _tensors(name).items()}
    found = replace(found, keys={**found.keys, **others})
    return tiny.metadata(arch, found), dict(tensors(arch, found))


@cache
def _tensors(name: str) -> Mapping[str, NDArray[Any]]:
    arch, variant = split(name)
    return tensors(arch, tiny.find(arch, variant))


F64 = BY_NAME["f64"]


def info_of(name: str, array: NDArray[np.float32], type: GGMLType = F32) -> TensorInfo:
    """A tensor of a file with these values; whole numbers stay such."""
    wide = {np.dtype(np.int32): I32, np.dtype(np.int64): I64, np.dtype(np.float64): F64}
    type = wide.get(array.dtype, type)
    flat = np.ascontiguousarray(array).reshape(-1)
    kept = (F32, *wide.values())
    data = np.frombuffer(quantizer(type)(flat), np.uint8) if type not in kept else flat
    data = data.view(np.uint8)
    return TensorInfo(name, type, (*array.shape[::-1], 1, 1, 1, 1)[:4], 0, data.size, data)


def model_of(
    metadata: Mapping[str, Any],
    arrays: Arrays,
    on: str | Placement = "ref",
    types: Mapping[str, GGMLType] | None = None,
    **options: Any,
) -> Model:
    """A model of these weights on a device, or on several; f32 but for those in `types`."""
    quantized = types or {}
    file: Any = SimpleNamespace(
        path="live.gguf",
        metadata=dict(metadata),
        architecture=metadata["general.architecture"],
        tensors={name: info_of(name, a, quantized.get(name, F32)) for name, a in arrays.items()},
    )
    return Model(file, on, **options)


def built_as(kind: type[Architecture], name: str, **keys: Any) -> Model:
    """A tiny model's weights, but the blocks of another architecture."""
    with mock.patch.object(loaded, "architecture", lambda _: kind):
        return model_of(*made(name, **keys))


@cache
def live(name: str, on: str = "ref") -> Model:
    """A tiny model on a device."""
    return model_of(*made(name), on)


Change = Callable[[dict[str, Any], Arrays], None]


def changed(name: str, *changes: Change) -> tuple[dict[str, Any], Arrays]:
    """A live model's metadata and weights, changed."""
    metadata, arrays = made(name)
    for change in changes:
        change(metadata, arrays)
    return metadata, arrays


def two_heads(metadata: dict[str, Any], arrays: Arrays) -> None:
    """Another NextN layer, which is the first one's with its projection turned round."""
    arch = metadata["general.architecture"]
    n_all = metadata[f"{arch}.block_count"]
    metadata[f"{arch}.block_count"] = n_all + 1
    metadata[f"{arch}.nextn_predict_layers"] = 2
    for key, value in metadata.items():
        if isinstance(value, list) and len(value) == n_all and not key.endswith("sections"):
            metadata[key] = [*value, value[-1]]  # of each layer
    first, second = f"blk.{n_all - 1}.", f"blk.{n_all}."
    for name in [name for name in arrays if name.startswith(first)]:
        arrays[name.replace(first, second)] = arrays[name].copy()
    arrays[f"{second}nextn.eh_proj.weight"] *= -1


def take(arrays: Arrays, stem: str) -> NDArray[np.float32]:
    """A matrix out of a model's weights, with its scales."""
    for name in [name for name in arrays if name.startswith(f"{stem}.") and "scale" in name]:
        del arrays[name]
    return arrays.pop(f"{stem}.weight")


def unsplit(metadata: dict[str, Any], arrays: Arrays) -> None:
    """attn_k_b and attn_v_b in one matrix, as older files have them."""
    for p in [k.removesuffix("attn_k_b.weight") for k in arrays if k.endswith("attn_k_b.weight")]:
        k, v = (take(arrays, f"{p}attn_{part}_b")[0] for part in "kv")
        parts = [np.concatenate([k[h].T, v[h]]) for h in range(len(k))]
        arrays[f"{p}attn_kv_b.weight"] = np.concatenate(parts)


def random(*shape: int) -> NDArray[np.float32]:
    """A matrix [n_out, n_in] that keeps the size of what it is multiplied with."""
    rng = np.random.default_rng(11)
    return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)


def tokens(n: int, seed: int = 0) -> list[int]:
    """n random token ids."""
    return [int(t) for t in np.random.default_rng(seed).integers(0, N_VOCAB, n)]


NEVER = -3e38  # logits of tokens that a model must not choose are below that


def nmse(expected: NDArray[Any], found: NDArray[Any]) -> float:
    """Mean squared error over mean square, tokens aside that are never chosen."""
    if (never := expected < NEVER).any():
        same = ((found < NEVER) == never).all()
        expected, found = (np.where(never, 0, x) for x in (expected, found))
        return nmse(expected, found) if same else math.inf
    return float(np.square(expected - found).sum() / np.square(expected).sum())


# Nothing is rounded on the way (flash attention would round the cache to F16).
EXACT: dict[str, Any] = {
    "n_ctx": 256,
    "n_ubatch": 64,
    "type_k": "f32",
    "type_v": "f32",
    "flash_attn": "off",
}
PROMPT = tokens(13)


def logits(model: Model, **options: Any) -> NDArray[np.float32]:
    """Those of PROMPT. -> [13, n_vocab]"""
    return Context(model, **{**EXACT, **options}).decode(PROMPT, logits="all")


def spoil_keys(mem: CompressedMemory, seq_id: int) -> None:
    """NaN in all that a sequence has: keys that were made, the last, which nobody sees, states."""
    for one in mem.kinds.values():
        n = (mem.held[seq_id].pos + 1) // one.kept.ratio
        for t in (*one.keys.list_tensors(), *one.states()):
            raw = tensor_bytes(t).reshape(t.ne[2], t.ne[1], -1)
            made = [*range(n), -1] if t in one.keys.list_tensors() else slice(None)
            raw[seq_id :: mem.size, made] = 0xFF
            assert t.buffer is not None
            t.buffer.write(t.offset, raw.reshape(-1))
