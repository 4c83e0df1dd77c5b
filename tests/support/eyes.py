"""Tiny models that see, and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import llama_py
from dev import tiny_models as texts
from dev import tiny_vision as tiny
from llama_py.vision import Image

# A text model with recurrent states and positions on axes, for an encoder of such.
HYBRID = ("qwen35", "dense"), "qwen2vl_merger"


def seeing(
    name: str, folder: Path, text: tuple[str, str] | None = None, **options: Any
) -> llama_py.Model:
    """The tiny text model of an encoder, or another, with that encoder."""
    files = files_of(name, folder, text)
    model = llama_py.load(str(files[0]), **options)
    model.load_vision(files[1])
    return model


def files_of(name: str, folder: Path, text: tuple[str, str] | None = None) -> tuple[Path, Path]:
    """The files of both."""
    one = tiny.every()[name]
    return texts.write(*(text or tiny.text_of(one)), folder), tiny.write(name, folder)


def picture(seed: int = 0, size: tuple[int, int] = (50, 40)) -> Image:
    rng = np.random.default_rng(seed)
    return Image.from_pixels(rng.integers(0, 256, (size[1], size[0], 3), np.uint8))
