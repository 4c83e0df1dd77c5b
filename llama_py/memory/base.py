"""Allocation of the tensors of a context's memory."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import numpy as np

from ggml_py.backend import Buffer, Bytes, Device
from ggml_py.errors import AllocError
from ggml_py.tensor import Tensor

log = logging.getLogger("llama_py")

LayerKey = int | tuple[int, int]  # a layer, or (layer, part) if several devices share the layer


def key_name(key: LayerKey) -> str:
    """Return the name of a layer or a part of a layer, like ik_llama.cpp: `3.1`."""
    return str(key) if isinstance(key, int) else f"{key[0]}.{key[1]}"


def allocate(
    what: str, told_as: str, placed: Sequence[tuple[Device, Tensor]]
) -> list[tuple[Device, Buffer]]:
    """Allocate zeroed buffers for tensors, one per device; AllocError if a device has too little.

    told_as   start of the log line, with a placeholder for the device
    """
    buffers: list[tuple[Device, Buffer]] = []
    for device in dict.fromkeys(d for d, _ in placed):
        mine = [t for d, t in placed if d is device]
        size = 0
        for t in mine:
            t.offset = size
            size += -(-t.nbytes // device.alignment) * device.alignment
        free, total = device.memory()
        if total and size > free:
            raise AllocError(
                f"the {what} needs {size / 2**20:.0f} MiB on {device.name}, which has"
                f" {free / 2**20:.0f} MiB free; use a smaller n_ctx, n_seq_max or n_rs_seq"
            )
        buffer = device.alloc(size)
        for t in mine:
            t.buffer = buffer
        buffers.append((device, buffer))
        log.info(f"{told_as} buffer size = %8.2f MiB", device.name, size / 2**20)
    return buffers


def mib(tensors: Iterable[Tensor]) -> float:
    """Return the total size of tensors in MiB."""
    return sum(t.nbytes for t in tensors) / 2**20


def layer_list(ils: Iterable[int]) -> str:
    """Return layer numbers as a comma-separated list without duplicates."""
    return ",".join(str(il) for il in dict.fromkeys(ils))


def zero_row(tensors: Iterable[Tensor], row: int) -> None:
    """Clear a row of each tensor as bytes: a product with zero would keep NaN."""
    for t in tensors:
        write_part(t, row * t.nb[1], np.zeros(t.nb[1], np.uint8))


def read_part(t: Tensor, start: int, size: int) -> Bytes:
    """`size` bytes of a tensor from byte `start`, copied to the host."""
    assert t.buffer is not None
    return t.buffer.read(t.offset + start, size)


def write_part(t: Tensor, start: int, data: Bytes) -> None:
    """Put bytes into a tensor from byte `start`."""
    assert t.buffer is not None
    t.buffer.write(t.offset + start, data)
