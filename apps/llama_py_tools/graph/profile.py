"""Command `llama-py-graph profile`: times of a prompt and of single tokens.

The executor measures each step. A step ends when the first thread begins the next step, or when
all threads have finished if they synchronize there. The time of a fused step belongs to its last
node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ggml_py.backend import KernelTime, Profiles
from ggml_py.errors import BackendError
from ggml_py.ops.traffic import count_bytes, flops
from llama_py_tools.graph.layers import groups, shape
from llama_py_tools.graph.ranks import (
    is_over_ranks,
    kernels_and_messages,
    messages_text,
    own_kernels,
    ranks_as_data,
    record_times,
)

if TYPE_CHECKING:
    from ggml_py.plan import Plan, SplitTime
    from ggml_py.tensor import Tensor
    from llama_py import Context, Model
    from llama_py.graph.result import GraphResult
    from llama_py_tools.bench.roofline import Roofline
    from llama_py_tools.graph.ranks import OfRank

WARM_TOKENS = 36  # tokens until programs are optimized for many runs (ggml_cpu/program.py:OFTEN)
OUTSIDE = "outside of layers"


@dataclass(frozen=True, slots=True)
class ProfiledStep:
    """Time of one kernel of one node.

    start, end  nanoseconds of the host's clock
    last        True for the node's last kernel, which counts the node's bytes and operations
    """

    device: str
    time: KernelTime
    layer: str
    start: int
    end: int
    last: bool = True

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / 1e9


@dataclass(frozen=True, slots=True)
class ProfiledRun:
    """Times of one decode.

    what   label of the run, such as "prompt, 7 tokens" or "token 1"
    wall   seconds of the whole call
    steps  all steps, by start time
    splits  graph splits, with the copies before each
    ranks  messages between ranks; empty in a single process
    """

    what: str
    start: int
    wall: float
    steps: list[ProfiledStep]
    splits: list[SplitTime]
    ranks: Sequence[OfRank] = ()

    @property
    def seconds(self) -> float:
        """Seconds spent in steps."""
        return sum(s.seconds for s in self.steps)

    @property
    def copy_seconds(self) -> float:
        """Seconds of copies between devices."""
        return sum(end - start for s in self.splits for _, start, end in s.copied) / 1e9

    @property
    def copied_bytes(self) -> int:
        """Bytes copied between devices."""
        return sum(s.n_bytes for s in self.splits)


def measure(ctx: Context, ids: Sequence[int], n_decode: int, repeat: int = 3) -> list[ProfiledRun]:
    """Measure a prompt and `n_decode` tokens after a warm-up, and return the fastest runs.

    repeat  number of runs per measurement

    Raises BackendError if no device of the context measures times.
    """
    if not any(isinstance(d, Profiles) for d in ctx.devices):
        names = ", ".join(d.name for d in ctx.devices)
        raise BackendError(f"{names} does not measure kernel times; use cpu or opencl")

    results: list[GraphResult] = []
    before, ctx.on_graph = ctx.on_graph, lambda res, _: results.append(res)
    try:
        return list(_runs(_Timer(ctx, results), ids, n_decode, repeat))
    finally:
        ctx.on_graph = before


def _runs(timer: _Timer, ids: Sequence[int], n_decode: int, repeat: int) -> Iterator[ProfiledRun]:
    ctx, prompts = timer.ctx, list[ProfiledRun]()
    ctx.decode(ids)
    for _ in range(repeat):
        ctx.clear()
        prompts.append(timer.run(f"prompt, {len(ids)} tokens", ids))
    yield min(prompts, key=lambda run: run.wall)
    for _ in range(WARM_TOKENS if n_decode else 0):
        ctx.decode([ids[-1]])
    for i in range(n_decode):
        tokens = [timer.run(f"token {i + 1}", [ids[-1]]) for _ in range(repeat)]
        yield min(tokens, key=lambda run: run.wall)


@dataclass(frozen=True, slots=True)
class _Timer:
    """Timer of single decodes.

    results  graphs that the context has run, in order
    """

    ctx: Context
    results: list[GraphResult]

    def run(self, what: str, ids: Sequence[int]) -> ProfiledRun:
        self.results.clear()
        splits: list[SplitTime] = []
        plans = [plan for _, plan in self.ctx.runner.graphs]
        if is_over_ranks(plans):
            return self._measure_ranks(what, ids, plans)
        devices = [d for d in self.ctx.devices if isinstance(d, Profiles)]
        with ExitStack() as stack:
            found = {d.name: stack.enter_context(d.profiling()) for d in devices}
            for plan in plans:
                plan.times = splits
            start = perf_counter_ns()
            self.ctx.decode(ids)
            end = perf_counter_ns()
            for plan in plans:
                plan.times = None
        layers = self._layers()
        parts = (_steps(name, times, layers, splits) for name, times in found.items())
        steps = sorted(chain.from_iterable(parts), key=lambda s: s.start)
        return ProfiledRun(what, start, (end - start) / 1e9, steps, splits)

    def _layers(self) -> dict[int, str]:
        """Return each node's layer by the node's id."""
        return {
            id(t): title
            for res in self.results
            for title, nodes in groups(res.graph)
            for _, t in nodes
        }

    def _measure_ranks(self, what: str, ids: Sequence[int], plans: Sequence[Plan]) -> ProfiledRun:
        """Measure all ranks in one decode; times are by rank 0's clock."""
        devices = [d for d in self.ctx.devices if isinstance(d, Profiles)]
        with ExitStack() as stack:
            theirs = stack.enter_context(record_times(plans))
            own = {d.name: stack.enter_context(d.profiling()) for d in devices}
            start = perf_counter_ns()
            self.ctx.decode(ids)
            end = perf_counter_ns()
        times, ranks = kernels_and_messages(theirs, plans)
        layers = self._layers()
        mine = {name: own_kernels(of, plans, name) for name, of in own.items()}
        parts = (_steps(name, of, layers, ()) for name, of in {**mine, **times}.items())
        steps = sorted(chain.from_iterable(parts), key=lambda s: s.start)
        return ProfiledRun(what, start, (end - start) / 1e9, steps, [], ranks)


def _steps(
    device: str, times: Sequence[KernelTime], layers: Mapping[int, str], splits: Sequence[SplitTime]
) -> Iterator[ProfiledStep]:
    """Yield the steps of a device, with times of the host's clock.

    If the device has another clock, the last kernel of a split ends when the host sees its end.
    """
    number = {id(t): i for i, s in enumerate(splits) for t in s.split.nodes}
    last = {number.get(id(t.node), -1): t.end for t in times}  # end of each split's last kernel
    shift = {i: splits[i].end - end for i, end in last.items() if i >= 0}
    own_clock = any(t.threads == () for t in times)
    for i, t in enumerate(times):
        layer, ahead = layers.get(id(t.node), OUTSIDE), 0
        if own_clock:
            ahead = shift.get(number.get(id(t.node), -1), 0)
        ends = i + 1 == len(times) or times[i + 1].node is not t.node
        yield ProfiledStep(device, t, layer, t.start + ahead, t.end + ahead, ends)


Key = Callable[[ProfiledStep], str]
BY: dict[str, Key] = {
    "op": lambda s: f"{s.time.node.op} {_first_source(s.time.node).type.name}",
    "layer": lambda s: s.layer,
    "node": lambda s: s.time.node.name,
    "kernel": lambda s: s.time.kernel,
}


def _first_source(t: Tensor) -> Tensor:
    return next((s for s in t.src if s is not None), t)


@dataclass(slots=True)
class ProfileLine:
    """Totals of all steps with the same op, layer, node or kernel."""

    what: str
    example: Tensor
    n: int = 0
    seconds: float = 0.0
    nbytes: float = 0.0
    flops: float = 0.0


def lines(run: ProfiledRun, by: str) -> list[ProfileLine]:
    """Return the totals of a run's steps by a key of BY, the slowest first."""
    found: dict[str, ProfileLine] = {}
    for step in run.steps:
        key = BY[by](step)
        line = found.setdefault(key, ProfileLine(key, step.time.node))
        line.n += 1
        line.seconds += step.seconds
        if step.last:
            line.nbytes += count_bytes(step.time.node)
            line.flops += flops(step.time.node)
    return sorted(found.values(), key=lambda line: -line.seconds)


def tables(
    run: ProfiledRun, kinds: Sequence[str], top: int, limits: Mapping[str, Roofline] | None = None
) -> Iterator[str]:
    """Yield a run as text: a summary line, then a table per kind.

    limits  rooflines by device name, for a column with the reached fraction
    """
    n_ranks = max(len(run.ranks), 1)
    share = run.seconds / n_ranks / run.wall if run.wall else 0.0
    of_each = f" of {n_ranks} ranks" if run.ranks else ""
    yield (
        f"{run.what}: {run.wall * 1e3:.3f} ms{of_each}, of these {run.seconds * 1e3:.3f} ms"
        f" ({share:.1%}) in {len(run.steps)} steps"
    )
    if len(run.splits) > 1:
        yield (
            f"  {len(run.splits)} splits; {run.copied_bytes / 2**20:.2f} MiB copied between devices"
            f" in {run.copy_seconds * 1e3:.3f} ms"
        )
    if run.ranks:
        yield from messages_text(run.ranks)
    for name, most in (limits or {}).items():
        yield f"  limits of {name}: {most.bandwidth / 1e9:.1f} GB/s, {most.flops / 1e9:.0f} GFLOP/s"
    for by in kinds:
        found = lines(run, by)
        width = max((len(line.what) for line in found[:top]), default=0)
        limit = "  of the limit" if limits else ""
        heading = "steps        ms  of all    GB/s  GFLOP/s"
        yield f"\n  {'by ' + by:{width}}  {heading}{limit}"
        least = _min_seconds(run, by, limits or {})
        for line in found[:top]:
            more = f"  {line.example.op} {shape(line.example)}" if by == "node" else ""
            limit = f"  {least[line.what] / line.seconds:12.0%}" if line.seconds and least else ""
            yield _row(line, width, run) + limit + more
        if rest := found[top:]:
            total = ProfileLine(
                f"{len(rest)} more",
                rest[0].example,
                sum(line.n for line in rest),
                sum(line.seconds for line in rest),
                sum(line.nbytes for line in rest),
                sum(line.flops for line in rest),
            )
            yield _row(total, width, run)
    yield ""


def limits(model: Model) -> dict[str, Roofline]:
    """Return the roofline of each device that can measure times."""
    from llama_py_tools.bench import roofline

    able = [d for d in model.devices if isinstance(d, Profiles)]
    return {d.name: roofline.limits(d, roofline.common_type(model)) for d in able}


def _min_seconds(run: ProfiledRun, by: str, limits: Mapping[str, Roofline]) -> dict[str, float]:
    """Return the minimum seconds that the rooflines allow, per line of the table."""
    found: dict[str, float] = {}
    for s in run.steps if limits else ():
        key, node = BY[by](s), s.time.node
        least = limits[s.device].min_seconds(count_bytes(node), flops(node)) if s.last else 0.0
        found[key] = found.get(key, 0.0) + least
    return found


def _row(line: ProfileLine, width: int, run: ProfiledRun) -> str:
    part = line.seconds / run.seconds if run.seconds else 0.0
    per_ns = 1 / max(line.seconds * 1e9, 1e-9)
    rate = f"{line.flops * per_ns:7.1f}" if line.flops else " " * 7
    return (
        f"  {line.what:{width}}  {line.n:5d}  {line.seconds * 1e3:8.3f}  {part:6.1%}"
        f"  {line.nbytes * per_ns:6.1f}  {rate}"
    )


def as_data(runs: Sequence[ProfiledRun]) -> list[dict[str, Any]]:
    """Return the runs as data for JSON."""
    return [
        {
            "run": run.what,
            "wall_ms": run.wall * 1e3,
            "steps_ms": run.seconds * 1e3,
            "n_splits": len(run.splits),
            "copied_bytes": run.copied_bytes,
            "copying_ms": run.copy_seconds * 1e3,
            "ranks": ranks_as_data(run.ranks, run.start),
            "steps": [
                {
                    "node": s.time.node.name,
                    "op": s.time.node.op,
                    "kernel": s.time.kernel,
                    "type": s.time.node.type.name,
                    "ne": list(s.time.node.ne),
                    "layer": s.layer,
                    "device": s.device,
                    "start_us": (s.start - run.start) / 1e3,
                    "us": s.seconds * 1e6,
                    "bytes": count_bytes(s.time.node) if s.last else 0,
                    "flops": flops(s.time.node) if s.last else 0,
                }
                for s in run.steps
            ],
        }
        for run in runs
    ]
