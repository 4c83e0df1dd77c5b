"""Decoding of untrusted images by Pillow, within limits of size and time.

The file is also the program of the process that decodes large images, so it imports no other of
this package.
"""

from __future__ import annotations

import io
import struct
import sys
from typing import IO, Any

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
MAX_PIXELS = 2**26  # limit of a decoded image
MAX_SIDE = 65536  # pixels; longer rows take long to resize
MAX_SCANS = 500  # passes over a whole JPEG, possibly of a few bytes each; up to 10 are usual
SCAN = b"\xff\xda"  # a marker, unique within a pass
TILE = 322, 323  # tags of TIFF: the width and height of its tiles
HEIGHT_WIDTH = struct.Struct("<II")  # of the pixels that follow in the output of the program


class InvalidImage(ValueError):
    """The data are no readable image; the message continues a line that begins with its name."""


def pixels(data: bytes, most: int = MAX_PIXELS) -> U8 | None:
    """Return u8 [height, width, 3] without transparency; from more than 8 bits, the highest 8.

    Args:
        data: Bytes of a file.
        most: Number of pixels to decode; for a larger image the result is None.

    Raises:
        Refused: The data are no readable image, or decoding takes too much memory or time.
    """
    with _ImageOpener(data) as found:
        _check(found, data)
        return _rgb(found) if found.width * found.height <= most else None


class _ImageOpener:
    """Opens an image; all that a decoder raises inside the block becomes Refused."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __enter__(self) -> Any:
        from PIL import Image

        try:
            self.image = Image.open(io.BytesIO(self.data), formats=FORMATS)
        except Exception as e:  # a decoder can raise anything
            raise self._refusal(e) from None
        return self.image

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.image.close()
        if isinstance(error, Exception) and not isinstance(error, InvalidImage):
            raise self._refusal(error) from None

    def _refusal(self, error: Exception) -> InvalidImage:
        from PIL import Image, UnidentifiedImageError

        if isinstance(error, Image.DecompressionBombError):
            return InvalidImage(f"is too large ({error}); use a smaller image")
        why = "" if isinstance(error, UnidentifiedImageError) else f" ({error})"
        return InvalidImage(f"is not a readable image{why}; known formats: {', '.join(FORMATS)}")


def _check(found: Any, data: bytes) -> None:
    """Raise Refused if decoding would take too much memory or time, by the image's header."""
    width, height = found.size
    size = f"has {width} x {height} pixels"
    if width * height > MAX_PIXELS:
        raise InvalidImage(f"{size}, more than {MAX_PIXELS}; use a smaller image")
    if max(width, height) > MAX_SIDE:
        raise InvalidImage(f"{size}; a side may have at most {MAX_SIDE}; crop the image")
    if found.format in ("JPEG", "MPO") and data.count(SCAN) > MAX_SCANS:
        raise InvalidImage(
            f"is decoded in more than {MAX_SCANS} passes; save it as a JPEG that is not progressive"
        )
    tile = [int(found.tag_v2.get(tag, 1)) for tag in TILE if found.format == "TIFF"]
    if tile and tile[0] * tile[1] > MAX_PIXELS:
        raise InvalidImage(
            f"has tiles of {tile[0]} x {tile[1]} pixels, more than {MAX_PIXELS}; save it as"
            " another format"
        )


def _rgb(found: Any) -> U8:
    # Pillow stores the 16 bits of a PPM, and in some versions of a PNG, in 32.
    if found.mode.startswith("I;16") or (found.mode == "I" and found.format in ("PNG", "PPM")):
        grey = (np.asarray(found).astype(np.uint16) >> 8).astype(np.uint8)
        rgb = np.empty((*grey.shape, 3), np.uint8)
        rgb[...] = grey[:, :, None]  # releases the GIL, unlike np.repeat
        return rgb
    if found.mode in ("I", "F"):
        raise ValueError(
            "32 bits per pixel and color, which have no standard value of white; use 8 or 16"
        )
    return np.asarray(found if found.mode == "RGB" else found.convert("RGB"), np.uint8)


def read_output(output: IO[bytes]) -> U8 | str:
    """Return the pixels, or the reason of the refusal, from the output of the program."""
    if output.read(1) != b"=":
        return output.read().decode()
    found = np.empty((*HEIGHT_WIDTH.unpack(output.read(HEIGHT_WIDTH.size)), 3), np.uint8)
    left = found.reshape(-1).data
    while left:
        left = left[output.readinto(left) :]  # type: ignore[attr-defined]  # a buffered reader
    return found


def _main() -> None:
    data, out = sys.stdin.buffer.read(), sys.stdout.buffer
    try:
        found = pixels(data)
        assert found is not None  # _check refuses more than MAX_PIXELS
        found = np.ascontiguousarray(found)
    except InvalidImage as e:
        out.write(b"!" + str(e).encode())
    else:
        out.write(b"=" + HEIGHT_WIDTH.pack(*found.shape[:2]))
        out.write(found.data)


if __name__ == "__main__":
    sys.path[:] = sys.argv[1:]
    _main()
