"""Images are read, refused and brought to size."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ggml_py.errors import ModelError
from golden.vision import image
from llama_py.vision.image import MAX_PIXELS, Image
from llama_py.vision.resize import LARGEST, aligned, fit, resize
from llama_py.vision.tiles import best_size, tiles

PIL: Any = pytest.importorskip("PIL.Image")


def png(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    PIL.fromarray(pixels).save(out, kind)
    return out.getvalue()


def header(width: int, height: int) -> bytes:
    """A PNG that says to be large and has next to nothing."""
    ihdr = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", ihdr), (b"IDAT", zlib.compress(bytes(100))), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    )


@pytest.mark.parametrize("kind", ["PNG", "BMP", "PPM", "TIFF"])
def test_files_are_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "picture"
    path.write_bytes(png(image(7, 5), kind))
    assert (Image.open(path).pixels == image(7, 5)).all()
    assert Image.open(path).size == (7, 5)


def test_what_is_not_red_green_and_blue() -> None:
    grey = image(7, 5)[:, :, 0]
    assert (Image.read(png(grey)).pixels == grey[:, :, None]).all()
    deep = grey.astype(np.uint16) * 256 + 17
    assert (Image.read(png(deep)).pixels == grey[:, :, None]).all()
    middle = b"P5 1 1 65535 \x80\x00"  # of a PPM, too, 16 bits become the highest 8
    assert (Image.read(middle).pixels == 128).all()
    with pytest.raises(ModelError, match="which number is white"):
        Image.read(png(grey.astype(np.float32), "TIFF"))
    alpha = np.concatenate([image(7, 5), np.zeros((5, 7, 1), np.uint8)], 2)
    assert (Image.read(png(alpha)).pixels == image(7, 5)).all()


def test_urls() -> None:
    data = png(image(7, 5))
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    assert Image.from_url(url).digest == Image.read(data).digest
    start = "data:image/png"
    for bad in ("http://x/y", f"{start},abc", f"{start};base64,!", f"{start};base64,é", "a", ""):
        with pytest.raises(ModelError):
            Image.from_url(bad)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "cannot be read"),
        (b"no image at all", "cannot be read"),
        (png(image(40, 30))[:600], "cannot be read"),
        (b"GIF89a" + bytes(20), "cannot be read"),
        (header(8000, 9000), f"more than {MAX_PIXELS}"),
        (header(60000, 60000), "too large"),
        (header(16, 16), "cannot be read"),
    ],
)
def test_what_is_none_is_one_error(data: bytes, why: str) -> None:
    with pytest.raises(ModelError, match=why):
        Image.read(data)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file"):
        Image.open(tmp_path)
    with pytest.raises(ModelError, match="cannot be read"):
        Image.open("a" * 5000)


@pytest.mark.parametrize("bad", [np.zeros((2, 2, 4), np.uint8), np.zeros((2, 2, 3)), 3])
def test_other_arrays(bad: Any) -> None:
    with pytest.raises(ModelError, match=r"u8 \[height, width, 3\]"):
        Image.of(bad)


# Of an image that becomes much lower Pillow does columns first, libmtmd rows.
@pytest.mark.parametrize("size", [(20, 17), (33, 90), (5, 200), (64, 48), (64, 1), (63, 48)])
@pytest.mark.parametrize("how", ["bilinear", "bicubic"])
def test_sizes_are_those_of_pillow(size: tuple[int, int], how: str) -> None:
    source = image(64, 48)
    method = PIL.Resampling[how.upper()]
    expected = np.asarray(PIL.fromarray(source).resize(size, method))
    assert (resize(source, size, how) == expected).all()


def test_no_side_is_endless() -> None:
    with pytest.raises(ModelError, match="no side may have more"):
        resize(image(2, 2), (LARGEST + 1, 2), "bilinear")


def test_the_rest_has_a_colour() -> None:
    found = fit(image(20, 10), (8, 8), "bilinear", (9, 8, 7))
    assert (found[[0, 1, 6, 7]] == (9, 8, 7)).all()
    assert (found[2:6] == resize(image(20, 10), (8, 4), "bilinear")).all()


@pytest.mark.parametrize(
    ("size", "expected"),
    [((100, 50), (104, 48)), ((1, 1), (24, 24)), ((1000, 10), (704, 8)), ((500, 500), (64, 64))],
)
def test_sides_are_multiples(size: tuple[int, int], expected: tuple[int, int]) -> None:
    width, height = aligned(size, 8, 512, 5000)
    assert width % 8 == height % 8 == 0
    assert (width, height) == expected


def test_tiles_of_a_large_image() -> None:
    found = tiles(image(70, 30), 32, 3, "bicubic")
    assert [part.shape for part in found] == [(32, 32, 3)] * 4
    assert (found[-1] == resize(image(70, 30), (32, 32), "bicubic")).all()
    assert len(tiles(image(32, 9), 32, 3, "bicubic")) == 1
    assert best_size((111, 200), [(100, 100), (200, 100), (100, 200), (200, 200)]) == (200, 200)
    assert best_size((400, 100), [(100, 100), (200, 100), (100, 200), (200, 200)]) == (200, 100)
