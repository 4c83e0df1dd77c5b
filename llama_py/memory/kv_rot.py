"""Rotation of heads before they are quantized into a cache, which spreads outliers (attn_rot_k);
keys of indexers always are."""

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
    """The orthonormal Hadamard matrix of a power of two (Sylvester's)."""
    h = np.full((1, 1), 1 / np.sqrt(np.float32(n)), np.float32)
    while len(h) < n:
        h = np.block([[h, h], [h, -h]])
    return h


def rotate(cur: Tensor, rot: Tensor) -> Tensor:
    """Each block of rot's size times rot [n, n] (llama-impl.h:llama_mul_mat_hadamard)."""
    n = rot.ne[0]
    flat = reshape if cur.is_contiguous() else cont
    res = mul_mat(rot, flat(cur, n, cur.n_elements // n))
    res.params = (0, HINT_HADAMARD, 0)
    return reshape(res, *cur.ne)


class Rotation:
    """n_k, n_v: size of the blocks that K and V heads are rotated in; 0 for none."""

    def __init__(
        self,
        layers: Sequence[KVLayer],
        type_k: GGMLType,
        type_v: GGMLType,
        whole_keys: bool = False,
        always: bool = False,
    ) -> None:
        """whole_keys: of any type, and in one block; their size is a power of two
        always: keys of any type, in the largest blocks
        """
        k = {layer.n_embd_head_k for layer in layers}
        v = {layer.n_embd_head_v for layer in layers}
        if whole_keys:
            self.n_k = max(k)
        else:
            self.n_k = _largest_block(k) if always or type_k.block_size > 1 else 0
        self.n_v = STEP if type_v.block_size > 1 and _largest_block(v) else 0

    def build_input(self, name: str, n: int) -> Tensor | None:
        """F32 [n, n], or None without rotation."""
        if not n:
            return None
        t = Tensor(F32, (n, n), name=name)
        t.flags |= FLAG_INPUT
        return t

    def set_input(self, dst: Tensor) -> None:
        set_tensor(dst, hadamard(dst.ne[0]))


def _largest_block(sizes: set[int]) -> int:
    """The largest power of two from 64 on that divides the one head size; 0 if there is none."""
    if len(sizes) != 1:
        return 0
    size = sizes.pop()
    n = STEP
    while size % (2 * n) == 0 and size:
        n *= 2
    return n if size and size % STEP == 0 else 0
