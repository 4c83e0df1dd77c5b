"""Reading of untrusted images: files, bytes, `data:` URLs."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ggml_py._moved import Former
from ggml_py.errors import ModelError
from ggml_py.machine.extras import install_hint
from llama_py.support import child
from llama_py.vision import decode

U8 = npt.NDArray[np.uint8]

MAX_BYTES = 2**28  # limit of a file
SMALL = 2**23  # pixels; an image with more is decoded in another process
SECONDS = 30  # time limit of that process


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """Pixels, u8 [height, width, 3], and a digest that identifies equal images."""

    pixels: U8 = field(repr=False)
    digest: bytes = field(repr=False)

    @classmethod
    def from_pixels(cls, pixels: npt.ArrayLike) -> Image:
        """Make an image of u8 [height, width, 3]. ModelError for another array."""
        found = np.asarray(pixels)
        if found.dtype != np.uint8 or found.ndim != 3 or found.shape[2] != 3 or not found.size:
            raise ModelError(
                f"an image must be u8 [height, width, 3], got {found.dtype} {list(found.shape)}"
            )
        found = np.ascontiguousarray(found)
        digest = hashlib.sha256(repr(found.shape).encode())
        digest.update(found.data)
        return cls(found, digest.digest())

    of = Former("from_pixels")

    @classmethod
    def open(cls, path: str | Path) -> Image:
        """Read a file. ModelError if it is not a readable image."""
        path = Path(path)
        try:
            if not path.is_file():
                raise ModelError(f"{path}: file not found; check the path of the image")
            if path.stat().st_size > MAX_BYTES:
                raise ModelError(
                    f"{path}: file is larger than {MAX_BYTES >> 20} MiB; use a smaller image"
                )
            data = path.read_bytes()
        except OSError as e:
            raise ModelError(f"{path}: cannot be read ({e.strerror}); use another file") from None
        return cls.read(data, str(path))

    @classmethod
    def read(cls, data: bytes, what: str = "the image") -> Image:
        """Read the bytes of a file. ModelError if they are not a readable image."""
        return cls.from_pixels(_decode_image(data, what))

    @classmethod
    def from_url(cls, url: str) -> Image:
        """Read a `data:` URL in base64. ModelError for another."""
        return cls.read(decode_data_url(url))

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the image."""
        height, width, _ = self.pixels.shape
        return width, height


def decode_data_url(url: str) -> bytes:
    """Return the bytes of a `data:` URL in base64. ModelError for another."""
    head, comma, body = url.partition(",")
    if not head.startswith("data:") or not comma or not head.endswith(";base64"):
        raise ModelError(
            f"URL of an image must be data:image/...;base64,..., got {url[:40]!r}; download the "
            "image and send it as data"
        )
    if len(body) > MAX_BYTES:
        raise ModelError(f"image is larger than {MAX_BYTES >> 20} MiB; use a smaller one")
    try:
        return base64.b64decode(body, validate=True)
    except ValueError as e:
        raise ModelError(f"URL of the image is not base64 ({e}); encode the image again") from None


def _decode_image(data: bytes, what: str) -> U8:
    if find_spec("PIL") is None:
        raise ModelError(
            f"reading images needs Pillow, which is not installed; {install_hint('vision')}"
        )
    try:
        small = decode.pixels(data, SMALL)
    except decode.InvalidImage as e:
        raise ModelError(f"{what}: {e}") from None
    if small is not None:
        return small
    # Pillow decodes some formats in one call, which would block all threads of this process.
    try:
        found = child.run([decode.__file__], data, decode.read_output, SECONDS)
    except TimeoutError:
        found = f"takes more than {SECONDS} s to decode; use a smaller image"
    if found is None:
        found = "cannot be decoded; use a smaller image, or free memory"
    if isinstance(found, str):
        raise ModelError(f"{what}: {found}")
    return found
