"""The parameter block: the int64 array that describes a node to its kernel.

| words   | content                                                                     |
|---------|-----------------------------------------------------------------------------|
| 0       | address of the scratch shared by all threads                                |
| 1, 2    | address of thread 0's local scratch, bytes per thread                       |
| 3       | address of the record of faults (faults.py)                                 |
| 4..11   | op params: the node's 64 raw bytes                                          |
| 12..19  | extra: up to 8 kernel-specific integers                                     |
| 20+9k.. | tensor k (0 dst, 1.. src): data address, ne[4], nb[4] in bytes; 0 if absent |
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SHARED = 0
LOCAL = 1
LOCAL_BYTES = 2
OP_PARAMS = 4
EXTRA = 12
TENSORS = 20
TENSOR_WORDS = 9
NE = 1
NB = 5
MAX_SRC = 10
MAX_EXTRA = 8
OP_PARAMS_BYTES = 64
WORDS = TENSORS + TENSOR_WORDS * (1 + MAX_SRC)

_RAW = struct.Struct(f"={OP_PARAMS_BYTES // 8}q")
_NO_SCRATCH, _NO_EXTRA, _ABSENT = (0,) * OP_PARAMS, (0,) * MAX_EXTRA, (0,) * TENSOR_WORDS

Block = NDArray[np.int64]


class View(NamedTuple):
    """A tensor's data address, ne and nb in ggml order (ne[0] fastest, nb in bytes)."""

    address: int
    ne: Sequence[int]
    nb: Sequence[int]


def new_blocks(count: int) -> NDArray[np.int64]:
    """Return zeroed parameter blocks, int64 [count, WORDS]; see `block_address` for row i."""
    return np.zeros((count, WORDS), np.int64)


def block_address(blocks: NDArray[np.int64], i: int = 0) -> int:
    """Return the address of row `i`, the argument `p` of kernels."""
    return int(blocks.ctypes.data) + 8 * WORDS * i


def pack(
    block: Block, tensors: Sequence[View | None], op_params: bytes = b"", extra: Sequence[int] = ()
) -> None:
    """Fill one block. `tensors` are dst, src[0], src[1], ..., with None for a missing source.

    `set_scratch` sets the scratch addresses, since they depend on the number of threads.
    Raises ValueError if the node does not fit into the block.
    """
    if len(tensors) > 1 + MAX_SRC or len(extra) > MAX_EXTRA or len(op_params) > OP_PARAMS_BYTES:
        raise ValueError(
            f"a parameter block holds {MAX_SRC} sources, {MAX_EXTRA} extra integers and "
            f"{OP_PARAMS_BYTES} bytes of op params; the node has {len(tensors) - 1}, "
            f"{len(extra)} and {len(op_params)}"
        )
    raw = _RAW.unpack(op_params.ljust(OP_PARAMS_BYTES, b"\0"))
    words = [*_NO_SCRATCH, *raw, *extra, *_NO_EXTRA[len(extra) :]]
    for tensor in tensors:
        words += _ABSENT if tensor is None else (tensor.address, *tensor.ne, *tensor.nb)
    struct.pack_into(f"={len(words)}q", block.data, 0, *words)  # several times faster than numpy
    block[len(words) :] = 0


def set_scratch(block: Block, shared: int, local: int, local_bytes: int) -> None:
    """Set the addresses of the shared and thread 0's local scratch, and local bytes per thread."""
    block[SHARED], block[LOCAL], block[LOCAL_BYTES] = shared, local, local_bytes
