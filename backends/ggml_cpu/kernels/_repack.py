"""Kernels that repack weights from rows to panels at load, for each type that benefits."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import Weight
from ggml_cpu.kernel import Kernel, kernel
from ggml_cpu.kernels._products import get_shape
from ggml_cpu.quants import weights


def _to_panels(weight: Weight) -> Kernel:
    unpack, rows, panel = weight.unpack, weight.rows, weight.panel
    shape = get_shape(weight)
    count_steps, count_panels = shape.count_steps, shape.count_panels

    @kernel(name=f"repack_{weight.type.name}")
    def repack_panels(p, ith, nth):
        """Repack src0 [k, m, n2, n3] from rows into panels in dst."""
        k, m, n2 = v.ne(p, 1, 0), v.ne(p, 1, 1), v.ne(p, 1, 2)
        panels, stride = count_panels(m), v.nb(p, 1, 1)
        start, stop = v.split(panels * n2 * v.ne(p, 1, 3), ith, nth)
        for u in range(start, stop):
            i, row = u // panels, u % panels * rows
            src = v.data(p, 1) + i % n2 * v.nb(p, 1, 2) + i // n2 * v.nb(p, 1, 3) + row * stride
            to = v.data(p, 0) + u * panel(count_steps(k))
            unpack(src, stride, min(rows, m - row), k, to)

    return repack_panels


REPACK: dict[str, Kernel] = {
    name: _to_panels(weight) for name, weight in weights().items() if weight.is_repacked
}
