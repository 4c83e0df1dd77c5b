"""Reading of untrusted images: files, bytes, `data:` URLs."""

from __future__ import annotations

import base64
import hashlib
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ggml_py.errors import ModelError
from ggml_py.machine.extras import install_hint

U8 = npt.NDArray[np.uint8]

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
MAX_PIXELS = 2**26  # limit of a decoded image
MAX_BYTES = 2**28  # limit of its file
MAX_SIDE = 65536  # pixels; longer rows take long to resize
MAX_SCANS = 500  # passes over a whole JPEG, possibly of a few bytes each; up to 10 are usual
SCAN = b"\xff\xda"  # a marker, unique within a pass
TILE = 322, 323  # tags of TIFF: the width and height of its tiles


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """Pixels, u8 [height, width, 3], and a digest that identifies equal images."""

    pixels: U8 = field(repr=False)
    digest: bytes = field(repr=False)

    @classmethod
    def of(cls, pixels: npt.ArrayLike) -> Image:
        """Make an image of u8 [height, width, 3]. ModelError for another array."""
        found = np.asarray(pixels)
        if found.dtype != np.uint8 or found.ndim != 3 or found.shape[2] != 3 or not found.size:
            raise ModelError(
                f"an image is u8 [height, width, 3], got {found.dtype} {list(found.shape)}"
            )
        found = np.ascontiguousarray(found)
        digest = hashlib.sha256(repr(found.shape).encode())
        digest.update(found.data)
        return cls(found, digest.digest())

    @classmethod
    def open(cls, path: str | Path) -> Image:
        """Read a file. ModelError if it is not a readable image."""
        path = Path(path)
        try:
            if not path.is_file():
                raise ModelError(f"{path}: there is no such file; give the path of an image")
            if path.stat().st_size > MAX_BYTES:
                raise ModelError(
                    f"{path}: is larger than {MAX_BYTES >> 20} MiB; give a smaller image"
                )
            data = path.read_bytes()
        except OSError as e:
            raise ModelError(f"{path}: cannot be read ({e.strerror}); give another file") from None
        return cls.read(data, str(path))

    @classmethod
    def read(cls, data: bytes, what: str = "the image") -> Image:
        """Read the bytes of a file. ModelError if they are not a readable image."""
        return cls.of(_decoded(data, what))

    @classmethod
    def from_url(cls, url: str) -> Image:
        """Read a `data:` URL in base64. ModelError for another."""
        return cls.read(bytes_of(url))

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the image."""
        height, width, _ = self.pixels.shape
        return width, height


def bytes_of(url: str) -> bytes:
    """Return the bytes of a `data:` URL in base64. ModelError for another."""
    head, comma, body = url.partition(",")
    if not head.startswith("data:") or not comma or not head.endswith(";base64"):
        raise ModelError(
            f"an image's URL is data:image/...;base64,..., got {url[:40]!r}; nothing is fetched"
        )
    if len(body) > MAX_BYTES:
        raise ModelError(f"the image is larger than {MAX_BYTES >> 20} MiB; give a smaller one")
    try:
        return base64.b64decode(body, validate=True)
    except ValueError as e:
        raise ModelError(f"the image's URL is no base64 ({e})") from None


def _decoded(data: bytes, what: str) -> U8:
    try:
        from PIL import Image as Pillow
        from PIL import UnidentifiedImageError
    except ImportError:
        raise ModelError(
            f"reading images needs Pillow, which is not installed; {install_hint('vision')}"
        ) from None
    try:
        with Pillow.open(io.BytesIO(data), formats=FORMATS) as found:
            _check(found, data, what)
            return _rgb(found)
    except UnidentifiedImageError:
        raise ModelError(
            f"{what}: cannot be read as an image; known are {', '.join(FORMATS)}"
        ) from None
    except ModelError:
        raise
    except Pillow.DecompressionBombError as e:
        raise ModelError(f"{what}: is too large an image ({e}); give a smaller one") from None
    except Exception as e:  # a decoder can raise anything
        raise ModelError(
            f"{what}: cannot be read as an image ({e}); known are {', '.join(FORMATS)}"
        ) from None


def _check(found: Any, data: bytes, what: str) -> None:
    """Raise ModelError if decoding would take too much memory or time, by the image's header."""
    width, height = found.size
    if width * height > MAX_PIXELS:
        raise ModelError(
            f"{what}: has {width} x {height} pixels, more than {MAX_PIXELS}; give a smaller image"
        )
    if max(width, height) > MAX_SIDE:
        raise ModelError(
            f"{what}: has {width} x {height} pixels, of which no side may have more than"
            f" {MAX_SIDE}; give a part of it"
        )
    if found.format in ("JPEG", "MPO") and data.count(SCAN) > MAX_SCANS:
        raise ModelError(
            f"{what}: is decoded in more than {MAX_SCANS} passes; save it as a JPEG that is not"
            " progressive"
        )
    tile = [int(found.tag_v2.get(tag, 1)) for tag in TILE if found.format == "TIFF"]
    if tile and tile[0] * tile[1] > MAX_PIXELS:
        raise ModelError(
            f"{what}: has tiles of {tile[0]} x {tile[1]} pixels, more than {MAX_PIXELS}; save it"
            " as another format"
        )


def _rgb(found: Any) -> U8:
    """Return pixels without transparency; from more than 8 bits, the highest 8."""
    # Pillow stores the 16 bits of a PPM, and in some versions of a PNG, in 32.
    if found.mode.startswith("I;16") or (found.mode == "I" and found.format in ("PNG", "PPM")):
        grey = (np.asarray(found).astype(np.uint16) >> 8).astype(np.uint8)
        rgb = np.empty((*grey.shape, 3), np.uint8)
        rgb[...] = grey[:, :, None]  # releases the GIL, unlike np.repeat
        return rgb
    if found.mode in ("I", "F"):
        raise ValueError("its pixels have 32 bits, and nothing says which number is white")
    return np.asarray(found if found.mode == "RGB" else found.convert("RGB"), np.uint8)
