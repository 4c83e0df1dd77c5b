"""Weights that a checkpoint stores in 4-bit blocks, in ggml's layout with the same values: NVFP4 of
modelopt and compressed-tensors, and MXFP4 (conversion/base.py: _generate_nvfp4_tensors).

NVFP4  16 values of 4 bits with a scale in E4M3; a block of ggml has four such groups
MXFP4  32 values of 4 bits with a power of two as scale
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ggml_py.errors import ModelError
from ggml_py.types import BY_NAME, GGMLType
from llama_py.checkpoint.arrays import Array, LazyArray, NamedArrays, stack
from llama_py.checkpoint.dequantize import Tensors, is_nvfp4
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.names import Names, find_layer

MXFP4, NVFP4 = BY_NAME["mxfp4"], BY_NAME["nvfp4"]
EXPERT = re.compile(r"(.*\bexperts)\.(\d+)\.(gate_proj|up_proj|down_proj)\.weight")
FULL_ACTIVATIONS = "W4A16_NVFP4"  # a method with 16-bit activations
# Names of compressed-tensors and of modelopt; the former's scales are reciprocals.
RENAMED = (
    (".weight_packed", ".weight", False),
    (".weight_global_scale", ".weight_scale_2", True),
    (".input_global_scale", ".input_scale", True),
)


class TensorRenamer(Protocol):
    """A converter, which knows the names of a file's tensors."""

    config: dict[str, Any]
    folder: CheckpointFolder
    blocks: str
    full_activations: list[str]

    @property
    def names(self) -> Names: ...

    def select(self, name: str) -> str | None: ...
    def rename(self, name: str) -> str: ...
    def integer(self, *names: str) -> int: ...
    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays: ...


def pack_mxfp4(packed: LazyArray, scales: LazyArray) -> LazyArray:
    """Return a matrix in blocks of MXFP4.

    packed  U8 [..., n / 2], two successive values per byte, the first in the lower half
    scales  U8 [..., n / 32], exponents
    """
    return _pack_blocks(packed, scales, 32, MXFP4.type_size, _join_mxfp4, MXFP4)


def pack_nvfp4(packed: LazyArray, scales: LazyArray) -> LazyArray:
    """Return a matrix in blocks of NVFP4.

    packed  U8 [..., n / 2], as for `pack_mxfp4`
    scales  E4M3 [..., n / 16]
    """
    return _pack_blocks(packed, scales, 16, NVFP4.type_size // 4, _join_nvfp4, NVFP4)


def _pack_blocks(
    packed: LazyArray,
    scales: LazyArray,
    n: int,
    n_bytes: int,
    convert: Callable[[Array, Array], Array],
    type: GGMLType,
) -> LazyArray:
    """n: values per scale;  n_bytes: bytes of these values in ggml's layout"""
    *rows, n_groups = scales.shape
    n_packed = math.prod(packed.shape[len(rows) :])
    if (
        packed.shape[: len(rows)] != (*rows,)
        or 2 * n_packed != n_groups * n
        or n_groups * n % type.block_size
    ):
        raise ModelError(
            f"{type} with scales of shape {list(scales.shape)} must have rows of whole blocks of "
            f"{type.block_size} values, got bytes of shape {list(packed.shape)}"
        )

    def make() -> Array:
        codes = packed.bits().view(np.uint8).reshape(*scales.shape, n // 2)
        made = convert(swap_halves(codes), scales.bits().view(np.uint8))
        return made.reshape(*rows, n_groups * n_bytes)

    return LazyArray((*rows, n_groups * n_bytes), np.uint8, make, "U8", packed=type)


def swap_halves(codes: Array) -> Array:
    """Return bytes of successive values in the order of ggml: a byte has a value of the first
    half of the group, and in the upper bits a value of the second half. [..., n / 2]"""
    pairs = np.stack([codes & 15, codes >> 4], -1).reshape(*codes.shape[:-1], -1)
    n = codes.shape[-1]
    swapped: Array = pairs[..., :n] | pairs[..., n:] << 4
    return swapped


def _join_mxfp4(codes: Array, scales: Array) -> Array:
    return np.concatenate([scales[..., None], codes], -1)


def _join_nvfp4(codes: Array, scales: Array) -> Array:
    """Return [4 scales without signs, 4 * 8 bytes] for each block."""
    shape = (*scales.shape[:-1], scales.shape[-1] // 4)
    return np.concatenate([(scales & 127).reshape(*shape, 4), codes.reshape(*shape, 32)], -1)


def take_nvfp4(c: TensorRenamer, stored: Tensors) -> NamedArrays:
    """Take the weights in NVFP4 out of `stored`, and yield them, each with the scales of the whole
    tensor unless they are 1. Sets the converter's `blocks` and `full_activations`."""
    method = Method(c)
    if not method.is_nvfp4:
        return
    c.blocks = "NVFP4"
    if method.is_compressed:
        _rename(stored)
    experts: dict[str, list[tuple[int, float, float]]] = {}
    for name in [n for n in stored if n.endswith(".weight")]:
        scales = stored.get(f"{name}_scale")
        if scales is None or scales.ndim < 2:  # of FP8
            continue
        base = name.removesuffix(".weight")
        array = pack_nvfp4(stored.pop(name), stored.pop(f"{name}_scale"))
        weight, activations = (
            _read_number(stored.pop(f"{base}.{part}", None))
            for part in ("weight_scale_2", "input_scale")
        )
        match = EXPERT.fullmatch(name)
        if match:
            target = c.rename(f"{match[1]}.{match[3]}.weight")
            experts.setdefault(target, []).append((int(match[2]), weight, activations))
        for new_name, new in c.tensors(name, array, find_layer(name)):
            yield new_name, new
            if method.find_algorithm(base) == FULL_ACTIVATIONS:
                c.full_activations.append(new_name)
            each = sorted(experts.get(new_name, [(0, weight, activations)]))
            for suffix, values in zip(
                (".scale", ".input_scale"), _split_columns(each), strict=True
            ):
                if not np.allclose(values, 1, rtol=1e-5 if match else 0, atol=1e-6):
                    yield new_name.replace(".weight", suffix), LazyArray.from_values(values)
    for name in [n for n in stored if n.endswith((".k_scale", ".v_scale"))]:
        del stored[name]
    if not any(name.endswith((".weight_scale", ".weight_scale_inv")) for name in stored):
        c.config.pop("quantization_config", None)  # the other weights are floats


class Method:
    """The quantization of a checkpoint, by config.json and hf_quant_config.json.

    is_nvfp4       some weights are in NVFP4
    is_compressed  they have the names of compressed-tensors
    """

    def __init__(self, c: TensorRenamer) -> None:
        found = dict(c.config.get("quantization_config") or {})
        more = c.folder.json("hf_quant_config.json")
        if more and not (found.get("quant_algo") and found.get("quantized_layers")):
            if found.get("quant_method") is None:
                found["quant_method"] = str(more.get("producer", {}).get("name") or "").lower()
                c.config["quantization_config"] = found
            found = {**found, **(more.get("quantization") or {})}
        groups, layers = (found.get(n) or {} for n in ("config_groups", "quantized_layers"))
        self.algorithm = found.get("quant_algo")
        self.by_module: dict[str, Any] = {
            selected: entry.get("quant_algo")
            for name, entry in layers.items()
            if isinstance(entry, dict) and (selected := c.select(name))
        }
        self.is_compressed = found.get("quant_method") == "compressed-tensors" and is_nvfp4(
            found.get("format"), groups
        )
        self.is_nvfp4 = (
            self.algorithm in ("NVFP4", FULL_ACTIVATIONS)
            or self.is_compressed
            or any(str(name).endswith("NVFP4") for name in self.by_module.values())
        )

    def find_algorithm(self, module: str) -> Any:
        """Return the algorithm of a module, or of the innermost known module around it."""
        while module:
            if module in self.by_module:
                return self.by_module[module]
            module = module.rpartition(".")[0]
        return self.algorithm


def _rename(stored: Tensors) -> None:
    for name in [*stored]:
        for old, new, is_reciprocal in RENAMED:
            renamed = name.removesuffix(old) + new
            if name.endswith(old) and renamed not in stored:
                array = stored.pop(name)
                stored[renamed] = array.map(lambda x: 1 / x) if is_reciprocal else array


def _read_number(scale: LazyArray | None) -> float:
    return 1.0 if scale is None else float(scale.read().astype(np.float32).sum())


def _split_columns(rows: Sequence[tuple[int, float, float]]) -> tuple[list[float], list[float]]:
    return [weight for _, weight, _ in rows], [activations for *_, activations in rows]


def take_mxfp4(c: TensorRenamer, stored: Tensors, pattern: re.Pattern[str]) -> NamedArrays:
    """Take experts in MXFP4 out of `stored`, and yield one tensor per layer and part.

    pattern  names of packed matrices (their scales end with `_scale`); groups: layer, number of
             the expert, its part

    Raises ModelError if another tensor is in blocks, or if experts are missing.
    """
    found: dict[tuple[int, str], dict[int, LazyArray]] = {}
    for name in [*stored]:
        if (match := pattern.fullmatch(name)) is None:
            continue
        scale = f"{name.removesuffix('_packed')}_scale"
        if (scales := stored.pop(scale, None)) is None:
            raise ModelError(f"{c.folder.path}: {scale} is missing; download all files")
        experts = found.setdefault((int(match[1]), match[3]), {})
        experts[int(match[2])] = pack_mxfp4(stored.pop(name), scales)
    other = next((n for n in stored if n.endswith((".weight_packed", ".weight_scale"))), None)
    if other is not None:
        raise ModelError(f"{c.folder.path}: only experts can be in MXFP4, not {other[:100]!r}")
    n_experts = c.integer("num_local_experts", "num_experts", "n_routed_experts")
    c.blocks = "MXFP4_MOE"
    for (layer, part), experts in sorted(found.items()):
        if sorted(experts) != [*range(n_experts)]:
            raise ModelError(
                f"{c.folder.path}: layer {layer} has {len(experts)} of {n_experts} experts in "
                "MXFP4; download all files"
            )
        joined = stack([experts[i] for i in range(n_experts)])
        path = next(n for n in c.names if n.endswith((f"experts.{part}", f"experts.{part}_proj")))
        yield f"{c.names[path].format(layer)}.weight", joined
    if (c.config.get("quantization_config") or {}).get("quant_method") != "fp8":
        c.config.pop("quantization_config", None)
