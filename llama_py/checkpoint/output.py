"""Tensors of a new file: their types, and their bytes."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ggml_py.errors import ModelError
from ggml_py.types import F16, F32, GGMLType
from llama_py.checkpoint.arrays import Array, LazyArray
from llama_py.checkpoint.floats import Bytes, n_bytes, to_bytes
from llama_py.gguf.write import head, read_alignment

log = logging.getLogger("llama_py")

# Matrices that remain F32, after the layer's name (conversion/base.py: prepare_tensors).
IN_F32 = frozenset({
    "ffn_gate_inp", "ffn_gate_inp_shexp", "position_embd", "token_types", "ssm_conv1d",
    "shortconv.conv", "time_mix_first", "time_mix_w1", "time_mix_w2", "time_mix_decay_w1",
    "time_mix_decay_w2", "time_mix_lerp_fused", "altup_correct_coef", "altup_predict_coef",
    "ssm_conv1d_q", "ssm_conv1d_k", "ssm_conv1d_v", "indexer.proj", "v.position_embd",
    "a.position_embd",
})  # fmt: skip
LORA = (".lora_a", ".lora_b")  # matrices of adapters within a model
MOST_DIMS = 4


@dataclass(frozen=True, slots=True, eq=False)
class NewTensor:
    """A tensor of the new file; `array` computes its values."""

    name: str
    type: GGMLType
    array: LazyArray = field(repr=False)

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape in ggml's order, with all dimensions of the checkpoint."""
        return self.shape[::-1] or (1,)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape in the order of torch."""
        shape, packed = self.array.shape, self.array.packed
        if packed is None:
            return shape
        return (*shape[:-1], shape[-1] // packed.type_size * packed.block_size)

    @property
    def nbytes(self) -> int:
        return n_bytes(self.type, self.shape or (1,))

    def pieces(self) -> Iterator[memoryview]:
        """Compute the bytes in order, in pieces."""
        stored = self.array.read_bytes(self.type)
        return stored or (self._encode(part).data for part in self.array.read_parts())

    def data(self) -> Bytes:
        """Compute the bytes of the tensor."""
        return self._encode(self.array.read())

    def _encode(self, values: Array) -> Bytes:
        if self.array.packed is not None:
            return np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        return to_bytes(self.type, values)


def choose_type(
    name: str,
    array: LazyArray,
    wanted: GGMLType,
    in_f32: frozenset[str] = IN_F32,
    forced: GGMLType | None = None,
) -> GGMLType:
    """Return the type of a tensor: of matrices the wanted one if rows have whole blocks.

    in_f32   matrices that remain F32
    forced   type of this matrix; None: by its name

    Raises ModelError for a tensor that GGUF cannot store.
    """
    if array.ndim > MOST_DIMS or not all(array.shape):
        raise ModelError(
            f"{name} must have 1 to {MOST_DIMS} dimensions above 0 in GGUF, got {list(array.shape)}"
        )
    if array.packed is not None:
        return array.packed
    base = name.removesuffix(".weight")
    own = base.split(".", 2)[2] if base.startswith("blk.") else base
    if array.ndim <= 1 or name.endswith("_norm.weight"):
        return F32
    if forced is None and ((base == name and not name.endswith(LORA)) or own in in_f32):
        return F32
    wanted = wanted if forced is None else forced
    if array.shape[-1] % wanted.block_size:
        log.warning(
            "%s has rows of %d values, not a multiple of %s's block of %d, so it becomes F16",
            name,
            array.shape[-1],
            wanted.name,
            wanted.block_size,
        )
        return F16
    return wanted


class ParameterCounts(NamedTuple):
    """Numbers of parameters, for a label of the size.

    shared  outside of experts;  expert  of one expert per layer;  experts  mean number of experts
    """

    total: int
    shared: int
    expert: int
    experts: int


def count_parameters(tensors: Sequence[NewTensor]) -> ParameterCounts:
    """Count the parameters of a model, or of the matrices that an adapter changes, as a negative
    number (gguf-py: get_total_parameter_count)."""
    total = shared = expert = experts = n = 0
    sign, n_in, pair = 1, 0, ""
    for t in tensors:
        shape = t.shape
        if t.name.endswith(".lora_a"):
            n_in, pair = shape[-1], t.name
            continue
        if t.name.endswith(".lora_b"):
            if pair != f"{t.name[:-1]}a":
                return ParameterCounts(0, 0, 0, 0)  # unknown, as its two matrices are apart
            sign, shape = -1, (*shape[:-1], n_in)
        size = math.prod(shape)
        total += size
        if "_exps." in t.name and len(shape) >= 3:
            count = shape[-2 if ".bias" in t.name else -3]
            expert, experts, n = expert + size // count, experts + count, n + 1
        else:
            shared += size
    return ParameterCounts(sign * total, shared, expert, experts // n if n else 0)


def pieces(stored: Mapping[str, bytes], tensors: Sequence[NewTensor]) -> Iterator[memoryview]:
    """Yield a whole GGUF file in pieces, one per tensor."""
    alignment = read_alignment(stored)
    yield memoryview(head(stored, tensors, alignment))
    for t in tensors:
        yield from t.pieces()
        yield memoryview(bytes(-t.nbytes % alignment))
