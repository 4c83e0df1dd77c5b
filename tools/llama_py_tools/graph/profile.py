"""llama-py-graph profile: where the time of a prompt and of single tokens goes.

Times are those of the executor, step by step: a step ends where all threads have met after it, or
go on. What several nodes do in one step is shown at the last of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ggml_py.backend import KernelTime, Profiles
from ggml_py.errors import BackendError
from llama_py_tools.graph.layers import groups, shape

if TYPE_CHECKING:
    from ggml_py.tensor import Tensor
    from llama_py import Context
    from llama_py.graph.result import GraphResult

WARM_TOKENS = 36  # then programs have been laid out for many runs (ggml_cpu/program.py:OFTEN)
OUTSIDE = "outside of layers"


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel of one node. start, end in nanoseconds of the host's clock."""

    device: str
    time: KernelTime
    layer: str
    start: int
    end: int

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / 1e9


@dataclass(frozen=True, slots=True)
class Run:
    """What one decode did.

    what   "prompt, 7 tokens", "token 1"
    wall   seconds of the whole call
    steps  in the order in which they began
    """

    what: str
    start: int
    wall: float
    steps: list[Step]

    @property
    def seconds(self) -> float:
        """In steps."""
        return sum(s.seconds for s in self.steps)


def measure(ctx: Context, ids: Sequence[int], n_decode: int, repeat: int = 3) -> list[Run]:
    """The runs of a prompt, and of n_decode tokens after it, once all is warm; of each the fastest
    of several.

    Raises BackendError where no device of the context tells times.
    """
    if not any(isinstance(d, Profiles) for d in ctx.devices):
        names = ", ".join(d.name for d in ctx.devices)
        raise BackendError(f"{names}: does not tell how long kernels take; cpu and opencl do")

    results: list[GraphResult] = []
    before, ctx.on_graph = ctx.on_graph, lambda res, _: results.append(res)
    try:
        return list(_runs(_Timer(ctx, results), ids, n_decode, repeat))
    finally:
        ctx.on_graph = before


def _runs(timer: _Timer, ids: Sequence[int], n_decode: int, repeat: int) -> Iterator[Run]:
    ctx, prompts = timer.ctx, list[Run]()
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
    """results   graphs that the context has run, the latest last"""

    ctx: Context
    results: list[GraphResult]

    def run(self, what: str, ids: Sequence[int]) -> Run:
        self.results.clear()
        devices = [d for d in self.ctx.devices if isinstance(d, Profiles)]
        with ExitStack() as stack:
            found = {d.name: stack.enter_context(d.profiling()) for d in devices}
            start = perf_counter_ns()
            self.ctx.decode(ids)
            end = perf_counter_ns()
        layers = {
            id(t): title
            for res in self.results for title, nodes in groups(res.graph) for _, t in nodes
        }  # fmt: skip
        parts = (_steps(name, times, layers, start, end) for name, times in found.items())
        steps = list(chain.from_iterable(parts))
        return Run(what, start, (end - start) / 1e9, sorted(steps, key=lambda s: s.start))


def _steps(
    device: str, times: Sequence[KernelTime], layers: dict[int, str], start: int, end: int
) -> Iterator[Step]:
    """A device with another clock began when the run did."""
    own_clock = times and not start <= times[0].start <= end
    shift = start - times[0].start if own_clock else 0
    for t in times:
        layer = layers.get(id(t.node), OUTSIDE)
        yield Step(device, t, layer, t.start + shift, t.end + shift)


Key = Callable[[Step], str]
BY: dict[str, Key] = {
    "op": lambda s: f"{s.time.node.op} {_first(s.time.node).type.name}",
    "layer": lambda s: s.layer,
    "node": lambda s: s.time.node.name,
    "kernel": lambda s: s.time.kernel,
}


def _first(t: Tensor) -> Tensor:
    return next((s for s in t.src if s is not None), t)


@dataclass(slots=True)
class Line:
    """Steps of one kind."""

    what: str
    example: Tensor
    n: int = 0
    seconds: float = 0.0


def lines(run: Run, by: str) -> list[Line]:
    """The steps of a run put together, the slowest first."""
    found: dict[str, Line] = {}
    for step in run.steps:
        key = BY[by](step)
        line = found.setdefault(key, Line(key, step.time.node))
        line.n += 1
        line.seconds += step.seconds
    return sorted(found.values(), key=lambda line: -line.seconds)


def tables(run: Run, kinds: Sequence[str], top: int) -> Iterator[str]:
    """As text: a line on the whole, then a table for each kind."""
    share = run.seconds / run.wall if run.wall else 0.0
    yield (
        f"{run.what}: {run.wall * 1e3:.3f} ms, of these {run.seconds * 1e3:.3f} ms ({share:.1%}) in"
        f" {len(run.steps)} steps"
    )
    for by in kinds:
        found = lines(run, by)
        width = max((len(line.what) for line in found[:top]), default=0)
        yield f"\n  {'by ' + by:{width}}  steps        ms  of all"
        for line in found[:top]:
            more = f"  {line.example.op} {shape(line.example)}" if by == "node" else ""
            yield _row(line, width, run) + more
        if rest := found[top:]:
            n, seconds = sum(line.n for line in rest), sum(line.seconds for line in rest)
            yield _row(Line(f"{len(rest)} more", rest[0].example, n, seconds), width, run)
    yield ""


def _row(line: Line, width: int, run: Run) -> str:
    part = line.seconds / run.seconds if run.seconds else 0.0
    return f"  {line.what:{width}}  {line.n:5d}  {line.seconds * 1e3:8.3f}  {part:6.1%}"


def as_data(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """For JSON."""
    return [
        {
            "run": run.what, "wall_ms": run.wall * 1e3, "steps_ms": run.seconds * 1e3,
            "steps": [
                {
                    "node": s.time.node.name, "op": s.time.node.op, "kernel": s.time.kernel,
                    "type": s.time.node.type.name, "ne": list(s.time.node.ne), "layer": s.layer,
                    "device": s.device, "start_us": (s.start - run.start) / 1e3,
                    "us": s.seconds * 1e6,
                }
                for s in run.steps
            ],
        }
        for run in runs
    ]  # fmt: skip
