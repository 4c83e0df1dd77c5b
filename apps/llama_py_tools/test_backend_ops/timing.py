"""Timing of perf mode: a case's node on a device, alternating with a rival device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

from ggml_py.backend import AsyncDevice, CompileOptions, Device, Profiles, Program
from ggml_py.tensor import Tensor
from llama_py_tools.test_backend_ops.case import Case
from llama_py_tools.test_backend_ops.run import Bench, draw_inputs, why_not

SECONDS = 1.0  # time per device
TURNS = 5
DRAWN_ROWS = 256  # rows of blocks: enough for timing


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds per run, number of runs, bytes read and written by one run, and its flops.

    rival_us: the rival's microseconds per run; 0 without a rival that computes the case.
    """

    time_us: float
    n_runs: int
    nbytes: int
    flops: float
    rival_us: float = 0.0


class Stopwatch:
    """A case's last node on a device, repeated in one program; all nodes of a fused case.

    An asynchronous device counts only the time of its kernels.
    """

    def __init__(self, case: Case, device: Device, seed: int, seconds: float) -> None:
        self.device = device
        self.bench = Bench(case, device)
        self.bench.write(draw_inputs(self.bench.leaves, case.seed(seed), DRAWN_ROWS))
        self.bench.run()
        nodes = self.bench.graph.compute_nodes()
        self.timed = nodes if case.fused else nodes[-1:]
        steps = self.bench.steps if case.fused else self.bench.steps[-1:]
        self.options = CompileOptions(fuse=case.fused)
        once = device.compile(steps, self.options)
        once.run()
        self.repeat = int(min(1000, seconds / max(self.seconds(once), 1e-6))) + 1
        self.program = device.compile(steps * self.repeat, self.options)
        self.samples: list[float] = []

    def take_turn(self, seconds: float) -> None:
        """Run for about `seconds`, but at least once."""
        end = time.perf_counter() + seconds
        while True:
            self.samples.append(self.seconds(self.program) / self.repeat)
            if time.perf_counter() >= end:
                return

    def seconds(self, program: Program) -> float:
        start = time.perf_counter()
        if isinstance(self.device, Profiles) and isinstance(self.device, AsyncDevice):
            with self.device.profiling() as times:
                program.run()
            if times:  # empty for a node without elements
                return sum(t.end - t.start for t in times) / 1e9
        else:
            program.run()
        return time.perf_counter() - start

    @property
    def time_us(self) -> float:
        return statistics.median(self.samples) * 1e6

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in {id(t): t for t in _touched_tensors(self.timed)}.values())


def measure(case: Case, device: Device, seed: int = 0, rival: Device | None = None) -> Timing:
    """Return medians over TURNS turns; a rival that supports the case alternates with the
    device."""
    if rival is not None and why_not(case, rival):
        rival = None
    watches = [Stopwatch(case, d, seed, SECONDS / TURNS) for d in (device, rival) if d is not None]
    for _ in range(TURNS):
        for watch in watches:
            watch.take_turn(SECONDS / TURNS)
    ours = watches[0]
    flops = case.flops(**case.args) if case.flops else 0.0
    runs = len(ours.samples) * ours.repeat
    rival_us = watches[1].time_us if rival is not None else 0.0
    return Timing(ours.time_us, runs, ours.nbytes, flops, rival_us)


def _touched_tensors(nodes: list[Tensor]) -> Iterator[Tensor]:
    for t in nodes:
        yield t
        yield from (s for s in t.src if s is not None)
