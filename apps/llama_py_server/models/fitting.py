"""Check that a model fits the remaining ranks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ggml_py.errors import ModelError

if TYPE_CHECKING:
    from ggml_py.backend import Device


def check_fits(path: str, devices: Iterable[Device]) -> None:
    """Raise ModelError for a file larger than the free memory of all machines: every token would
    read it from disk."""
    free: dict[str, int] = {}
    for device in devices:
        about = getattr(device, "about", None)
        host = about.host if about is not None else ""  # ranks of a machine share its memory
        free[host] = max(free.get(host, 0), device.memory()[0])
    size, has = Path(path).stat().st_size, sum(free.values())
    if size > has:
        raise ModelError(
            f"{path} has {size / 2**30:.2f} GiB, but the {len(free)} remaining machines have "
            f"{has / 2**30:.2f} GiB free; use more ranks or a smaller model"
        )
