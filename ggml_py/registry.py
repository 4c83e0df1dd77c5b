"""Backends by entry point: listed without importing them, loaded on use, failures reported by
name.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from ggml_py.backend import Device
from ggml_py.errors import BackendError

GROUP = "ggml_py.backends"


@cache
def _entry_points() -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for ep in entry_points(group=GROUP):
        if ep.name in found and found[ep.name].value != ep.value:
            raise BackendError(
                f"two packages provide the backend {ep.name!r}: {found[ep.name].value}, {ep.value}"
            )
        found[ep.name] = ep
    return found


def backend_names() -> list[str]:
    """Names of the installed backends; nothing is imported."""
    return sorted(_entry_points())


@cache
def devices(backend: str) -> tuple[Device, ...]:
    """Devices of one backend; BackendError if it is not installed or fails to load."""
    ep = _entry_points().get(backend)
    if ep is None:
        raise BackendError(
            f"no backend named {backend!r}; installed: {', '.join(backend_names()) or 'none'}"
        )
    try:
        return tuple(ep.load()())
    except BackendError:
        raise
    except Exception as e:  # a broken plug-in must be named, whatever it raises
        raise BackendError(f"backend {backend!r} ({ep.value}) failed to load: {e}") from e


def device(name: str) -> Device:
    """A device by its name (`cpu`, `ref`, `opencl0`, ...): its backend is the name without trailing
    digits.
    """
    for d in devices(name if name in _entry_points() else name.rstrip("0123456789")):
        if name in (d.name, d.name.rstrip("0123456789")):
            return d
    raise BackendError(
        f"no device named {name!r}; installed backends: {', '.join(backend_names())}"
    )


def absent(name: str) -> Device | None:
    """What stands for a device that is not on this machine, such as `opencl1`: it answers, and
    computes nothing. Made by the function `absent` beside the backend's entry point; None if there
    is no such function, or it cannot be imported.
    """
    ep = _entry_points().get(name.rstrip("0123456789"))
    try:
        entry = ep.load() if ep is not None else None
    except Exception:  # whatever a broken plug-in raises
        return None
    make = getattr(sys.modules.get(getattr(entry, "__module__", "")), "absent", None)
    made: Device | None = make(name) if make is not None else None
    return made


def refresh() -> None:
    """Forget what was found, e.g. after a package was installed."""
    _entry_points.cache_clear()
    devices.cache_clear()
