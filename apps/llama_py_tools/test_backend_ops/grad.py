"""Gradient mode: a device's gradients compared with central differences of the judge's values."""

from __future__ import annotations

import numpy as np

from ggml_py.backend import CompileOptions, Device
from ggml_py.errors import GGMLError, UnsupportedOp
from ggml_py.gradients import build_backward_expand
from ggml_py.graph import Graph
from ggml_py.tensor import Tensor
from ggml_py.types import F32
from llama_py_tools.test_backend_ops.case import Array, Case, Leaves
from llama_py_tools.test_backend_ops.run import Bench, Outcome, Status, draw_inputs, failure
from llama_py_tools.test_backend_ops.run import values as values_of

MAX_ERROR = 1e-4  # sum |a - b| / sum |a| + |b| + FLOOR over a parameter's elements, beyond rounding
FLOOR = 0.01  # smaller slopes are compared with this: they are differences of large terms
STEP = 2.0**-6
MAX_ELEMENTS = 10_000  # elements of inputs, and of the result, in a case
SAMPLES = 16  # tested elements of a parameter
STEEP = 1e30  # a device's float32 may overflow above this
ROUGH = 5e-3  # a larger difference of two step sizes indicates a kink or a jump


class Gradients(Bench):
    """A case's graph and its gradients; `which` are the numbers of the inputs that are parameters.
    The loss is the sum of the result's elements, weighted by the last input.
    """

    def __init__(self, case: Case, device: Device, which: list[int], poison: bool = True) -> None:
        self.which = which
        super().__init__(case, device, poison)

    def _build(self) -> tuple[Graph, Leaves]:
        graph, leaves, self.grads = with_gradients(self.case, self.which)
        return graph, leaves


def with_gradients(case: Case, which: list[int]) -> tuple[Graph, Leaves, list[Tensor | None]]:
    """Return graph, inputs and gradients of inputs; GGMLError if a gradient is missing."""
    graph, leaves = case.graph()
    inputs, result = list(leaves.inits), graph.nodes[-1]
    weights = graph.build_forward_expand(leaves(result.ne))
    grads = build_backward_expand(graph, result, weights, [inputs[i] for i in which])
    return graph, leaves, grads


def parameters(case: Case) -> list[int]:
    """Return the numbers of inputs with a gradient; GGMLError with the reasons if no input
    has one."""
    graph, leaves = case.graph()
    largest = max(sum(t.n_elements for t in leaves.inits), graph.nodes[-1].n_elements)
    if largest > MAX_ELEMENTS:
        raise GGMLError(f"grad mode supports at most {MAX_ELEMENTS} elements, got {largest}")
    reasons, found = [], []
    for i, leaf in enumerate(leaves.inits):
        if leaf.type is not F32 or not any(leaf is t for t in graph.leafs):
            continue
        try:
            with_gradients(case, [i])
            found.append(i)
        except GGMLError as e:
            reasons.append(str(e))
    if not found:
        raise GGMLError(reasons[0] if reasons else "grad mode needs an f32 input")
    return found


def unpoisoned_gradients(case: Case, device: Device) -> Gradients | None:
    """Return gradients that are never run, or None without parameters."""
    try:
        return Gradients(case, device, parameters(case), poison=False)
    except GGMLError:
        return None


def evaluate_grad(case: Case, device: Device, reference: Device, seed: int = 0) -> Outcome:
    """Compare the gradients of every f32 input that has some."""
    try:
        which = parameters(case)
    except GGMLError as e:
        return Outcome(Status.NOT_SUPPORTED, str(e))
    forward, got = Bench(case, reference), Gradients(case, device, which)
    for bench in (got, forward):
        if reason := bench.why_not():
            return Outcome(Status.NOT_SUPPORTED, f"{bench.device.name}: {reason}")
    inputs = draw_inputs(got.leaves, case.seed(seed))
    if failed := failure(got, inputs):
        return failed
    try:
        return _compare(Slopes(forward, inputs, case.seed(seed)), got)
    except UnsupportedOp as e:
        return Outcome(Status.NOT_SUPPORTED, f"{reference.name}: {e}")


class Slopes:
    """Central differences of the loss, by the judge's values; `inputs` end with the weights."""

    def __init__(self, bench: Bench, inputs: list[Array], seed: list[int]) -> None:
        self.bench = bench
        self.result = bench.graph.nodes[-1]
        self.program = bench.device.compile(bench.steps, CompileOptions())
        self.weights = inputs[-1].view(np.float32).reshape(self.result.ne[::-1])
        self.rng = np.random.default_rng(seed)
        for leaf, data in zip(bench.leaves.inits, inputs, strict=False):
            bench.buffer.write(leaf.offset, data)

    def sample(self, which: int) -> tuple[list[int], Array]:
        """Return numbers of some elements of an input, with slopes (NaN if undefined) and bounds of
        their rounding errors [n, 2].
        """
        leaf = list(self.bench.leaves.inits)[which]
        some = [int(i) for i in self.rng.permutation(leaf.n_elements)[:SAMPLES]]
        return some, np.array([self._slope(leaf, i) for i in some]).reshape(-1, 2)

    def _slope(self, leaf: Tensor, i: int) -> tuple[float, float]:
        """Return the slope by the five-point formula, which is two central differences."""
        at = leaf.offset + 4 * i
        saved = self.bench.buffer.read(at, 4)
        x = float(saved.view(np.float32)[0])
        (wide, noise_w), (narrow, noise_n) = (self._difference(at, x, h) for h in (STEP, STEP / 2))
        self.bench.buffer.write(at, saved)
        smooth = abs(wide - narrow) <= ROUGH * max(FLOOR, abs(narrow)) < STEEP
        slope = (4 * narrow - wide) / 3 if smooth else float("nan")
        return slope, (4 * noise_n + noise_w) / 3

    def _difference(self, at: int, x: float, h: float) -> tuple[float, float]:
        """Return the slope between x - h and x + h, and its possible rounding error; None if a
        value overflows. A masked value (-inf) is a constant.
        """
        up, down = np.float32(x + h), np.float32(x - h)
        above, below = self._values(at, up), self._values(at, down)
        if np.isposinf(above).any() or not np.isfinite(x):
            return float("nan"), float("nan")
        moved = above != below
        above, below, weights = above[moved], below[moved], self.weights[moved]
        if not (np.isfinite(above).all() and np.isfinite(below).all()):
            return float("nan"), float("nan")
        width = float(up) - float(down)
        size = np.abs(weights * above).sum() + np.abs(weights * below).sum()
        rounding = size * 2.0**-24 * len(self.bench.steps)
        return float((weights * (above - below)).sum() / width), float(rounding / width)

    def _values(self, at: int, x: np.float32) -> Array:
        """Return the result with another x."""
        self.bench.buffer.write(at, np.array([x]).view(np.uint8))
        self.program.run()
        return values_of(self.result)


def _compare(slopes: Slopes, got: Gradients) -> Outcome:
    largest, n_smooth = 0.0, 0
    for i, grad in zip(got.which, got.grads, strict=True):
        some, sampled = slopes.sample(i)
        expected, noise = sampled.T
        values = np.zeros(len(some)) if grad is None else values_of(grad).reshape(-1)[some]
        smooth = np.isfinite(expected)
        n_smooth += int(smooth.sum())
        a, b = expected[smooth], values[smooth]
        size = (np.abs(a) + np.abs(b) + FLOOR).sum()
        if not np.isfinite(b).all():
            return Outcome(Status.FAIL, f"[{i}] {b[~np.isfinite(b)][0]} where the slope is finite ")
        wrong = np.maximum(np.abs(a - b) - noise[smooth], 0).sum()
        error = float(wrong / size) if size else 0.0
        if not error <= MAX_ERROR:
            name = list(got.leaves.inits)[i].name
            return Outcome(Status.FAIL, f"[{name}] MAA = {error:.9g} > {MAX_ERROR:.9g} ", error)
        largest = max(largest, error)
    if not n_smooth:
        return Outcome(Status.NOT_SUPPORTED, "the result is a step function, so it has no gradient")
    return Outcome(Status.OK, "", largest)
