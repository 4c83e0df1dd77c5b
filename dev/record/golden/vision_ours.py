"""Our results for the same images, and their distance from the recording."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import llama_py
from dev.record.golden.engines import N_BATCH, N_SEQ
from dev.record.golden.vision import TEXTS, Chunk, image, images_of, key, plain, recorded
from dev.tiny_vision import every
from ggml_py.inspection.dump import Record, records
from llama_py.vision import Image, ImageEncoder
from llama_py.vision.prompt import ImagePrompt, Picture

Floats = NDArray[np.float32]


def rows(mmproj: Path, size: tuple[int, int], flash: bool, device: str = "cpu") -> list[Floats]:
    """Return the rows of each part of an image."""
    with ImageEncoder(mmproj, device, flash_attn=flash) as eyes:
        return eyes.encode(Image.from_pixels(image(*size)))


def nodes(mmproj: Path, size: tuple[int, int], flash: bool) -> list[Record]:
    """Return the nodes of the graphs of all parts of an image."""
    with ImageEncoder(mmproj, "null", flash_attn=flash) as eyes:
        parts = eyes.parts(Image.from_pixels(image(*size)))
        return [plain(r) for part in parts for r in records(eyes.graph(*part.size).gf)]


def prompt(model: llama_py.Model, text: str, images: Sequence[Any]) -> ImagePrompt:
    return model.build_image_prompt(text, [Image.from_pixels(one) for one in images])


def chunks(given: ImagePrompt) -> list[Chunk]:
    """Return the chunks in the form of libmtmd."""
    return [
        {"n_tokens": c.n_tokens, "nx": c.columns, "ny": c.rows} if isinstance(c, Picture) else c
        for c in given.chunks
    ]


def logits(model: llama_py.Model, given: ImagePrompt, n: int = 3) -> Floats:
    """Return the same logits as `RealEyes.logits`."""
    ctx = model.context(
        n_ctx=N_SEQ, n_batch=N_BATCH, n_ubatch=N_BATCH, flash_attn=False, type_k="f32", type_v="f32"
    )
    return np.concatenate([given.read(ctx), *(ctx.decode([3 + i]) for i in range(n - 1))])


def nmse(expected: NDArray[Any], got: NDArray[Any]) -> float:
    return float(np.square(expected - got).sum() / np.square(expected).sum())


def compare(name: str, text: Path, mmproj: Path) -> Iterator[str]:
    """Yield lines with the distances of our results from the recording."""
    tiny, (about, arrays) = every()[name], recorded(name)
    for size in tiny.sizes:
        for flash in (False, True):
            k = key(size, flash)
            found = rows(mmproj, size, flash)
            far = max(nmse(arrays[f"{k}.{i}"], part) for i, part in enumerate(found))
            same = nodes(mmproj, size, flash) == about["nodes"][k]
            n = len(about["nodes"][k])
            yield f"{name} {k}: rows {far:.1e}, {n} nodes {'the same' if same else 'DIFFER'}"
    model = llama_py.load(str(text))
    model.load_vision(mmproj, flash_attn=False)
    for i, t in enumerate(TEXTS):
        given = prompt(model, t, images_of(tiny, t.count("<__media__>")))
        same = chunks(given) == about["chunks"][i]
        expected = arrays[f"logits.{i}"]
        far = max(nmse(a, b) for a, b in zip(expected, logits(model, given), strict=True))
        yield f"{name} text {i}: logits {far:.1e}, chunks {'the same' if same else 'DIFFER'}"
