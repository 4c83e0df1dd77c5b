"""Weights that a checkpoint stores quantized, as floats: FP8, GPTQ, AWQ, BitNet, and the formats of
compressed-tensors and modelopt (conversion/base.py: dequant_model)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import UNPACKED, Array, LazyArray

Tensors = dict[str, LazyArray]
FP8_BLOCK = 128  # rows and columns that share a scale, without weight_block_size
PACK_BITS = 32  # of an integer with several weights
AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)  # places of eight successive weights in an integer
UNUSED_FP8 = (".activation_scale", "_activation_scale", ".qscale_act")
NVFP4 = "nvfp4-pack-quantized"  # a format of compressed-tensors
UNUSED_MODELOPT = (".input_scale", ".k_scale", ".v_scale")
WITH_SCALES = ("float-quantized", "int-quantized", "naive-quantized")


def restore(folder: Path, config: Mapping[str, Any], tensors: Tensors) -> None:
    """Replace quantized weights and their scales by floats, which are computed later. Weights of
    known names keep their place; new names follow all others.

    Raises ModelError for an unknown method, or if scales are missing.
    """
    quant = config.get("quantization_config")
    method = quant.get("quant_method") if isinstance(quant, dict) else None
    if method is None or not isinstance(quant, dict):
        return
    rule = METHODS.get(str(method))
    if rule is None:
        known = ", ".join(METHODS)
        raise ModelError(
            f"{folder}: weights quantized by {str(method)[:50]!r} cannot be converted, only by "
            f"{known}; {UNPACKED}"
        )
    rule(WeightRestorer(folder, quant, tensors))


class WeightRestorer:
    """The tensors of a checkpoint, and its quantization_config."""

    def __init__(self, folder: Path, config: Mapping[str, Any], tensors: Tensors) -> None:
        self.folder, self.config, self.tensors = folder, config, tensors

    def take(self, name: str) -> LazyArray:
        """Remove a tensor and return it. Raises ModelError if it is missing."""
        if (found := self.tensors.pop(name, None)) is None:
            raise ModelError(f"{self.folder}: tensor {name[:100]!r} is missing; download all files")
        return found

    def drop(self, suffixes: tuple[str, ...]) -> None:
        for name in [n for n in self.tensors if n.endswith(suffixes)]:
            del self.tensors[name]

    def list_bases(self, suffix: str) -> list[str]:
        """Return the names with this suffix, without it."""
        return [name.removesuffix(suffix) for name in self.tensors if name.endswith(suffix)]

    def number(self, name: str, values: Mapping[str, Any] | None = None) -> int:
        """Return a positive integer of the configuration."""
        found = (self.config if values is None else values).get(name)
        if type(found) is not int or found < 1:
            raise ModelError(
                f"{self.folder}: {name} of quantization_config must be a positive integer, got "
                f"{str(found)[:50]}"
            )
        return found

    def scale(self, weight: str, scale: str, block: Any = None) -> None:
        """Multiply a weight by its scales.

        block  None: a scale per row or for all; else sizes of the blocks that share a scale
        """
        if weight not in self.tensors:
            raise ModelError(f"{self.folder}: {scale[:100]!r} has no weight; download all files")
        scales, w = self.take(scale), self.tensors[weight]
        if block is not None and not _are_sizes(block):
            raise ModelError(f"{self.folder}: sizes of blocks must be integers, got {block!r:.50}")

        def make() -> Array:
            s = scales.read().astype(np.float32)
            for i, size in enumerate(block or ()):
                s = np.repeat(s, size, s.ndim - len(block) + i)
            s = s[tuple(slice(n) for n in w.shape[: s.ndim])] if block else s
            s = s.reshape(s.shape + (1,) * (w.ndim - s.ndim))
            try:
                return _check_shape(w.read().astype(np.float32) * s, w.shape)
            except ValueError:
                raise ModelError(
                    f"{weight} of shape {list(w.shape)} has scales of shape {list(scales.shape)}; "
                    "the files may belong to another model"
                ) from None

        self.tensors[weight] = LazyArray(w.shape, np.float32, make, w.stored)


def _restore_fp8(q: WeightRestorer) -> None:
    block = q.config.get("weight_block_size")
    for base in q.list_bases("_scale_inv"):
        q.scale(base, f"{base}_scale_inv", block)
    for base in q.list_bases(".qscale_weight"):  # of Mistral
        q.scale(f"{base}.weight", f"{base}.qscale_weight", block)
    q.drop(UNUSED_FP8)


def _restore_modelopt(q: WeightRestorer) -> None:
    """FP8 with a scale per row or tensor; nvfp4.py reads NVFP4."""
    for base in q.list_bases(".weight_scale"):
        if f"{base}.weight" in q.tensors:
            q.scale(f"{base}.weight", f"{base}.weight_scale")
        else:
            del q.tensors[f"{base}.weight_scale"]
    q.drop(UNUSED_MODELOPT)


def _restore_bitnet(q: WeightRestorer) -> None:
    """Weights -1, 0 and 1 as two bits each; the first quarter of the rows has the lowest bits. They
    are divided by the scale."""
    for base in q.list_bases(".weight_scale"):
        w, scale = q.tensors[f"{base}.weight"], q.take(f"{base}.weight_scale")
        n, *rest = w.shape

        def make(w: LazyArray = w, scale: LazyArray = scale) -> Array:
            planes = np.stack([w.bits().view(np.uint8) >> shift & 3 for shift in (0, 2, 4, 6)])
            values = planes.astype(np.float32).reshape(-1, *w.shape[1:]) - 1
            return values / scale.read().astype(np.float32)

        q.tensors[f"{base}.weight"] = LazyArray((4 * n, *rest), np.float32, make)


def _restore_gptq(q: WeightRestorer) -> None:
    """Integers with the weights of several inputs, for each output: scale * (weight - zero)."""
    bits = q.number("bits")
    if bits not in (2, 4, 8):
        raise ModelError(f"{q.folder}: GPTQ must have 2, 4 or 8 bits, got {bits}; {UNPACKED}")
    plus = 1 if q.config.get("checkpoint_format", "gptq") == "gptq" else 0
    made: Tensors = {}
    for base in q.list_bases(".qweight"):
        w, zeros, scales = (q.take(f"{base}.{part}") for part in ("qweight", "qzeros", "scales"))
        groups = q.tensors.pop(f"{base}.g_idx", None)
        n_in, n_out = w.shape[0] * (PACK_BITS // bits), w.shape[-1]

        def make(
            w: LazyArray = w,
            zeros: LazyArray = zeros,
            scales: LazyArray = scales,
            groups: LazyArray | None = groups,
            n_in: int = n_in,
        ) -> Array:
            each = -(-n_in // scales.shape[0])
            group = np.arange(n_in) // each if groups is None else groups.bits()
            zero = _unpack(zeros.bits(), bits, 1) + plus
            scale = scales.read().astype(np.float32)[group]
            rows: Array = scale * (_unpack(w.bits(), bits, 0) - zero[group]).astype(np.float32)
            return rows.T

        made[f"{base}.weight"] = LazyArray((n_out, n_in), np.float32, make)
    q.tensors |= made


def _restore_awq(q: WeightRestorer) -> None:
    """Integers with the weights of eight outputs, for each input: scale * (weight - zero)."""
    if (bits := q.config.get("bits", q.config.get("w_bit", 4))) != 4:
        raise ModelError(f"{q.folder}: AWQ must have 4 bits, got {str(bits)[:20]}; {UNPACKED}")
    if str(version := q.config.get("version", "gemm")).lower() != "gemm":
        raise ModelError(
            f"{q.folder}: AWQ must be of the version gemm, got {str(version)[:20]}; {UNPACKED}"
        )
    made: Tensors = {}
    for base in q.list_bases(".qweight"):
        w, zeros, scales = (q.take(f"{base}.{part}") for part in ("qweight", "qzeros", "scales"))

        def make(w: LazyArray = w, zeros: LazyArray = zeros, scales: LazyArray = scales) -> Array:
            weight, zero = (_unpack(a.bits(), 4, 1, AWQ_PLACES) for a in (w, zeros))
            each = w.shape[0] // scales.shape[0]
            scale = np.repeat(scales.read().astype(np.float32), each, 0)
            rows: Array = (weight - np.repeat(zero, each, 0)).astype(np.float32) * scale
            return rows.T

        made[f"{base}.weight"] = LazyArray((w.shape[1] * 8, w.shape[0]), np.float32, make)
    q.tensors |= made


def _restore_compressed(q: WeightRestorer) -> None:
    """Formats of compressed-tensors; nvfp4.py reads NVFP4."""
    kind, groups = q.config.get("format"), q.config.get("config_groups")
    groups = groups if isinstance(groups, dict) else {}
    if is_nvfp4(kind, groups):
        return
    weights = [g.get("weights") for g in groups.values() if isinstance(g, dict)]
    if len(weights) != 1 or not isinstance(weights[0], dict):
        raise ModelError(
            f"{q.folder}: quantization_config must have one group of weights, got {len(weights)}; "
            + UNPACKED
        )
    if kind in WITH_SCALES and weights[0].get("group_size") is None:
        for base in q.list_bases(".weight_scale"):
            q.scale(f"{base}.weight", f"{base}.weight_scale", weights[0].get("block_structure"))
    elif kind == "pack-quantized" and weights[0].get("type", "int") == "int":
        _restore_integers(q, weights[0])
    else:
        raise ModelError(
            f"{q.folder}: weights in the format {str(kind)[:50]!r} of compressed-tensors cannot be "
            f"converted; {UNPACKED}"
        )


def _restore_integers(q: WeightRestorer, weights: Mapping[str, Any]) -> None:
    """Integers with several weights of a row: scale of a group * (weight - zero)."""
    bits = q.number("num_bits", weights)
    made: Tensors = {}
    for base in q.list_bases(".weight_packed"):
        w, scales = q.take(f"{base}.weight_packed"), q.take(f"{base}.weight_scale")
        shape = tuple(int(n) for n in q.take(f"{base}.weight_shape").bits().tolist())
        zeros = q.tensors.pop(f"{base}.weight_zero_point", None)

        def make(
            w: LazyArray = w,
            scales: LazyArray = scales,
            shape: tuple[int, ...] = shape,
            zeros: LazyArray | None = zeros,
        ) -> Array:
            n_rows, n = shape
            values = _unpack(w.bits(), bits, 1)[:, :n].reshape(n_rows, scales.shape[1], -1)
            zero: Any = 1 << bits - 1
            if zeros is not None:
                zero = _unpack(zeros.bits(), bits, 0)[:n_rows, :, None]
            scale = scales.read().astype(np.float32)[..., None]
            rows: Array = (values - zero).astype(np.float32) * scale
            return rows.reshape(shape)

        made[f"{base}.weight"] = LazyArray(shape, np.float32, make)
    q.tensors |= made


def _unpack(packed: Array, bits: int, axis: int, places: Sequence[int] = ()) -> Array:
    """Return the unsigned numbers of integers along a dimension, the lowest bits first, or by their
    places in an integer."""
    n = PACK_BITS // bits
    shifts = np.array(places or range(n), np.int32) * bits
    spread = np.expand_dims(packed, axis + 1) >> np.expand_dims(
        shifts, [i for i in range(packed.ndim + 1) if i != axis + 1]
    )
    shape = list(packed.shape)
    shape[axis] *= n
    found: Array = (spread & (1 << bits) - 1).reshape(shape)
    return found


def _check_shape(values: Array, shape: tuple[int, ...]) -> Array:
    if values.shape != shape:
        raise ValueError(values.shape)
    return values


def _are_sizes(block: Any) -> bool:
    return isinstance(block, list) and all(type(n) is int and n > 0 for n in block)


def is_nvfp4(kind: Any, groups: Mapping[str, Any]) -> bool:
    """Return True if a format of compressed-tensors stores NVFP4 only."""
    each = [g.get("format") for g in groups.values() if isinstance(g, dict)]
    return kind == NVFP4 or (
        kind == "mixed-precision" and bool(each) and all(f == NVFP4 for f in each)
    )


METHODS: Mapping[str, Callable[[WeightRestorer], None]] = {
    "fp8": _restore_fp8,
    "modelopt": _restore_modelopt,
    "compressed-tensors": _restore_compressed,
    "gptq": _restore_gptq,
    "awq": _restore_awq,
    "bitnet": _restore_bitnet,
}
