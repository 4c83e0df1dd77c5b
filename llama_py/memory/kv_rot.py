"""Hadamard rotation of heads before quantization into a cache, which spreads outliers (attn_rot_k).
Index keys are always rotated."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ggml_py.backend import set_tensor
from ggml_py.ops import cont, mul_mat, reshape
from ggml_py.tensor import FLAG_INPUT, Tensor
from ggml_py.types import F32, GGMLType
from llama_py.memory.kv_tensors import KVLayer

HINT_HADAMARD = 1  # ggml.h:GGML_HINT_SRC0_IS_HADAMARD
STEP = 64  # head sizes must be a multiple of this


def hadamard(n: int) -> npt.NDArray[np.float32]:
    """Return the orthonormal Hadamard matrix of size n, a power of two (Sylvester's)."""
    h = np.full((1, 1), 1 / np.sqrt(np.float32(n)), np.float32)
    while len(h) < n:
        h = np.block([[h, h], [h, -h]])
    return h


def rotate(cur: Tensor, rot: Tensor) -> Tensor:
    """Multiply each block of cur by rot [n, n] (llama-impl.h:llama_mul_mat_hadamard)."""
    n = rot.ne[0]
    flat = reshape if cur.is_contiguous() else cont
    res = mul_mat(rot, flat(cur, n, cur.n_elements // n))
    res.params = (0, HINT_HADAMARD, 0)
    return reshape(res, *cur.ne)


class Rotation:
    """Block sizes n_k and n_v of the rotation of K and V heads; 0: no rotation."""

    def __init__(
        self,
        layers: Sequence[KVLayer],
        type_k: GGMLType,
        type_v: GGMLType,
        whole_keys: bool = False,
        always: bool = False,
    ) -> None:
        """Choose the sizes of rotation matrices.
        whole_keys: rotate keys of any type in one block; their size is a power of two
        always: rotate keys of any type, in the largest blocks
        """
        k = {layer.n_embd_head_k for layer in layers}
        v = {layer.n_embd_head_v for layer in layers}
        if whole_keys:
            self.n_k = max(k)
        else:
            self.n_k = _largest_block(k) if always or type_k.block_size > 1 else 0
        self.n_v = STEP if type_v.block_size > 1 and _largest_block(v) else 0

    def build_input(self, name: str, n: int) -> Tensor | None:
        """Create the input F32 [n, n]; None without rotation."""
        if not n:
            return None
        t = Tensor(F32, (n, n), name=name)
        t.flags |= FLAG_INPUT
        return t

    def set_input(self, dst: Tensor) -> None:
        set_tensor(dst, hadamard(dst.ne[0]))


def _largest_block(sizes: set[int]) -> int:
    """Return the largest power of two >= 64 that divides the single head size, else 0."""
    if len(sizes) != 1:
        return 0
    size = sizes.pop()
    n = STEP
    while size % (2 * n) == 0 and size:
        n *= 2
    return n if size and size % STEP == 0 else 0
