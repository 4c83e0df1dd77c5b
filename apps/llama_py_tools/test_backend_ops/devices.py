"""Selection of the tested devices by -b. Backends are imported only on lookup."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ggml_py.backend import Device


def find_devices(names: str | None, mode: str = "test") -> list[Device]:
    """Return the devices of all installed backends, or of `names` (such as `cpu,opencl0`).

    In support mode, a backend that lists its supported ops without a device counts as a device.

    Raises:
        BackendError: A name is unknown, or its backend has no device.
    """
    from ggml_py.backend import registry

    if names is None:
        return [d for n in registry.backend_names() for d in _open_devices(n, mode)]
    return [d for name in names.split(",") for d in _find_named(name, mode)]


def _find_named(name: str, mode: str) -> Sequence[Device]:
    """Return all devices of a backend, or one device."""
    from ggml_py.backend import registry
    from ggml_py.errors import BackendError

    if name not in registry.backend_names():
        return [registry.device(name)]
    found = _open_devices(name, mode) if mode == "support" else registry.devices(name)
    if not found:
        raise BackendError(f"backend {name} has no device on this machine")
    return found


def _open_devices(backend: str, mode: str) -> Sequence[Device]:
    """Return a backend's devices; [], with the reason logged, if it fails to load and was not
    named."""
    from ggml_py.backend import registry
    from ggml_py.errors import BackendError

    try:
        if found := registry.devices(backend):
            return found
    except BackendError as e:
        if mode != "support":
            print(f"{backend}: {e}", file=sys.stderr)
    found_absent = registry.absent(backend) if mode == "support" else None
    return [] if found_absent is None else [found_absent]
