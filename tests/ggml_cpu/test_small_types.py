"""Types of four bits and less: products and rows, in both layouts, with any bits of a block."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from ggml_cpu.blocks.format import LAYOUT
from ggml_cpu.quants import q8_0, q8_K, weights
from ggml_py import ops
from ggml_py.backend import HostBuffer
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME
from tests.support.ik_forms import ADDED
from tests.support.products import Floats, Run, error, leaf, place, repacked, rounded, values

CHUNKS = (q8_0.CHUNKS, q8_K.CHUNKS)
UNPACKED = tuple(name for name, w in weights().items() if w.activations in CHUNKS)
NONLINEAR = ("iq4_nl", "mxfp4", "iq4_xs")
KINDS = NONLINEAR + UNPACKED
EXACT = 1e-11
CUBIC = 1e-4  # iq6_k's products use rounded levels, as ik_llama.cpp's do
SHAPES = [(1, 2), (5, 1), (17, 3), (16, 8), (37, 13)]  # rows, blocks of a row
WIDE_SCALES = ("iq4_ks", "iq5_ks", "iq4_kss", "iq1_kt", "iq2_kt", "iq3_kt", "iq4_kt", "iq2_bn")
SCALE_AT = {"tq1_0": 52, "tq2_0": 64, "ptq1_0": 26}


def random(*shape: int) -> Floats:
    return np.random.default_rng(shape).standard_normal(shape, np.float32)


def set_scales(kind: str, blocks: NDArray[np.uint8]) -> None:
    """Scales that are not extreme: the f16 of a block, wherever a type has it."""
    shape = blocks.shape[:-1]
    scale = np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float16).view(np.uint16)
    if kind == "iq1_m":
        for i in range(4):
            top = (scale >> 4 * i & 15).astype(np.uint8)
            blocks[..., 49 + 2 * i] = blocks[..., 49 + 2 * i] & 15 | top << 4
    elif kind == "mxfp4":
        blocks[..., 0] = np.random.default_rng(1).integers(120, 134, shape)
    elif kind == "nvfp4":
        blocks[..., :4] = np.random.default_rng(1).integers(48, 72, (*shape, 4))
    elif kind in WIDE_SCALES:
        blocks[..., :4] = scale.view(np.float16).astype(np.float32)[..., None].view(np.uint8)
    else:
        at = SCALE_AT.get(kind, 0)
        blocks[..., at : at + 2] = scale[..., None].view(np.uint8)


def any_bits(kind: str, k: int, *shape: int) -> Tensor:
    """A leaf [k, ...] of random bytes: every point of a codebook, every sign, every scale."""
    t = Tensor(BY_NAME[kind], (k, *shape[::-1]))
    size = (*shape, k // t.type.block_size, t.type.type_size)
    blocks = np.random.default_rng(k).integers(0, 256, size, np.uint8)
    set_scales(kind, blocks)
    return place(t, blocks)


def column(kind: str, x: Floats) -> NDArray[np.float64]:
    return rounded(weights()[kind].activations.name, x)


def product(a: Tensor, x: Floats) -> NDArray[np.float64]:
    w = values(a)[0, 0].astype(np.float64)
    return (column(a.type.name, x) @ w.T)[None, None]


def forms(a: Tensor) -> list[Tensor]:
    """The weight in place, and in panels if its type has them."""
    panels = repacked(a)
    assert panels.layout == (LAYOUT if a.type.name in NONLINEAR else "")
    return [a, panels] if panels.layout else [a]


def test_which_types_these_are() -> None:
    assert {"iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s"} < set(UNPACKED)
    assert {"nvfp4", "tq1_0", "tq2_0", "q1_0", "q2_0", "pq2_0", "ptq1_0"} < set(UNPACKED)
    assert {t.name for t in ADDED} - {"q6_0", "q8_kv"} < set(UNPACKED)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("m", "blocks"), SHAPES)
def test_mul_mat(kind: str, m: int, blocks: int) -> None:
    """Ends of panels and of tiles, several threads."""
    a = any_bits(kind, blocks * BY_NAME[kind].block_size, m)
    for n in (1, 2, 3, 5, 9, 13):
        x = random(n, a.ne[0]) + np.float32(0.5)
        for weight in forms(a):
            run = Run(ops.mul_mat(weight, leaf("f32", x)), 1 + n % 3)
            bound = CUBIC if kind == "iq6_k" else EXACT
            assert error(run(), product(a, x)) < bound, (run.kernel.name, n)


@pytest.mark.parametrize("kind", ["iq2_xs", "iq3_s", "q2_0", "iq4_k", "iq4_ks"])
def test_long_rows(kind: str) -> None:
    """More chunks than a panel takes at a time."""
    a = any_bits(kind, 64 * 2 * weights()[kind].k_block + 256, 19)
    for n in (1, 9):
        x = random(n, a.ne[0])
        run = Run(ops.mul_mat(a, leaf("f32", x)), 2)
        assert error(run(), product(a, x)) < EXACT, run.kernel.name


@pytest.mark.parametrize("kind", [*NONLINEAR, "iq1_m", "iq2_s", "nvfp4", "iq5_k", "iq3_kt"])
def test_mul_mat_id(kind: str) -> None:
    a = any_bits(kind, 256, 5, 37)
    w = values(a)[0].astype(np.float64)
    for tokens in (1, 3, 30):
        ids = np.random.default_rng(tokens).integers(0, 5, (tokens, 2))
        x = random(tokens, 1, 256)
        expected = np.einsum("tsmk,tk->tsm", w[ids], column(kind, x)[:, 0])[None]
        for weight in forms(a):
            run = Run(ops.mul_mat_id(weight, leaf("f32", x), leaf("i32", ids)), 3)
            assert error(run(), expected) < EXACT, run.kernel.name


@pytest.mark.parametrize("kind", KINDS)
def test_get_rows(kind: str) -> None:
    """Bit by bit the reference's values, and so ggml's."""
    a = any_bits(kind, 768, 37)
    ids = leaf("i32", np.random.default_rng(1).integers(0, 37, (1, 50)))
    expected = values(a)[:, :, values(ids)[0, 0, 0].astype(int)]
    for weight in forms(a):
        assert (Run(ops.get_rows(weight, ids), 3)() == expected).all(), weight.layout


def test_all_scales_of_nvfp4() -> None:
    """Those without an exponent are subnormal; 0x7f is nothing."""
    a = any_bits("nvfp4", 64, 64)
    assert isinstance(a.buffer, HostBuffer)
    blocks = a.buffer.data[: a.nbytes].reshape(64, 36)
    blocks[:, :4] = np.arange(256, dtype=np.uint8).reshape(64, 4)
    ids = leaf("i32", np.arange(64)[None])
    assert (Run(ops.get_rows(a, ids))()[0, 0] == values(a)[0, 0]).all()


@pytest.mark.parametrize("kind", ["iq3_xxs", "q1_0"])
def test_columns_of_zeros(kind: str) -> None:
    a = any_bits(kind, 256, 5)
    for n in (1, 5):
        assert not Run(ops.mul_mat(a, leaf("f32", np.zeros((n, 256), np.float32))))().any()


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 127, 254, 255])
def test_scales_of_mxfp4(exponent: int) -> None:
    """Those of the first two are denormal; 255 is a number like any other."""
    a = any_bits("mxfp4", 32, 20)
    assert isinstance(a.buffer, HostBuffer)
    blocks = a.buffer.data[: a.nbytes].reshape(20, 17)
    blocks[:] &= 0x11  # levels 0 and 1: no sum is too large
    blocks[:, 0] = exponent
    x = np.full((1, 32), 2.0**10 if exponent < 128 else 2.0**-10, np.float32)
    ids = leaf("i32", np.arange(20)[None])
    expected = product(a, x)
    for weight in (a, repacked(a)):
        assert (Run(ops.get_rows(weight, ids))()[0, 0] == values(a)[0, 0]).all()
        found = Run(ops.mul_mat(weight, leaf("f32", x)))().astype(np.float64)
        assert np.allclose(found, expected, rtol=1e-5, atol=0), weight.layout


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x86 only")
@pytest.mark.skipif("LLAMA_PY_CPU" in os.environ, reason="already a chosen CPU")
def test_six_bits_without_dot_products_of_bytes() -> None:
    """i16 sums hold two words of these values, fewer than of other types."""
    code = "from llama_py_tools.start import test_backend_ops as run; run()"
    options = ["-b", "cpu", "-o", "MUL_MAT", "-p", "type_a=q6_0,.*m=17,n=(1|3),"]
    run = subprocess.run(
        [sys.executable, "-c", code, *options],
        env={**os.environ, "LLAMA_PY_CPU": "avx2"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert "2/2 tests passed" in run.stdout, run.stdout + run.stderr
