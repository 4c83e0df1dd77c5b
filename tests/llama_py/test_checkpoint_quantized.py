"""Quantized weights of checkpoints: their values, and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dev.record.tiny_checkpoints import write_safetensors
from ggml_py.errors import ModelError
from ggml_py.types import BY_NAME
from ggml_ref.quants import dequantizer
from llama_py.checkpoint.arrays import LazyArray
from llama_py.checkpoint.dequantize import restore
from llama_py.checkpoint.nvfp4 import pack_mxfp4, pack_nvfp4
from llama_py.checkpoint.safetensors import read_safetensors

DTYPES = {"int32": "I32", "int64": "I64", "float32": "F32", "uint8": "U8", "int8": "I8"}
RNG = np.random.default_rng(7)


def write_tensors(folder: Path, **arrays: Any) -> dict[str, LazyArray]:
    """Return tensors of a file; `__` in names are points."""
    made = {
        name.replace("__", "."): (DTYPES[str(a.dtype)], [*a.shape], a.tobytes())
        for name, a in arrays.items()
    }
    write_safetensors(folder / "model.safetensors", made)
    tensors = read_safetensors(folder / "model.safetensors")
    return {name: LazyArray.from_stored(t) for name, t in tensors.items()}


def pack(values: Any, axis: int) -> Any:
    """Join eight numbers of 4 bits to an integer, the first one in the lowest bits."""
    moved = np.moveaxis(values.astype(np.int64), axis, -1)
    moved = moved.reshape(*moved.shape[:-1], -1, 8) << np.arange(8) * 4
    return np.moveaxis(moved.sum(-1).astype(np.uint32).view(np.int32), -1, axis)


def floats(type: str, array: LazyArray) -> Any:
    """Return the values of blocks as ggml reads them."""
    read = dequantizer(BY_NAME[type])
    assert read is not None
    return read(array.read().reshape(-1)).reshape(array.shape[0], -1)


def test_gptq(tmp_path: Path) -> None:
    """Weights of eight inputs per integer; a zero is stored less 1; groups may be in any order."""
    weight, zero = RNG.integers(0, 16, (64, 16)), RNG.integers(1, 16, (2, 16))
    scale = RNG.standard_normal((2, 16)).astype(np.float32)
    for with_groups in (True, False):
        group = RNG.permutation(np.arange(64) // 32) if with_groups else np.arange(64) // 32
        more = {"a__g_idx": group.astype(np.int32)} if with_groups else {}
        tensors = write_tensors(
            tmp_path,
            a__qweight=pack(weight, 0),
            a__qzeros=pack(zero - 1, 1),
            a__scales=scale,
            **more,
        )
        restore(tmp_path, {"quantization_config": {"quant_method": "gptq", "bits": 4}}, tensors)
        wanted = (scale[group] * (weight - zero[group])).T
        assert [*tensors] == ["a.weight"]
        np.testing.assert_array_equal(tensors["a.weight"].read(), wanted.astype(np.float32))


def test_awq(tmp_path: Path) -> None:
    """Weights of eight outputs per integer, in the order 0 2 4 6 1 3 5 7."""
    weight, zero = RNG.integers(0, 16, (64, 16)), RNG.integers(0, 16, (2, 16))
    scale = RNG.standard_normal((2, 16)).astype(np.float32)
    order = [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15]
    tensors = write_tensors(
        tmp_path, a__qweight=pack(weight[:, order], 1), a__qzeros=pack(zero[:, order], 1),
        a__scales=scale,
    )  # fmt: skip
    restore(tmp_path, {"quantization_config": {"quant_method": "awq", "bits": 4}}, tensors)
    wanted = ((weight - np.repeat(zero, 32, 0)) * np.repeat(scale, 32, 0)).T
    np.testing.assert_array_equal(tensors["a.weight"].read(), wanted.astype(np.float32))


def test_bitnet(tmp_path: Path) -> None:
    """Two bits per weight: a quarter of the rows in each place of a byte; divided by the scale."""
    weight = RNG.integers(-1, 2, (16, 8))
    planes = (weight + 1).reshape(4, 4, 8) << np.array([0, 2, 4, 6])[:, None, None]
    tensors = write_tensors(
        tmp_path, a__weight=planes.sum(0).astype(np.uint8), a__weight_scale=np.float32([4.0])
    )
    restore(tmp_path, {"quantization_config": {"quant_method": "bitnet"}}, tensors)
    np.testing.assert_array_equal(tensors["a.weight"].read(), weight / np.float32(4))


def test_blocks_have_the_same_values(tmp_path: Path) -> None:
    """Packing moves bits only: ggml reads the values of the checkpoint's codes and scales."""
    codes = RNG.integers(0, 16, (3, 128))
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    signed = np.where(codes & 8, -1, 1) * values[codes & 7]
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)
    exponents = RNG.integers(120, 134, (3, 4)).astype(np.uint8)
    tensors = write_tensors(tmp_path, packed=packed, scales=exponents)
    array = pack_mxfp4(tensors["packed"], tensors["scales"])
    found = floats("mxfp4", array)
    wanted = signed * np.repeat(2.0 ** (exponents - 127.0), 32, 1)
    np.testing.assert_array_equal(found, wanted.astype(np.float32))
    e4m3 = np.full((3, 8), 0x38, np.uint8)  # 1
    e4m3[1] = 0x40  # 2
    tensors = write_tensors(tmp_path, packed=packed, scales=e4m3)
    array = pack_nvfp4(tensors["packed"], tensors["scales"])
    found = floats("nvfp4", array)
    np.testing.assert_array_equal(found, (signed * [[1], [2], [1]]).astype(np.float32))
    for refused in (lambda: array.map(np.negative), array.transpose, lambda: array.rows(0, 9, 1)):
        with pytest.raises(ModelError, match="blocks of nvfp4"):
            refused()
    with pytest.raises(ModelError, match="whole blocks of 64"):
        pack_nvfp4(tensors["packed"].rows(0, 32, 1), tensors["scales"].rows(0, 2, 1))


@pytest.mark.parametrize(
    ("quant", "message"),
    [
        ({"quant_method": "hqq"}, "'hqq' cannot be converted, only by fp8"),
        ({"quant_method": "gptq", "bits": 3}, "2, 4 or 8 bits, got 3"),
        ({"quant_method": "gptq"}, "bits of quantization_config must be a positive integer"),
        ({"quant_method": "awq", "version": "gemv"}, "version gemm, got gemv"),
        ({"quant_method": "fp8"}, "has no weight"),
        ({"quant_method": "compressed-tensors"}, "one group of weights, got 0"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {}}},
             "format": "marlin-24"},
            "format 'marlin-24'",
        ),
    ],
)  # fmt: skip
def test_refused(quant: dict[str, Any], message: str, tmp_path: Path) -> None:
    tensors = write_tensors(tmp_path, a__weight_scale_inv=np.zeros((1, 1), np.float32))
    with pytest.raises(ModelError, match=message):
        restore(tmp_path, {"quantization_config": quant}, tensors)


def test_scales_of_another_shape(tmp_path: Path) -> None:
    tensors = write_tensors(
        tmp_path,
        a__weight=np.zeros((4, 6), np.int8),
        a__weight_scale_inv=np.ones((3, 1), np.float32),
    )
    restore(tmp_path, {"quantization_config": {"quant_method": "fp8"}}, tensors)
    with pytest.raises(ModelError, match="another model"):
        tensors["a.weight"].read()
