"""Runner of a case on a device and on the reference, with their comparison."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ggml_py.backend import Buffer, Bytes, CompileOptions, Device, HostBuffer, Work, plan_steps
from ggml_py.errors import UnsupportedOp
from ggml_py.fusion import FusedNodes
from ggml_py.fusion.uses import Uses
from ggml_py.graph import Graph
from ggml_py.ops.registry import OPS
from ggml_py.tensor import Tensor
from ggml_ref.values import load, store
from llama_py_tools.test_backend_ops.case import Array, Case, Leaves
from llama_py_tools.test_backend_ops.differences import known_difference

POISON = 0xFF  # these bytes are NaN as f32, f16 or bf16; -1 as integers
GUARD = 4096  # read-only bytes around every tensor


class Status(enum.Enum):
    OK = "OK"
    FAIL = "FAIL"
    KNOWN = "known difference"
    NOT_SUPPORTED = "not supported"


@dataclass(frozen=True, slots=True)
class Outcome:
    """status, and why if it is not OK; the largest error seen."""

    status: Status
    reason: str = ""
    error: float = 0.0


class Bench:
    """A case's graph in a device's memory: tensors apart, guards between, all poisoned.

    poison   False for a bench that never runs
    """

    def __init__(self, case: Case, device: Device, poison: bool = True) -> None:
        self.case = case
        self.device = device
        self.graph, self.leaves = self._build()
        self.steps = self._steps()
        self.guards: list[tuple[int, int, Tensor | None]] = []
        self.buffer = self._allocate()
        if poison:
            self.buffer.clear(POISON)

    def _build(self) -> tuple[Graph, Leaves]:
        return self.case.graph()

    def _steps(self) -> list[Work]:
        nodes = self.graph.compute_nodes()
        fused = self.case.fused and not self.why_not()
        return plan_steps(self.device, nodes, Uses(self.graph.nodes)) if fused else [*nodes]

    def _allocate(self) -> Buffer:
        scratch = [s.match.scratch for s in self.steps if isinstance(s, FusedNodes)]
        tensors = (*self.graph.leafs, *self.graph.nodes, *(t for t in scratch if t is not None))
        owners = [t for t in tensors if t.view_src is None]
        end, alignment = 0, max(self.device.alignment, 1)
        before: Tensor | None = None
        for t in owners:
            t.offset = -(-(end + GUARD) // alignment) * alignment
            self.guards.append((end, t.offset, before))
            end, before = t.offset + t.nbytes, t
        self.guards.append((end, end + GUARD, before))
        buffer = self.device.alloc(end + GUARD)
        for t in owners:
            t.buffer = buffer
        for t in self.graph.nodes:
            if t.view_src is not None:
                t.buffer, t.offset = buffer, t.view_src.offset + t.view_offs
        return buffer

    def why_not(self) -> str:
        for t in self.graph.compute_nodes():
            if reason := self.device.why_not(t):
                return reason
        return ""

    def write(self, inputs: list[Bytes]) -> None:
        """Put the inputs in place."""
        for leaf, data in zip(self.leaves.inits, inputs, strict=True):
            self.buffer.write(leaf.offset, data)
        self.prepare()

    def prepare(self) -> None:
        """Let the device repack weights, which decides the kernels that run and the nodes that run
        as one step."""
        for weight in self.leaves.weights:
            uses = [t.op for t in self.graph.nodes if any(s is weight for s in t.src)]
            self.device.prepare_weight(weight, uses)
        if not self.leaves.weights:
            return
        self.steps = self._steps()
        for step in self.steps:
            if isinstance(step, FusedNodes) and (scratch := step.match.scratch) is not None:
                scratch.buffer, scratch.offset = self.device.alloc(scratch.nbytes), 0

    def run(self) -> None:
        self.device.compile(self.steps, CompileOptions(fuse=self.case.fused)).run()

    def written_leaves(self) -> list[Tensor]:
        """Return inputs that a node's result overwrites, or that its op changes."""
        nodes = self.graph.compute_nodes()
        roots = [t.view_src for t in nodes]
        roots += [t.src[i] for t in nodes for i in OPS[t.op].writes if i < len(t.src)]
        return [leaf for leaf in self.leaves.inits if any(r is leaf for r in roots)]

    def results(self) -> list[Tensor]:
        """Return the compared tensors: each computed node, or only the last; then overwritten
        inputs."""
        nodes = self.graph.compute_nodes()
        return [*(nodes[-1:] if self.case.fused else nodes), *self.written_leaves()]

    def bytes_of_inputs(self) -> list[Bytes]:
        return [self.buffer.read(t.offset, t.nbytes) for t in self.leaves.inits]

    def damage(self, before: list[Bytes]) -> str:
        """Return the guard or input that a kernel overwrote, or ""."""
        for start, end, t in self.guards:
            if (self.buffer.read(start, end - start) != POISON).any():
                where = "before the first tensor" if t is None else f"after {_name(t)}"
                return f"sentinel mismatch: written {where} "
        written = self.written_leaves()
        for t, old, new in zip(self.leaves.inits, before, self.bytes_of_inputs(), strict=True):
            if not any(t is w for w in written) and (old != new).any():
                return f"input modified: {_name(t)} "
        return ""


def values(t: Tensor) -> Array:
    """Return values as float64 or int64 [ne3, ne2, ne1, ne0]."""
    assert t.buffer is not None
    copy = Tensor(t.type, t.ne, nb=t.nb)
    copy.buffer = HostBuffer(t.buffer.read(t.offset, t.nbytes))
    return load(copy)


def draw_inputs(leaves: Leaves, seed: list[int], most: int | None = None) -> list[Bytes]:
    """Return the bytes of every input, in order; the reference quantizes them.

    most    rows of blocks that are drawn, then repeated: enough if values do not matter
    """
    rng = np.random.default_rng(seed)
    drawn = []
    for leaf, init in leaves.inits.items():
        blocks = most is not None and leaf.type.is_quantized
        t = Tensor(leaf.type, (leaf.ne[0], min(leaf.n_rows, most or 0)) if blocks else leaf.ne)
        t.buffer = HostBuffer(np.zeros(t.nbytes, np.uint8))
        store(t, np.broadcast_to(init(rng, t.ne[::-1]), t.ne[::-1]))
        drawn.append(np.resize(t.buffer.data, leaf.nbytes) if blocks else t.buffer.data)
    return drawn


@dataclass(frozen=True, slots=True)
class ExpectedResult:
    """A judge's result for a case: its bench after the run, and the inputs; or the refusal."""

    bench: Bench
    inputs: list[Bytes]
    refused: Outcome | None = None


def expect(case: Case, reference: Device, seed: int = 0) -> ExpectedResult:
    """Return the reference's values; if it raises, only the case fails."""
    bench = Bench(case, reference)
    if reason := bench.why_not():
        return ExpectedResult(
            bench, [], Outcome(Status.NOT_SUPPORTED, f"{reference.name}: {reason}")
        )
    known = known_difference(case) if reference.name == "ggml" else None
    if known is not None and known.crashes:
        return ExpectedResult(bench, [], Outcome(Status.NOT_SUPPORTED, f"ggml {known.why}"))
    try:
        inputs = draw_inputs(bench.leaves, case.seed(seed))
        bench.write(inputs)
        bench.run()
    except UnsupportedOp as e:
        return ExpectedResult(bench, [], Outcome(Status.NOT_SUPPORTED, f"{reference.name}: {e}"))
    except Exception as e:  # a node from a file may be invalid
        failed = Outcome(Status.FAIL, f"{reference.name}: {type(e).__name__}: {e} ")
        return ExpectedResult(bench, [], failed)
    return ExpectedResult(bench, inputs)


def evaluate(case: Case, device: Device, reference: Device, seed: int = 0) -> Outcome:
    """Run on both devices and compare every value; an exception fails the case, not the run.

    KNOWN marks cases that ggml, as the judge, is known to compute differently.
    """
    if reason := why_not(case, device):
        return Outcome(Status.NOT_SUPPORTED, f"{device.name}: {reason}")
    return judge_case(case, device, expect(case, reference, seed))


def judge_case(case: Case, device: Device, expected: ExpectedResult) -> Outcome:
    """Run on the device and compare every value with the expected one."""
    if expected.refused is not None:
        return expected.refused
    got = Bench(case, device)
    if failed := failure(got, expected.inputs):
        return failed
    outcome = _compare(case, expected.bench, got)
    reference = expected.bench.device
    known = known_difference(case) if reference.name == "ggml" else None
    if outcome.status is Status.FAIL and known is not None:
        return Outcome(Status.KNOWN, f"{outcome.reason}[ggml {known.why}] ", outcome.error)
    return outcome


def failure(got: Bench, inputs: list[Bytes]) -> Outcome | None:
    """Compute the node under test; return its failure, or None."""
    try:
        got.write(inputs)
        before = got.bytes_of_inputs()
        got.run()
    except Exception as e:  # any error of a backend is this case's failure
        return Outcome(Status.FAIL, f"{type(e).__name__}: {e} ")
    damage = got.damage(before)
    return Outcome(Status.FAIL, damage) if damage else None


def _compare(case: Case, expected: Bench, got: Bench) -> Outcome:
    largest, bound = 0.0, case.nmse_bound()
    for a, b in zip(expected.results(), got.results(), strict=True):
        x, y = values(a), values(b)
        names = (expected.device.name, got.device.name)
        if reason := _nonfinite(x, y, *names):
            return Outcome(Status.FAIL, f"[{_name(a)}] {reason} ")
        if case.compare is not None:
            x, y = case.compare(x), case.compare(y)
        error = nmse(x, y)
        largest = max(largest, error)
        if error > bound:
            why = f"[{_name(a)}] ERR = {error:.9g} > {bound:.9g} "
            return Outcome(Status.FAIL, why, error)
    return Outcome(Status.OK, "", largest)


def _nonfinite(x: Array, y: Array, name_x: str, name_y: str) -> str:
    """Compare the positions of NaN and infinity; unwritten reference values are still NaN."""
    if x.size and np.isnan(x).all():
        return f"NaN everywhere in {name_x}"
    for what, a, b in (("NaN", np.isnan(x), np.isnan(y)), ("inf", _infinite(x), _infinite(y))):
        if (a != b).any():
            i = tuple(int(n) for n in np.argwhere(a != b)[0])
            return f"{what} at index {list(i)} ({name_y}={y[i]:g} {name_x}={x[i]:g})"
    return ""


def _infinite(x: Array) -> Array:
    """Return the sign where |x| is infinity or the largest float32, else 0."""
    return np.where(np.abs(x) >= np.finfo(np.float32).max, np.sign(x), 0)


def nmse(x: Array, y: Array) -> float:
    """Return sum((x - y)^2) / sum(x^2) over the finite elements."""
    finite = np.isfinite(x)
    x, y = x[finite].astype(np.float64), y[finite].astype(np.float64)
    error, size = ((x - y) ** 2).sum(), (x * x).sum()
    if error == 0:
        return 0.0
    return float(error / size) if size else float("inf")


def unrun_bench(case: Case, device: Device) -> Bench:
    """Return a bench that is never run."""
    return Bench(case, device, poison=False)


def warm_up(
    cases: Iterable[Case],
    device: Device,
    progress: Callable[[int, int, str], None] | None = None,
    make: Callable[[Case, Device], Bench | None] = unrun_bench,
) -> None:
    """Compile all cases' nodes at once: a backend that builds kernels does so in parallel.

    make   returns a case's bench, or None for a case that will not run

    Errors are ignored here: the run of the case reports them.
    """
    benches = (make(case, device) for case in cases)
    ready = [b for b in benches if b is not None and not b.why_not()]
    with suppress(Exception):
        for bench in ready:
            bench.prepare()
        for fuse in (False, True):
            steps = [step for b in ready if b.case.fused == fuse for step in b.steps]
            device.compile(steps, CompileOptions(progress, fuse))


def why_not(case: Case, device: Device) -> str:
    """Return the reason why the device cannot run some node of the case; "" if it can."""
    graph: Graph = case.graph()[0]
    return next((why for t in graph.compute_nodes() if (why := device.why_not(t))), "")


def _name(t: Tensor) -> str:
    return t.name if t.op == "NONE" or t.op not in OPS else t.op
