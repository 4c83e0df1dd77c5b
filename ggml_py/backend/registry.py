"""Backends by entry point: listed without importing them, loaded on use, failures reported by
name.

Scanning all installed packages takes 20 ms at startup. A backend x avoids it by a module
`ggml_x.backend` with a function `devices`, which is also its entry point.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ggml_py.backend.device import Device
from ggml_py.errors import BackendError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "ggml_py.backends"
Load = Callable[[], Callable[[], Sequence[Device]]]

opened: dict[str, tuple[Device, ...]] = {}  # devices in use, by backend


@cache
def _entry_points() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    found: dict[str, EntryPoint] = {}
    for ep in entry_points(group=GROUP):
        if ep.name in found and found[ep.name].value != ep.value:
            raise BackendError(
                f"backend {ep.name!r} is provided by two packages, {found[ep.name].value} and "
                f"{ep.value}; uninstall one"
            )
        found[ep.name] = ep
    return found


def backend_names() -> list[str]:
    """Return the names of the installed backends, without importing them."""
    return sorted(_entry_points())


def devices(backend: str) -> tuple[Device, ...]:
    """Return the devices of one backend, always the same objects.

    Raises:
        BackendError: The backend is not installed, or fails to load.
    """
    if backend in opened:
        return opened[backend]
    where, load = _entry(backend)
    try:
        return opened.setdefault(backend, tuple(load()()))
    except BackendError:
        raise
    except Exception as e:  # report the broken plug-in for any error
        raise BackendError(f"backend {backend!r} ({where}) failed to load: {e}") from e


def _entry(backend: str) -> tuple[str, Load]:
    """Return the location and loader of the function that returns a backend's devices."""
    package = f"ggml_{backend}"
    if _has_devices(package):
        return f"{package}.backend:devices", lambda: import_module(f"{package}.backend").devices
    ep = _entry_points().get(backend)
    if ep is None:
        raise BackendError(
            f"unknown backend {backend!r}; installed: {', '.join(backend_names()) or 'none'}; "
            f"{gpu_hint()}"
        )
    return ep.value, ep.load


def _has_devices(package: str) -> bool:
    """Return True if there is a package with a module `backend`, without importing it."""
    spec = find_spec(package) if package.isidentifier() else None
    inside = None if spec is None else spec.submodule_search_locations
    return inside is not None and PathFinder.find_spec(f"{package}.backend", inside) is not None


def _backend_name(name: str) -> str:
    """Return a device's backend: the name without trailing digits, unless a backend has that very
    name."""
    short = name.rstrip("0123456789")
    if short == name or _has_devices(f"ggml_{short}"):
        return short
    return name if name in _entry_points() else short


def device(name: str) -> Device:
    """Return a device by name (`cpu`, `ref`, `opencl0`, ...): its backend is the name without
    trailing digits."""
    found = devices(_backend_name(name))
    for d in found:
        if name in (d.name, d.name.rstrip("0123456789")):
            return d
    raise BackendError(
        f"unknown device {name!r}; known: {', '.join(d.name for d in found) or 'none'}"
    )


def gpu_hint() -> str:
    """Return how to make GPUs usable, for errors about devices that no backend has."""
    from ggml_py.machine.extras import install_hint

    return f"GPUs are opencl0, ...: {install_hint('opencl')}, with the GPU's OpenCL driver"


def absent(name: str) -> Device | None:
    """Return a placeholder for a device that this machine lacks, such as `opencl1`. It cannot
    compute. The backend's function `absent` makes it; None if that function does not exist or its
    import fails.
    """
    ep = _entry_points().get(name.rstrip("0123456789"))
    try:
        entry = ep.load() if ep is not None else None
    except Exception:  # any error of a broken plug-in
        return None
    make = getattr(sys.modules.get(getattr(entry, "__module__", "")), "absent", None)
    made: Device | None = make(name) if make is not None else None
    return made


def refresh() -> None:
    """Search for backends again, after a package was installed; keep the devices in use."""
    _entry_points.cache_clear()
