"""Comparison with libmtmd of vision encoders with other weight types or real sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from dev import tiny_models as texts
from dev.record.golden.vision import RealEyes, image
from dev.record.golden.vision_ours import nmse, rows
from dev.tiny_vision import TinyEyes, every, metadata, tensors, text_of, write

TYPES = ("F16", "BF16", "Q8_0")
PLAIN = ("position_embd", "patch_embd", "input_projection")  # tensors that do not support all types
WIDE = {
    "vision.embedding_length": 1152,
    "vision.feed_forward_length": 4304,
    "vision.attention.head_count": 16,
    "vision.block_count": 2,
}
# Metadata of encoders with two layers of real width, by patch size.
LARGE: dict[int, dict[str, Any]] = {
    14: {**WIDE, "vision.image_size": 896},
    16: {**WIDE, "vision.image_size": 768},
}


def by_type(name: str, folder: Path) -> Iterator[str]:
    """Yield a line of text per weight type, with the error of image tokens."""
    tiny = every()[name]
    text = texts.write(*text_of(tiny), folder)
    for kind in TYPES:
        path = folder / f"{name}-{kind}.gguf"
        _write(path, name, tiny, gguf.GGMLQuantizationType[kind])
        yield f"{name} {kind}: rows {_distance(text, path, tiny.sizes[0]):.1e}"


def large(name: str, folder: Path, patch: int) -> str:
    """Return a line of text with the error of image tokens for an encoder of real width."""
    tiny = every()[name]
    keys = {**tiny.keys, **LARGE[patch], "vision.patch_size": patch}
    if "vision.projector.scale_factor" in keys:
        keys["vision.projector.scale_factor"] = 4
    path, text = write(name, folder, replace(tiny, keys=keys)), texts.write(*text_of(tiny), folder)
    return f"{name}, patches of {patch}: rows {_distance(text, path, (640, 480)):.1e}"


def _distance(text: Path, mmproj: Path, size: tuple[int, int]) -> float:
    ours = rows(mmproj, size, flash=True)
    with RealEyes(text, mmproj) as real:
        theirs = real.encode(image(*size))
    return max(nmse(a, b) for a, b in zip(theirs, ours, strict=True))


def _write(path: Path, name: str, tiny: TinyEyes, kind: Any) -> None:
    w, f32 = gguf.GGUFWriter(str(path), "clip"), gguf.GGMLQuantizationType.F32
    kinds = {bool: w.add_bool, int: w.add_uint32, float: w.add_float32, str: w.add_string}
    for key, value in list(metadata(name, tiny).items())[1:]:
        kinds.get(type(value), w.add_array)(key, value)
    for n, array in tensors(name, tiny).items():
        array = _without_ones(np.ascontiguousarray(array, np.float32))
        plain = array.ndim < 2 or PLAIN[0] in n
        if kind.name == "Q8_0":
            plain |= bool(array.shape[-1] % 32) or any(part in n for part in PLAIN)
        chosen = f32 if plain else kind
        w.add_tensor(n, gguf.quants.quantize(array, chosen), raw_dtype=chosen)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def _without_ones(array: NDArray[Any]) -> NDArray[Any]:
    while array.ndim > 1 and array.shape[0] == 1:
        array = array[0]
    return array
