"""Devices that backends are compared with: the reference, the CPU backend, or the real ggml."""

from __future__ import annotations

from ggml_py.backend import Device, registry


def judge(name: str) -> Device:
    """Return the judge's device; BackendError if it is not available."""
    if name != "ggml":
        return registry.device(name)
    from llama_py_tools.test_backend_ops.judges.device import GgmlDevice

    return GgmlDevice()
