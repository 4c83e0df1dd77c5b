"""Random tensor data in any type, made piece by piece.

gguf-py cannot quantize to K-quants, and quantizing gigabytes of random numbers would be slow. But
random bytes are a valid block. Setting the F16 scales gives weights with the intended standard
deviation and a mean near zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import IO

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

PIECE = 2**24  # bytes


@dataclass(frozen=True)
class Scales:
    """Byte offsets of a block's F16 fields. A second one holds `ratio` times the first, which
    takes the mean of the weights to zero."""

    scale: int
    low: int | None = None
    ratio: float = 0.0


SCALES = {
    Type.Q4_0: Scales(0),
    Type.Q5_0: Scales(0),
    Type.Q5_1: Scales(0, low=2, ratio=-15.5),
    Type.Q8_0: Scales(0),
    Type.Q4_K: Scales(0, low=2, ratio=7.5),
    Type.Q5_K: Scales(0, low=2, ratio=15.5),
    Type.Q6_K: Scales(208),
    Type.IQ4_NL: Scales(0),
    Type.IQ4_XS: Scales(0),
}


@dataclass
class RandomMatrix:
    """Data of a matrix in the form GGUFWriter.write_tensor_data takes: a size and `tofile`."""

    dtype: Type
    n_elements: int
    std: float
    rng: np.random.Generator

    @property
    def nbytes(self) -> int:
        block, size = gguf.GGML_QUANT_SIZES[self.dtype]
        return self.n_elements // block * size

    def tofile(self, file: IO[bytes]) -> None:
        for piece in self.pieces():
            file.write(piece.data)

    def pieces(self) -> Iterator[NDArray[np.generic]]:
        """Yield the data in pieces of at most 16 MiB."""
        block, size = gguf.GGML_QUANT_SIZES[self.dtype]
        n_blocks, step = self.n_elements // block, PIECE // size
        for start in range(0, n_blocks, step):
            n = min(step, n_blocks - start)
            if self.dtype is Type.F16:
                numbers = self.rng.standard_normal(n, np.float32) * np.float32(self.std)
                yield numbers.astype(np.float16)
            else:
                scale = self.std / unit_std(self.dtype) * self.rng.uniform(0.75, 1.25, n)
                yield random_blocks(self.dtype, scale, self.rng)


def random_blocks(
    dtype: Type, scale: NDArray[np.floating], rng: np.random.Generator
) -> NDArray[np.uint8]:
    """Return one block per scale: uint8 [len(scale), bytes of a block]."""
    size = gguf.GGML_QUANT_SIZES[dtype][1]
    blocks = rng.integers(0, 256, (len(scale), size), np.uint8)
    if dtype is Type.Q8_0:
        blocks[blocks == 0x80] = 0x81  # a quantizer never writes -128
    at = SCALES[dtype]
    blocks[:, at.scale : at.scale + 2] = _f16_bytes(scale)
    if at.low is not None:
        blocks[:, at.low : at.low + 2] = _f16_bytes(scale * at.ratio)
    return blocks


@cache
def unit_std(dtype: Type) -> float:
    """Return the standard deviation of random weights if all blocks have scale 1."""
    blocks = random_blocks(dtype, np.ones(2000), np.random.default_rng(0))
    return float(gguf.quants.dequantize(blocks, dtype).std())


def _f16_bytes(x: NDArray[np.floating]) -> NDArray[np.uint8]:
    return x.astype("<f2").view(np.uint8).reshape(-1, 2)
