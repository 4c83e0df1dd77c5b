"""Tests of the OpenCL backend run where there is a device: `pip install 'llama-py[pocl]'`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.installed import devices_or_skip


@pytest.fixture(scope="session")
def device() -> Any:
    return devices_or_skip("opencl")[0]


@pytest.fixture(scope="session", params=["opened twice", "partitioned"])
def two(request: pytest.FixtureRequest, device: Any) -> tuple[Any, Any]:
    """Two devices with memory of their own, where there is hardware for one."""
    import pyopencl as cl

    from ggml_opencl.backend import OpenCLDevice

    if request.param == "opened twice":
        return device, device.again("opencl0.2")
    whole = device.queue.device
    if whole.max_compute_units < 2 or not whole.partition_properties:
        pytest.skip(f"{device.description} cannot be partitioned")
    halves = [cl.device_partition_property.EQUALLY, whole.max_compute_units // 2]
    first, second = whole.create_sub_devices(halves)[:2]
    return OpenCLDevice("opencl0a", first), OpenCLDevice("opencl0b", second)
