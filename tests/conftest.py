"""A run of the whole suite compiles all kernels first, in parallel, instead of one by one."""

from __future__ import annotations

import pytest

MANY = 1000  # tests; a few of them need a few kernels only


@pytest.fixture(scope="session", autouse=True)
def kernels(request: pytest.FixtureRequest) -> None:
    if len(request.session.items) < MANY:
        return
    import ggml_cpu.repack  # noqa: F401  (declares kernels)
    from ggml_cpu.fused import fusions
    from ggml_cpu.kernel import REGISTRY
    from ggml_cpu.objcache import load_kernels
    from ggml_cpu.table import table

    table(), fusions()
    ours = [k for k in REGISTRY.kernels.values() if k.module.startswith("ggml_cpu.")]
    load_kernels(ours)
