"""Selection of the tested devices by -b. Backends are imported only on lookup."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ggml_py.backend import Device


def find_devices(name: str | None, mode: str = "test") -> list[Device]:
    """Return all devices of all installed backends, or of one; BackendError if it has none.

    In support mode, a backend that lists its supported ops without a device counts as a device.
    """
    from ggml_py.backend import registry
    from ggml_py.errors import BackendError

    names = registry.backend_names()
    if name is None:
        return [d for n in names for d in _open_devices(n, mode)]
    if name in names:
        found = _open_devices(name, mode) if mode == "support" else registry.devices(name)
        if not found:
            raise BackendError(f"backend {name} has no device on this machine")
        return list(found)
    return [registry.device(name)]


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
