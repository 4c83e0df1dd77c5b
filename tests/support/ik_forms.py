"""Tensors as ik_llama.cpp stores them: bytes that are the same everywhere, with usual scales."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ggml_py.types import BY_NAME, TYPES, GGMLType
from llama_py.gguf.forms import FORMS, I2_S, TENSOR_SCALE, Form
from llama_py.gguf.tensor_info import TensorInfo, UnwoundTensor

Bytes = NDArray[np.uint8]

OWN = [133, 137, 138, 139, 140, 141]  # types of ik_llama.cpp that have no other form in files
N = 512  # values of a row
LEADING = {"q4_K_r4": 8, "q5_K_r4": 8, "q2_K_r4": 8}  # halves at the start of a block


def hashed(n: int) -> Bytes:
    """Bytes that look random."""
    numbers = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(2654435761) % np.uint64(2**32)
    return (numbers >> np.uint64(13) & np.uint64(255)).astype(np.uint8)


def scales(n: int, dtype: str) -> Bytes:
    """Numbers from 1/2 to 1 and their negatives."""
    x = (0.5 + np.arange(n) % 7 / 14) * (1 - 2 * (np.arange(n) % 3 == 1))
    return x.astype(dtype).view(np.uint8)


def stored(id: int, n: int = N, times: int = 1) -> Bytes:
    """The bytes of as many rows as the type interleaves, or of a multiple."""
    if times > 1:
        raw = stored(id, n)
        size = len(raw) - (TENSOR_SCALE if id == I2_S else 0)
        return np.concatenate([np.tile(raw[:size], times), raw[size:]])
    form = FORMS.get(id)
    if form is None:
        raw = hashed(TYPES[id].row_size(n))
        with_scales(raw.reshape(-1, TYPES[id].type_size), 1)
        return raw
    raw = hashed(form.rows * form.row_size(n) + (TENSOR_SCALE if id == I2_S else 0))
    if id == I2_S:
        raw[n // 4 : n // 4 + 4] = scales(1, "<f4")
    elif id == 230:
        raw[1::2] &= 0xBF  # exponents of bf16 below infinity's
    elif form.head == 8:
        raw[:4] = scales(1, "<f4")
    elif form.head:
        raw[: form.rows * form.head] = scales(form.rows, f"<f{form.head}")
    else:
        blocks = raw.reshape(-1, form.rows * form.nbytes)
        if form.plain.name == "mxfp4":
            blocks[:, :8] = 120 + blocks[:, :8] % 8
        else:
            with_scales(blocks, LEADING.get(form.name, form.rows))
    return raw


def with_scales(blocks: Bytes, n: int) -> None:
    blocks[:, : 2 * n] = scales(len(blocks) * n, "<f2").reshape(len(blocks), 2 * n)


def tensor(name: str, form: Form, ne: tuple[int, ...], raw: Bytes) -> TensorInfo:
    """A tensor of a file with these bytes."""
    ne4 = (*ne, 1, 1, 1)[:4]
    return UnwoundTensor(TensorInfo(name, form.file_type, ne4, 0, raw.size, raw), form)


def plain(id: int) -> GGMLType:
    return FORMS[id].plain if id in FORMS else TYPES[id]


def name_of(id: int) -> str:
    return FORMS[id].name if id in FORMS else TYPES[id].name


IDS = [*OWN, *FORMS]
ADDED = [BY_NAME[n] for n in dict.fromkeys(plain(id).name for id in IDS) if BY_NAME[n].id >= 133]
