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

from dev.record.golden.vision import image
from ggml_py.errors import ModelError
from llama_py.support.stopping import use_stop_check
from llama_py.vision.decode import MAX_PIXELS, MAX_SCANS, MAX_SIDE, SCAN
from llama_py.vision.image import Image
from llama_py.vision.resize import LARGEST, align_size, fit, resize
from llama_py.vision.tiles import best_size, tiles

PIL: Any = pytest.importorskip("PIL.Image")


def png(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    PIL.fromarray(pixels).save(out, kind)
    return out.getvalue()


def header(width: int, height: int, bits: int = 8, raw: bytes = bytes(100)) -> bytes:
    """A PNG of that size in RGB; mostly it has not enough pixels."""
    ihdr = struct.pack(">IIBBBBB", width, height, bits, 2, 0, 0, 0)
    parts = ((b"IHDR", ihdr), (b"IDAT", zlib.compress(raw)), (b"IEND", b""))
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


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_large_images_are_decoded_in_another_process(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal pixels, and equal errors."""
    out, pixels = io.BytesIO(), np.tile(image(70, 50), (2, 3, 1))
    PIL.fromarray(pixels).save(out, kind, lossless=True)
    data = out.getvalue()
    monkeypatch.setattr("llama_py.vision.image.SMALL", 10)
    monkeypatch.setattr("llama_py.vision.decode._rgb", None)  # not called here
    assert (Image.read(data).pixels == pixels).all()
    with pytest.raises(ModelError, match=r"a part: is not a readable image .*; known formats"):
        Image.read(data[: len(data) // 2], "a part")


def test_decoding_ends_with_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llama_py.vision.image.SMALL", 10)
    data, end = png(image(70, 50)), [0, 1]

    def gone() -> None:
        if end.pop():
            raise InterruptedError

    with use_stop_check(gone), pytest.raises(InterruptedError):
        Image.read(data)
    monkeypatch.setattr("llama_py.vision.image.SECONDS", 0)
    with pytest.raises(ModelError, match="more than 0 s to decode"):
        Image.read(data)


def test_what_is_not_red_green_and_blue() -> None:
    grey = image(7, 5)[:, :, 0]
    assert (Image.read(png(grey)).pixels == grey[:, :, None]).all()
    deep = grey.astype(np.uint16) * 256 + 17
    assert (Image.read(png(deep)).pixels == grey[:, :, None]).all()
    middle = b"P5 1 1 65535 \x80\x00"  # of a PPM, too, 16 bits become the highest 8
    assert (Image.read(middle).pixels == 128).all()
    with pytest.raises(ModelError, match="which have no standard value of white"):
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
        (b"", "is not a readable image; known formats"),
        (b"no image at all", "is not a readable image; known formats"),
        (png(image(40, 30))[:600], "is not a readable image"),
        (png(image(40, 30), "JPEG")[:600], "is not a readable image"),
        (b"GIF89a" + bytes(20), "is not a readable image; known formats"),
        (header(8000, 9000), f"more than {MAX_PIXELS}"),
        (header(60000, 60000), "too large"),
        (header(MAX_SIDE + 1, 1), f"a side may have at most {MAX_SIDE}"),
        (header(0, 5), "is not a readable image; known formats"),
        (header(5, 0), "is not a readable image; known formats"),
        (b"P6 99999999999 9 255 ", "is not a readable image"),
        (header(16, 16), "is not a readable image"),
    ],
)
def test_what_is_none_is_one_error(data: bytes, why: str) -> None:
    with pytest.raises(ModelError, match=why):
        Image.read(data)


def passes(n: int) -> bytes:
    """A progressive JPEG whose last pass is there n times more."""
    out = io.BytesIO()
    PIL.fromarray(image(64, 48)).save(out, "JPEG", progressive=True)
    data = out.getvalue()
    last, end = data.rfind(SCAN), data.rfind(b"\xff\xd9")
    return data[:end] + n * data[last:end] + data[end:]


def test_passes_of_a_jpeg_are_bounded() -> None:
    assert Image.read(passes(2)).size == Image.read(passes(MAX_SCANS // 2)).size == (64, 48)
    with pytest.raises(ModelError, match=f"more than {MAX_SCANS} passes"):
        Image.read(passes(MAX_SCANS))


def tiled(side: int) -> bytes:
    """A TIFF of 64 x 64 in one tile, which may be larger."""
    pixels = zlib.compress(bytes(3 * 64 * 64))
    at = 8 + len(pixels)
    tags = (
        (256, 64), (257, 64), (258, at), (259, 8), (262, 2), (277, 3), (284, 1), (322, side),
        (323, side), (324, 8), (325, len(pixels)),
    )  # fmt: skip
    entries = b"".join(
        struct.pack("<HHII", tag, 3, 3, x) if tag == 258 else struct.pack("<HHII", tag, 4, 1, x)
        for tag, x in tags
    )
    start = b"II*\0" + struct.pack("<I", at + 6) + pixels + struct.pack("<HHH", 8, 8, 8)
    return start + struct.pack("<H", len(tags)) + entries + bytes(4)


def test_tiles_of_a_tiff_are_bounded() -> None:
    assert Image.read(tiled(64)).size == (64, 64)
    with pytest.raises(ModelError, match="tiles of 16000 x 16000 pixels"):
        Image.read(tiled(16000))


def other(mode: str, kind: str, **options: Any) -> bytes:
    """A picture in another mode, in blocks, so that a JPEG changes it little."""
    out = io.BytesIO()
    PIL.fromarray(image(4, 3)).resize((64, 48), 0).convert(mode).save(out, kind, **options)
    return out.getvalue()


@pytest.mark.parametrize(
    ("mode", "kind", "near"),
    [
        ("CMYK", "JPEG", 12),
        ("CMYK", "TIFF", 0),
        ("RGB", "WEBP", 60),
        ("RGB", "MPO", 60),
        ("RGBA", "TIFF", 0),
        ("P", "PNG", 51),
        ("P", "GIF", 51),
    ],
)
def test_colours_of_other_files(mode: str, kind: str, near: int) -> None:
    options = {"quality": 95} if kind in ("JPEG", "WEBP", "MPO") else {}
    found = Image.read(other(mode, kind, **options)).pixels.astype(int)
    wanted = np.asarray(PIL.fromarray(image(4, 3)).resize((64, 48), 0)).astype(int)
    assert found.shape == wanted.shape and np.abs(found - wanted).max() <= near


@pytest.mark.parametrize("kind", ["GIF", "PNG", "TIFF", "WEBP"])
def test_of_several_pictures_the_first(kind: str) -> None:
    out = io.BytesIO()
    first, *more = (PIL.fromarray(np.full((5, 7, 3), n, np.uint8)) for n in (50, 100, 200))
    options = {"lossless": True} if kind == "WEBP" else {}
    first.save(out, kind, save_all=True, append_images=more, **options)
    assert (Image.read(out.getvalue()).pixels == 50).all()


def test_what_a_camera_has_noted_turns_nothing() -> None:
    out, noted = io.BytesIO(), PIL.Exif()
    noted[0x112] = 6  # to be turned by a quarter
    PIL.fromarray(image(7, 5)).save(out, "PNG", exif=noted)
    assert (Image.read(out.getvalue()).pixels == image(7, 5)).all()


def test_of_16_bits_the_highest_8() -> None:
    deep = (256 * image(7, 5).astype(np.uint16) + 200).astype(">u2")
    raw = b"".join(b"\0" + row.tobytes() for row in deep)
    data = header(7, 5, 16, raw)
    assert (Image.read(data).pixels == image(7, 5)).all()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="file not found"):
        Image.open(tmp_path)
    with pytest.raises(ModelError, match="cannot be read"):
        Image.open("a" * 5000)


@pytest.mark.parametrize("bad", [np.zeros((2, 2, 4), np.uint8), np.zeros((2, 2, 3)), 3])
def test_other_arrays(bad: Any) -> None:
    with pytest.raises(ModelError, match=r"u8 \[height, width, 3\]"):
        Image.from_pixels(bad)


# Of an image that becomes much lower Pillow does columns first, libmtmd rows.
@pytest.mark.parametrize("size", [(20, 17), (33, 90), (5, 200), (64, 48), (64, 1), (63, 48)])
@pytest.mark.parametrize("how", ["bilinear", "bicubic"])
def test_sizes_are_those_of_pillow(size: tuple[int, int], how: str) -> None:
    source = image(64, 48)
    method = PIL.Resampling[how.upper()]
    expected = np.asarray(PIL.fromarray(source).resize(size, method))
    assert (resize(source, size, how) == expected).all()


def test_no_side_is_endless() -> None:
    with pytest.raises(ModelError, match="sides of the resized image must have at most"):
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
    width, height = align_size(size, 8, 512, 5000)
    assert width % 8 == height % 8 == 0
    assert (width, height) == expected


def test_tiles_of_a_large_image() -> None:
    found = tiles(image(70, 30), 32, 3, "bicubic")
    assert [part.shape for part in found] == [(32, 32, 3)] * 4
    assert (found[-1] == resize(image(70, 30), (32, 32), "bicubic")).all()
    assert len(tiles(image(32, 9), 32, 3, "bicubic")) == 1
    assert best_size((111, 200), [(100, 100), (200, 100), (100, 200), (200, 200)]) == (200, 200)
    assert best_size((400, 100), [(100, 100), (200, 100), (100, 200), (200, 200)]) == (200, 100)
