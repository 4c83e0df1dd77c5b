"""Tests of the OpenCL backend run where there is a device: `pip install '.[pocl]'`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.installed import devices_or_skip


@pytest.fixture(scope="session")
def device() -> Any:
    """The first one. Splits are counted without the weights that a GPU has copied for a batch."""
    found = devices_or_skip("opencl")[0]
    found.kind = "accel"
    return found


@pytest.fixture(scope="session")
def again(device: Any) -> Any:
    """The first device opened again, with memory of its own: once, for it builds its kernels."""
    return device.reopen("opencl0.2")


WAYS = ["opened twice", "partitioned"]  # to have two devices


@pytest.fixture(scope="session", params=WAYS)
def two(request: pytest.FixtureRequest, device: Any, again: Any) -> tuple[Any, Any]:
    """Two devices with memory of their own, where there is hardware for one: halves of it, if it
    can be cut in two.
    """
    import pyopencl as cl

    from ggml_opencl.backend import OpenCLDevice

    whole = device.queue.device
    n = whole.max_compute_units // 2
    equally = cl.device_partition_property.EQUALLY  # a GPU may list no way at all, or a 0
    if request.param == "opened twice" or n == 0 or equally not in whole.partition_properties:
        return device, again
    first, second = whole.create_sub_devices([equally, n])[:2]
    return OpenCLDevice("opencl0a", first), OpenCLDevice("opencl0b", second)
