"""Roofline of llama-py-bench --roofline: time of a test by op, compared with the device's limits.

The two limits are measured on the device: bytes/s of a GEMV with a matrix larger than all
caches, and flops/s of a compute-bound GEMM. A node cannot be faster than its bytes
or its flops at these rates; the last column is that minimum time divided by the measured time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from ggml_py.backend import CompileOptions, Device, HasBarrierStats, KernelTime, Profiles
from ggml_py.errors import BackendError
from ggml_py.ops import mul_mat
from ggml_py.ops.traffic import count_bytes, dense_bytes, flops
from ggml_py.tensor import FLAG_WEIGHT, Tensor
from ggml_py.types import BY_NAME, F32

if TYPE_CHECKING:
    from llama_py import Context, Model
    from llama_py.loading.model import LoadedModel

STREAM = 16384, 16384  # shape in q8_0: 272 MiB, larger than all caches
ARITHMETIC = 4096, 1024, 512  # k, rows, columns of a GEMM
RUNS = 5


@dataclass(slots=True)
class RooflineRow:
    """Nodes of one kind in one run: seconds, bytes that they read and write, flops."""

    what: str
    n_nodes: int = 0
    seconds: float = 0.0
    nbytes: float = 0.0
    flops: float = 0.0


@dataclass(frozen=True, slots=True)
class Roofline:
    """Bytes and flops a second."""

    bandwidth: float
    flops: float

    def min_seconds(self, nbytes: float, flops: float) -> float:
        """Return the minimum seconds for this number of bytes and FLOPs."""
        return max(nbytes / self.bandwidth, flops / self.flops)

    def seconds(self, row: RooflineRow) -> float:
        """Return the minimum seconds of a row."""
        return self.min_seconds(row.nbytes, row.flops)


def limits(device: Device, type_name: str) -> Roofline:
    """Measure the limits of a device; type_name: of the weights used to measure FLOP/s."""
    k, m = STREAM
    stream = _product(device, "q8_0", k, m, 1)
    k, m, n = ARITHMETIC
    kind = type_name if BY_NAME[type_name].block_size <= k else "f32"
    most = 2.0 * k * m * n / _product(device, kind, k, m, n)
    weight = Tensor(BY_NAME["q8_0"], STREAM)
    return Roofline(dense_bytes(weight) / stream, most)


def _product(device: Device, type_name: str, k: int, m: int, n: int) -> float:
    """Return median seconds of zeros [k, m] times [k, n]; values do not affect the time."""
    weight, x = Tensor(BY_NAME[type_name], (k, m)), Tensor(F32, (k, n))
    weight.flags |= FLAG_WEIGHT
    y = mul_mat(weight, x)
    for t in (weight, x, y):
        t.buffer = device.alloc(t.nbytes)
    device.prepare_weight(weight, ["MUL_MAT"])
    program = device.compile([y], CompileOptions())
    return median(_kernel_seconds(device, program.run) for _ in range(RUNS + 1))


def _kernel_seconds(device: Device, run: Callable[[], None]) -> float:
    return sum(t.end - t.start for t in _record(device, run)) / 1e9


def _record(device: Device, run: Callable[[], None]) -> list[KernelTime]:
    if not isinstance(device, Profiles):
        raise BackendError(f"{device.name} does not measure kernel times; use cpu or opencl")
    with device.profiling() as times:
        run()
    return times


def rows(times: Iterable[KernelTime]) -> list[RooflineRow]:
    """Sum times by op and type of the first source, the slowest first. A node's preparing kernels
    count to it; all of a fused step counts to its last node."""
    found: dict[str, RooflineRow] = {}
    last: Tensor | None = None
    for t in times:
        source = next((s for s in t.node.src if s is not None), t.node)
        what = f"{t.node.op} {source.type.name}"
        row = found.setdefault(what, RooflineRow(what))
        row.seconds += (t.end - t.start) / 1e9
        if t.node is not last:
            row.n_nodes += 1
            row.nbytes += count_bytes(t.node)
            row.flops += flops(t.node)
        last = t.node
    return sorted(found.values(), key=lambda row: -row.seconds)


def waits(ctx: Context) -> str:
    """Return a report of the waits of threads in the last graph."""
    _, plan = ctx.runner.graphs[0]
    lines, n_layer = [], ctx.model.hparams.n_layer
    for split in plan.splits:
        program = split.program
        if isinstance(program, HasBarrierStats) and program.n_barriers:
            n, us = program.n_barriers, program.barrier_seconds() * 1e6
            lines.append(
                f"{split.device.name}: {n} barriers in the last graph, {n / n_layer:.1f} per "
                f"layer, of at least {us:.2f} us each"
            )
    return "\n".join(lines)


def measure(model: Model, begin: Callable[[], None], run: Callable[[], None]) -> str:
    """Return tables of a run for each of a model's busy devices, one run each."""
    tables = []
    for device in model.devices:
        begin()
        found = rows(_record(device, run))
        if found:
            tables.append(table(device.name, found, limits(device, common_type(model))))
    return "\n\n".join(tables)


def common_type(model: LoadedModel) -> str:
    """Return the most frequent type of the weights."""
    types = [t.type.name for t in model.file.tensors.values() if len(t.ne) > 1]
    return max(dict.fromkeys(types), key=types.count)


def table(name: str, found: Sequence[RooflineRow], most: Roofline) -> str:
    total = sum(row.seconds for row in found)
    least = sum(map(most.seconds, found))
    lines = [
        f"{name}: {total * 1000.0:.2f} ms in kernels, limit {least * 1000.0:.2f} ms by memory "
        f"accesses and operations ({most.bandwidth / 1000000000.0:.1f} GB/s, "
        f"{most.flops / 1000000000.0:.0f} GFLOP/s)",
        "",
        "| op | nodes | ms | of all | GB/s | GFLOP/s | of the limit |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in found:
        seconds = max(row.seconds, 1e-9)
        cells = [
            row.what,
            f"{row.n_nodes}",
            f"{row.seconds * 1e3:.3f}",
            f"{row.seconds / total:.1%}",
            f"{row.nbytes / seconds / 1e9:.1f}",
            f"{row.flops / seconds / 1e9:.1f}" if row.flops else "",
            f"{most.seconds(row) / seconds:.0%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
