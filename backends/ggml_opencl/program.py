"""Programs from launches: kernels are built once per device, and arguments are bound once."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ggml_opencl.buffers import OpenCLBuffer, raise_device_error
from ggml_opencl.faults import Faults
from ggml_opencl.kernels import source
from ggml_opencl.profiler import BoundKernel, Profiler
from ggml_opencl.signatures import remember, set_arguments
from ggml_opencl.table import WG, Launch, table
from ggml_py.backend import CompileOptions, Work
from ggml_py.errors import BackendError
from ggml_py.fusion import FusedNodes
from ggml_py.machine import building
from ggml_py.machine.building import BuildStage
from ggml_py.machine.extras import install_hint
from ggml_py.tensor import Tensor

if TYPE_CHECKING:
    import pyopencl as cl

TENSOR = struct.Struct("<4i4qq")  # tensor_t of _common.cl: ne, nb, offset
OPTIONS = ("-cl-std=CL1.2",)
OLD_POCL = (
    "; this PoCL is older than the CPU and does not know it; install your system's PoCL (apt-get "
    "install pocl-opencl-icd) or Intel's ({}), and select it with OCL_ICD_VENDORS"
)

ProgramKey = tuple[str, tuple[str, ...], tuple[tuple[str, int], ...], str]


class OpenCLProgram:
    """Kernel runs in order, on one in-order queue.

    scratch: memory between the runs; kernel arguments do not keep memory alive.
    """

    def __init__(
        self,
        profiler: Profiler,
        runs: list[BoundKernel],
        checking: Faults | None,
        scratch: OpenCLBuffer | None,
    ) -> None:
        self.profiler = profiler
        self.scratch = scratch
        self.checking = checking
        self.queue = profiler.queue
        self.runs = runs

    def run(self) -> None:
        with raise_device_error(f"{self.queue.device.name} failed during computation"):
            self.enqueue()
            self.queue.finish()
            if self.checking is not None:
                self.checking.check()

    def enqueue(self) -> None:
        """Append the program to the device's queue."""
        if self.checking is not None:
            self.checking.may_be = True
        if self.profiler.is_on:
            self.profiler.run(self.runs)
            return
        for bound in self.runs:
            bound.enqueue(self.queue)


class Builder:
    """The programs of one device, by family, types and macros.

    The binaries are cached on disk, by device, source and options: in the driver's cache (PoCL,
    NVIDIA), or in pyopencl's cache for other drivers.
    """

    def __init__(self, queue: cl.CommandQueue) -> None:
        self.queue = queue
        self.options = [*OPTIONS, *compiler_options(queue.device)]
        self.faults = Faults(queue)
        self.profiler = Profiler(queue)
        self._programs: dict[ProgramKey, cl.Program] = {}
        remember()

    def program(self, nodes: Sequence[Work], options: CompileOptions) -> OpenCLProgram:
        """Return a program that is ready to run; all tensors have memory."""
        runs = [(find_result(work), run) for work in nodes for run in launches([work])]
        self.build([run for _, run in runs], options)
        scratch = self._scratch([t for _, run in runs for t in run.scratch])
        bound = [self._bind(node, run) for node, run in runs]
        checking = self.faults if any(run.checked for _, run in runs) else None
        return OpenCLProgram(self.profiler, bound, checking, scratch)

    def _scratch(self, tensors: list[Tensor]) -> OpenCLBuffer | None:
        """Allocate one memory block that all tensors share."""
        if not tensors:
            return None
        memory = OpenCLBuffer(self.queue, max(t.nbytes for t in tensors), self.faults)
        for t in tensors:
            t.buffer = memory
        return memory

    def build(self, runs: list[Launch], options: CompileOptions) -> None:
        """Build the missing kernels; raise BackendError if one does not compile."""
        missing = {k: run for run in runs if (k := key(run)) not in self._programs}
        for done, (k, run) in enumerate(missing.items()):
            building.tell(BuildStage(done, len(missing), run.family))
            if options.progress is not None:
                options.progress(done, len(missing), f"{run.family} {' '.join(k[1])}")
            with building.building():
                self._programs[k] = self._build(k)
        if missing:
            building.tell(BuildStage(len(missing), len(missing)))

    def _build(self, k: ProgramKey) -> cl.Program:
        import pyopencl as cl

        family, types, defines, macros = k
        named = [f"-DT{i}={name}" for i, name in enumerate(types)]
        flags = [*self.options, *named, *(f"-D{name}={value}" for name, value in defines)]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", cl.CompilerWarning)
                program = cl.Program(self.queue.context, source(family, types, macros))
                program.build(flags)
                return program
        except cl.Error as e:
            what = f"{family}.cl ({' '.join(flags)})"
            is_old = "unknown target CPU" in str(e)
            remedy = OLD_POCL.format(install_hint("intel-opencl")) if is_old else ""
            why = f"{first_error(str(e))}{remedy}"
            raise BackendError(f"{self.queue.device.name} cannot build {what}: {why}") from e

    def _bind(self, node: Tensor, run: Launch) -> BoundKernel:
        import pyopencl as cl

        arguments: list[cl.Buffer | bytes | np.int32 | np.float32] = []
        for t in run.tensors:
            assert isinstance(t.buffer, OpenCLBuffer), f"{t} is not on this device"
            arguments += (t.buffer.memory, shape_bytes(t))
        for value in run.scalars:
            arguments.append(np.int32(value) if isinstance(value, int) else np.float32(value))
        record = self.faults.arguments() if run.checked else ()
        arguments += record
        try:
            kernel = cl.Kernel(self._programs[key(run)], run.kernel)
            set_arguments(kernel, arguments)
        except cl.Error as e:
            where = f"{run.kernel} of {run.family}.cl"
            raise BackendError(f"{self.queue.device.name} cannot set up {where}: {e}") from e
        x, y, z = run.groups
        bound = BoundKernel(kernel, (x * WG, y, z), node, run.tensors if run.checked else ())
        if record:
            self.faults.remember(int(record[1]), bound)
        return bound


def compiler_options(device: cl.Device) -> Iterator[str]:
    """Yield compiler options: a macro for GPUs, and correct rounding of quotients and roots if
    supported, so that quantized blocks equal the CPU's blocks."""
    import pyopencl as cl

    if device.type & cl.device_type.GPU:
        yield "-DGPU"
    if device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
        yield "-cl-fp32-correctly-rounded-divide-sqrt"


def launches(nodes: Sequence[Work]) -> list[Launch]:
    """Return launches of nodes, and of steps of several nodes."""
    found: list[Launch] = []
    for work in nodes:
        if isinstance(work, FusedNodes):
            found += work.launch()
        elif not work.is_empty():
            found += table.launches(work)
    return found


def find_result(work: Work) -> Tensor:
    return work.match.result if isinstance(work, FusedNodes) else work


def key(run: Launch) -> ProgramKey:
    return run.family, run.type_names(), run.defines, run.macros


def shape_bytes(t: Tensor) -> bytes:
    """Pack a tensor's shape as tensor_t of _common.cl."""
    return TENSOR.pack(*t.ne, *t.nb, t.offset)


def first_error(log: str) -> str:
    """Return the compiler's first error, or the log's first line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if "error:" in line), lines[0] if lines else "no log")
