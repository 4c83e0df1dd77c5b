"""MUL_MAT and MUL_MAT_ID against the real ggml: same weights, same activations, same rounding."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ggml_cpu.blocks.amx_pairs import MANY
from ggml_cpu.blocks.format import LAYOUT
from ggml_cpu.quants import weights
from ggml_cpu.target import AMX
from ggml_py import ops
from ggml_py.tensor import Tensor
from tests.support.products import Run, error, leaf, repacked, values

pytestmark = pytest.mark.parity
TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K")
TYPES += ("iq4_nl", "mxfp4", "iq4_xs", "nvfp4", "tq1_0", "tq2_0", "q1_0", "q2_0")
TYPES += ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s")
CLOSE = 5e-6  # of the largest value; only the order of additions differs
Address, Size, Long = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64


class Parameters(ctypes.Structure):
    """ggml.h:struct ggml_init_params."""

    _fields_ = (("size", Size), ("memory", Address), ("no_alloc", ctypes.c_bool))


class Ggml:
    """The few functions of ggml's shared libraries that compute one node."""

    def __init__(self, folder: Path) -> None:
        ending = {"darwin": "dylib", "win32": "dll"}.get(sys.platform, "so")
        names = ("ggml-base", "ggml-cpu", "ggml")
        self.libraries = [
            ctypes.CDLL(str(folder / f"lib{n}.{ending}"), mode=ctypes.RTLD_GLOBAL) for n in names
        ]
        self.backend = self("ggml_backend_cpu_init", Address)()

    def __call__(self, name: str, result: object, *arguments: object):
        library = next(lib for lib in self.libraries if hasattr(lib, name))
        function = getattr(library, name)
        function.restype, function.argtypes = result, list(arguments)
        return function

    @contextmanager
    def context(self) -> Iterator[int]:
        start = self("ggml_init", Address, Parameters)
        handle = start(Parameters(1 << 20, None, True))
        yield handle
        self("ggml_free", None, Address)(handle)

    def compute(self, op: str, *sources: Tensor) -> NDArray[np.float32]:
        """The result of `op(sources)` as one flat array."""
        new = self("ggml_new_tensor_4d", Address, Address, ctypes.c_int, *[Long] * 4)
        put = self("ggml_backend_tensor_set", None, Address, Address, Size, Size)
        get = self("ggml_backend_tensor_get", None, Address, Address, Size, Size)
        with self.context() as context:
            leaves = [new(context, t.type.id, *t.ne) for t in sources]
            function = self(op, Address, Address, *[Address] * len(sources))
            node = function(context, *leaves)
            graph = self("ggml_new_graph", Address, Address)(context)
            self("ggml_build_forward_expand", None, Address, Address)(graph, node)
            allocate = self("ggml_backend_alloc_ctx_tensors", Address, Address, Address)
            buffer = allocate(context, self.backend)
            for leaf_, t in zip(leaves, sources, strict=True):
                put(leaf_, t.buffer.base + t.offset, 0, t.nbytes)
            run = self("ggml_backend_graph_compute", ctypes.c_int, Address, Address)
            assert run(self.backend, graph) == 0
            out = np.empty(self("ggml_nelements", Long, Address)(node), np.float32)
            get(node, out.ctypes.data, 0, out.nbytes)
            self("ggml_backend_buffer_free", None, Address)(buffer)
        return out


@pytest.fixture(scope="module")
def ggml() -> Ggml:
    found = find_spec("llama_cpp")
    if found is None or found.origin is None:
        pytest.skip("needs llama-cpp-python")
    return Ggml(Path(found.origin).parent / "lib")


def random(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(shape).standard_normal(shape, np.float32)


def difference(node: Tensor, theirs: NDArray[np.float32]) -> float:
    ours = Run(node)().reshape(-1)
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def rounds_less(kind: str, layout: str, n: int) -> bool:
    """Whether n columns are rounded to what is nearer than ggml's halves and bytes: integers of 16
    bits, or bf16 in AMX's registers."""
    weight = weights()[kind]
    many = layout != "" or n > weight.few
    as_integers = kind == "f16" and many and weight.of_dots is not None
    return as_integers or (AMX and weight.values is not None and n >= MANY)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("n", [1, 3, 70])
def test_mul_mat(ggml: Ggml, kind: str, n: int) -> None:
    a, b = leaf(kind, random(70, 1024)), leaf("f32", random(n, 1024))
    theirs = ggml.compute("ggml_mul_mat", a, b)
    panels = repacked(a)
    for weight in (a, panels) if panels.layout == LAYOUT else (a,):
        if rounds_less(kind, weight.layout, n):
            exact = values(b)[0, 0].astype(np.float64) @ values(a)[0, 0].astype(np.float64).T
            ours = Run(ops.mul_mat(weight, b))()[0, 0]
            assert error(ours, exact) < error(theirs.reshape(exact.shape), exact)
        else:
            assert difference(ops.mul_mat(weight, b), theirs) < CLOSE


@pytest.mark.parametrize("kind", ("f32", "q8_0", "q2_K", "q3_K", "q4_K", "q6_K", "mxfp4"))
@pytest.mark.parametrize("tokens", [1, 40])
def test_mul_mat_id(ggml: Ggml, kind: str, tokens: int) -> None:
    a, b = leaf(kind, random(8, 70, 512)), leaf("f32", random(tokens, 1, 512))
    ids = leaf("i32", np.argsort(random(tokens, 8), -1)[:, :3])
    theirs = ggml.compute("ggml_mul_mat_id", a, b, ids)
    for weight in (a, repacked(a)):
        assert difference(ops.mul_mat_id(weight, b, ids), theirs) < CLOSE
