"""Tensor: shape, strides, type, the op that makes it, and its bytes (ggml.h:struct ggml_tensor)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from ggml_py._moved import Former, former_names
from ggml_py.errors import GGMLError
from ggml_py.opspec import OPS
from ggml_py.types import F32, GGMLType

MAX_DIMS = 4
MAX_SRC = 10
MAX_NAME = 63  # bytes; ggml keeps 64 with the terminating zero

FLAG_INPUT = 1
FLAG_OUTPUT = 2
FLAG_COMPUTE = 16
FLAG_WEIGHT = 32  # a leaf that decides the device of its readers (ggml: its buffer's usage)

Bytes = npt.NDArray[np.uint8]
Shape = tuple[int, int, int, int]


class Buffer(Protocol):
    """A piece of device memory. Tensors point into it by (`tensor.buffer`, `tensor.offset`)."""

    size: int
    is_host: bool

    def write(self, offset: int, data: Bytes) -> None:
        """Copy bytes into the buffer."""

    def read(self, offset: int, size: int) -> Bytes:
        """Copy bytes out of the buffer."""

    def clear(self, value: int = 0) -> None:
        """Fill with one byte value."""


def shape4(ne: tuple[int, ...] | list[int]) -> Shape:
    """Pad ne with ones to ggml's four dimensions."""
    n0, n1, n2, n3 = (*ne, 1, 1, 1, 1)[:MAX_DIMS]
    return (n0, n1, n2, n3)


def contiguous_strides(t: GGMLType, ne: Shape) -> Shape:
    """Return the byte strides of a dense tensor (ggml_new_tensor_impl)."""
    nb1 = t.type_size * (ne[0] // t.block_size)
    nb2 = nb1 * ne[1]
    return (t.type_size, nb1, nb2, nb2 * ne[2])


def clip_name(name: str) -> str:
    """Cut the name to ggml's limit of 63 bytes."""
    if len(name) <= MAX_NAME and name.isascii():
        return name
    return name.encode()[:MAX_NAME].decode(errors="ignore")


class Tensor:
    """A node or leaf of a graph. Lazy: it has bytes only after allocation (`buffer`, `offset`).

    ne, nb      elements and byte strides, fastest dimension first
    params      typed op parameters, in the order the op declares them (`param("eps")` by name)
    view_src    the tensor that owns the viewed bytes (always the root), at `view_offs` bytes
    layout      "" for ggml's own bytes, else the name a backend gave to its repacked form
    """

    __slots__ = (
        "buffer",
        "flags",
        "layout",
        "name",
        "nb",
        "ne",
        "offset",
        "op",
        "params",
        "src",
        "type",
        "view_offs",
        "view_src",
    )

    def __init__(
        self,
        type: GGMLType = F32,
        ne: tuple[int, ...] = (1,),
        op: str = "NONE",
        src: tuple[Tensor | None, ...] = (),
        params: tuple[Any, ...] = (),
        name: str = "",
        nb: Shape | None = None,
        view_src: Tensor | None = None,
        view_offs: int = 0,
    ) -> None:
        self.type = type
        self.ne: Shape = ne if len(ne) == MAX_DIMS else shape4(ne)  # type: ignore[assignment]
        self.nb: Shape = nb if nb is not None else contiguous_strides(type, self.ne)
        self.op = op
        self.src = src
        self.params = params
        self.name = name and clip_name(name)
        self.flags = 0
        self.view_src = view_src
        self.view_offs = view_offs
        self.buffer: Buffer | None = None
        self.offset = 0
        self.layout = ""
        if view_src is not None and view_src.view_src is not None:
            self.view_src = view_src.view_src
            self.view_offs += view_src.view_offs

    def set_name(self, name: str) -> Tensor:
        self.name = clip_name(name)
        return self

    def param(self, field: str) -> Any:
        """Return the op parameter of that name."""

        return self.params[OPS[self.op].fields.index(field)]

    def source(self, i: int) -> Tensor:
        """Return a required source; GGMLError if it is missing."""
        found = self.optional(i)
        if found is None:
            raise GGMLError(
                f"{self.op} needs source {i}, which {self} does not have; use the op's builder"
            )
        return found

    def sources(self, n: int | None = None) -> tuple[Tensor, ...]:
        """Return the first n sources, or all; GGMLError if one is missing."""
        return tuple(self.source(i) for i in range(len(self.src) if n is None else n))

    def optional(self, i: int) -> Tensor | None:
        """Return a source that may be missing."""
        return self.src[i] if i < len(self.src) else None

    def op_params(self) -> bytes:
        """Return the 64 raw bytes of ggml's `op_params`."""

        return OPS[self.op].pack(self.params) if self.params else bytes(64)

    @property
    def n_elements(self) -> int:
        a, b, c, d = self.ne
        return a * b * c * d

    @property
    def n_rows(self) -> int:
        return self.ne[1] * self.ne[2] * self.ne[3]

    @property
    def nbytes(self) -> int:
        """Bytes from the first to the last element, holes included (ggml_nbytes)."""
        n0, n1, n2, n3 = self.ne
        b0, b1, b2, b3 = self.nb
        if not (n0 and n1 and n2 and n3):
            return 0
        outer = (n1 - 1) * b1 + (n2 - 1) * b2 + (n3 - 1) * b3
        if self.type.block_size == 1:
            return self.type.type_size + (n0 - 1) * b0 + outer
        return n0 * b0 // self.type.block_size + outer

    def is_contiguous(self) -> bool:
        return self.is_contiguous_n(0)

    def is_contiguous_n(self, n: int) -> bool:
        """Return True if dimensions above n are dense; n=0: all, n=1: rows may have gaps
        (ggml_is_contiguous_n).
        """
        ne, nb, t = self.ne, self.nb, self.type
        if ne[0] != t.block_size and nb[0] != t.type_size:
            return False
        step = ne[0] // t.block_size * t.type_size
        for i in (1, 2, 3):
            if i > n:
                if ne[i] != 1 and nb[i] != step:
                    return False
                step *= ne[i]
            else:
                step = ne[i] * nb[i]
        return True

    def has_contiguous_rows(self) -> bool:
        return self.ne[0] == self.type.block_size or self.nb[0] == self.type.type_size

    def is_transposed(self) -> bool:
        return self.nb[0] > self.nb[1]

    def is_empty(self) -> bool:
        return 0 in self.ne

    def same_shape(self, other: Tensor) -> bool:
        return self.ne == other.ne

    def same_layout(self, other: Tensor) -> bool:
        return self.type is other.type and self.ne == other.ne and self.nb == other.nb

    def can_repeat_to(self, other: Tensor) -> bool:
        """Return True if self tiles other a whole number of times in each dimension
        (ggml_can_repeat)."""
        if self.is_empty():
            return other.is_empty()
        (a, b, c, d), (e, f, g, h) = self.ne, other.ne
        return not (e % a or f % b or g % c or h % d)

    def numpy(self) -> npt.NDArray[Any]:
        """Return the values, copied to the host, [ne3, ne2, ne1, ne0], bf16 as float32.

        Only outputs and leaves keep theirs after a graph has run. GGMLError for a tensor without
        memory, and for a quantized type: cast it to f32 in a graph.
        """
        dtype = numpy_dtype(self)
        if dtype is None:
            raise GGMLError(
                f"{self} is quantized; use ops.cast(t, F32) in a graph to read its values"
            )
        if self.is_empty():
            return np.zeros(self.ne[::-1], dtype)
        if self.buffer is None:
            raise GGMLError(f"{self} has no memory yet; plan its graph first")
        values = strided_view(self, self.buffer.read(self.offset, self.nbytes))
        if self.type.name == "bf16":
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values.copy()

    def is_view(self) -> bool:
        return self.view_src is not None

    @property
    def root(self) -> Tensor:
        """The tensor that owns the bytes."""
        return self if self.view_src is None else self.view_src

    def __str__(self) -> str:
        return f"{self.name or self.op}[{', '.join(map(str, self.ne))}]:{self.type}"

    def __repr__(self) -> str:
        return f"<{self.op} {self}>"

    contiguous_from = Former("is_contiguous_n")


_NUMPY: dict[str, Any] = {
    "f32": np.float32, "f16": np.float16, "i8": np.int8, "i16": np.int16, "i32": np.int32,
    "i64": np.int64, "f64": np.float64, "bf16": np.uint16,
}  # fmt: skip


def numpy_dtype(t: Tensor) -> Any:
    """Return the NumPy type of one element (bf16 as its 16 bits), or None for a quantized type."""
    return _NUMPY.get(t.type.name)


def strided_view(t: Tensor, raw: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    """Return a NumPy view [ne3, ne2, ne1, ne0] of the tensor's bytes with its strides (not for
    quantized types).
    """
    dtype = np.dtype(numpy_dtype(t))
    usable = raw[: raw.size // dtype.itemsize * dtype.itemsize].view(dtype)
    return np.lib.stride_tricks.as_strided(usable, t.ne[::-1], t.nb[::-1])


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, strided="strided_view")
