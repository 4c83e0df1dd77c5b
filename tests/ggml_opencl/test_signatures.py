"""Functions of kernels are made once a signature, and arguments are those that were given."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from ggml_opencl.signatures import remembering, set_arguments


def test_the_maker_is_asked_once_a_signature() -> None:
    asked = []

    def make(*signature: Any, devs: list[str]) -> tuple[Any, ...]:
        asked.append(signature)
        return signature

    find = remembering(make)
    plain, other, typed = ("f", 2, 2, None), ("f", 3, 3, None), ("f", 2, 2, (np.int32, np.int32))
    for signature in (plain, other, plain, typed, typed):
        assert find(*signature, devs=["a device"]) == signature
    assert asked == [plain, other, typed, typed]


def test_arguments_of_every_kind(device: Any) -> None:
    import pyopencl as cl

    text = """typedef struct { int a, b; } two;
    kernel void sums(global float *to, two t, int i, float x) { to[i] = t.a + t.b + x; }"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)
        kernel = cl.Kernel(cl.Program(device.queue.context, text).build(), "sums")
    memory = cl.Buffer(device.queue.context, cl.mem_flags.READ_WRITE, 16)
    arguments = [memory, np.array([3, 4], np.int32).tobytes(), np.int32(2), np.float32(0.5)]
    set_arguments(kernel, arguments)
    cl.enqueue_nd_range_kernel(device.queue, kernel, (1,), None)
    found = np.zeros(4, np.float32)
    cl.enqueue_copy(device.queue, found, memory)
    assert found[2] == 7.5
    with pytest.raises(cl.Error):
        set_arguments(kernel, [memory, b"too short"])
