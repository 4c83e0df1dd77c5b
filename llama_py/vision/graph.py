"""Builder of an image's graph: order, names, inputs (clip.cpp:clip_graph)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ggml_py.graph import Graph
from ggml_py.ops import add, cont, conv_2d, mul_mat, reshape, transpose
from ggml_py.tensor import FLAG_INPUT, Tensor
from ggml_py.types import F32, I32, GGMLType
from llama_py.vision.hparams import VisionHParams


class ImageGraph:
    """Graph builder that an encoder's blocks use. Shapes in comments are in ggml's order.

    width, height   pixels of the image
    nx, ny, n_patches   patches per row, per column, and in total
    flash    attention is one node, with keys and values in F16
    values   values of the inputs by name, except the pixels
    result   [n_embd_out, n_tokens], after the build
    """

    def __init__(self, hp: VisionHParams, width: int, height: int, flash: bool) -> None:
        self.hp = hp
        self.width, self.height, self.flash = width, height, flash
        self.nx, self.ny = width // hp.patch_size, height // hp.patch_size
        self.n_patches = self.nx * self.ny
        self.kq_scale = float(np.float32(1) / np.sqrt(np.float32(hp.n_embd_head or 1)))
        self.gf = Graph()
        self.expand = self.gf.build_forward_expand
        self.inputs: dict[str, Tensor] = {}
        self.values: dict[str, npt.NDArray[Any]] = {}
        self.result: Tensor | None = None

    def cb(self, t: Tensor, name: str, il: int = -1) -> Tensor:
        """Name a tensor like llama.cpp, and return it."""
        t.name = f"{name}-{il}" if il >= 0 else name
        return t

    def input(self, name: str, type: GGMLType, values: npt.NDArray[Any] | None, *ne: int) -> Tensor:
        """Create a leaf that is filled before each run, with `values` if given."""
        t = Tensor(type, ne, name=name)
        t.flags |= FLAG_INPUT
        self.inputs[name] = t
        if values is not None:
            self.values[name] = values
        return t

    def positions(self, name: str, values: npt.NDArray[np.int32]) -> Tensor:
        """Create an input of positions, I32 [n]."""
        return self.input(name, I32, values, values.size)

    def pixels(self) -> Tensor:
        """Create the input of pixels, [width, height, 3]."""
        return self.input("inp_raw", F32, None, self.width, self.height, 3)

    def mm(self, weight: Tensor, x: Tensor) -> Tensor:
        """Multiply by a weight: [n_in, n] -> [n_out, n]."""
        return mul_mat(weight, x)

    def patches(self, kernel: Tensor, bias: Tensor | None = None) -> Tensor:
        """Multiply each patch by a kernel [size, size, 3, n_embd]. -> [n_embd, n_patches]"""
        size = self.hp.patch_size
        cur = conv_2d(kernel, self.pixels(), size, size, 0, 0, 1, 1)
        cur = reshape(cur, self.n_patches, self.hp.n_embd, 1)
        cur = cont(transpose(cur))
        return cur if bias is None else self.cb(add(cur, bias), "patch_bias")

    @property
    def columns(self) -> npt.NDArray[np.int32]:
        """The column of each patch, from 0. [n_patches]"""
        return np.tile(np.arange(self.nx, dtype=np.int32), self.ny)

    @property
    def rows(self) -> npt.NDArray[np.int32]:
        """The row of each patch, from 0. [n_patches]"""
        return np.repeat(np.arange(self.ny, dtype=np.int32), self.nx)
