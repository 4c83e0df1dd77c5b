"""Search for the node that made an error: each is computed from the other run's values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import tee
from typing import TYPE_CHECKING

import numpy as np

from ggml_py.backend import Program
from ggml_py.inspection.check import Checker
from ggml_py.inspection.judge import Bound, Error, Values, closest
from ggml_py.tensor import Tensor
from llama_py_tools.graph.diff.found import RunComparison, SharedNode, compare, fill_unwritten
from llama_py_tools.graph.diff.local_run import WatchedRun, put, read_values
from llama_py_tools.graph.diff.numbers import node_type
from llama_py_tools.graph.diff.run import ArrayFile, Key, Read, RecordedRun

if TYPE_CHECKING:
    from ggml_py.backend import Device
    from llama_py import Context

References = Iterator[tuple[Values, Bound]]


def make_known(
    found: RunComparison, ctx: Context, prompt: Sequence[int], n_decode: int
) -> dict[Key, Read]:
    """Run again, compare each value with the other run's value, and replace it by that value.

    Returns:
        Values of nodes that differ and were computed as one step with others.
    """
    nodes = {n.key: n for n in found.nodes}
    values, chosen, again = found.theirs.values, found.theirs.chosen, RecordedRun("again")
    store, steps = ArrayFile(), dict[Key, Read]()

    def look(key: Key, t: Tensor) -> None:
        node = nodes.get(key)
        if node is not None:
            expected = values[key]()
            value = fill_unwritten(again, key, read_values(t, ctx), expected)
            node.made = compare(node, value, expected)
            if node.is_far and len(node.step) > 1:
                steps[key] = store.put(value)
            put(t, expected, node.name)

    WatchedRun(ctx, again, look).decode(prompt, n_decode, chosen)
    found.known = True
    return steps


@dataclass(frozen=True, slots=True)
class Verdict:
    """Errors of a node's value in both runs, ours computed alone. The reference device computes the
    expected values from the same inputs (Checker.references)."""

    ours: Error
    theirs: Error

    def wrong(self, found: RunComparison) -> list[str]:
        """Return which of the two runs is wrong."""
        sides = (self.ours, found.ours.what), (self.theirs, found.theirs.what)
        return [what for error, what in sides if error.problem]

    @property
    def problem(self) -> str:
        return self.ours.problem or self.theirs.problem


class Judge(Checker):
    """Checker that also computes some nodes on the reference."""

    def __init__(self, device: Device, weights: Callable[[str], object], names: set[str]) -> None:
        super().__init__(device, weights)  # type: ignore[arg-type]
        self.names = names
        self.made: dict[int, References] = {}  # keys: ids of nodes

    def wrap_program(self, program: Program, node: Tensor, by: str) -> Program:
        return super().wrap_program(program, node, by) if node.name in self.names else program

    def compare(self, node: Tensor, twin: Tensor, by: str) -> None:
        found = self.references(node, twin)
        self.made[id(node)] = ((values.astype(np.float32), limit) for values, limit in found)


def judge(
    found: RunComparison,
    wanted: Sequence[Key],
    ctx: Context,
    device: Device,
    prompt: Sequence[int],
    n_decode: int,
) -> dict[Key, Verdict]:
    """Return the reference's verdict on nodes; errors that rounding explains are accepted.

    ctx   made with `check`: it computes nodes one by one
    """
    records, verdicts = found.ours.by_key(), dict[Key, Verdict]()
    names, values = {records[key]["name"] for key in wanted}, found.theirs.values
    judging = Judge(device, ctx.model.plain_bytes, names)
    ctx.runner.sched.check = judging

    def look(key: Key, t: Tensor) -> None:
        expected = values[key]() if key in values else None
        right = judging.made.pop(id(t), None)
        if key in wanted and right is not None and expected is not None:
            sides, type = (read_values(t, ctx), expected), node_type(records[key])
            pairs = zip(tee(right), sides, strict=True)
            verdicts[key] = Verdict(*(closest(one, side, type) for one, side in pairs))
        if expected is not None:
            put(t, expected, t.name)

    WatchedRun(ctx, RecordedRun("judged"), look).decode(prompt, n_decode, found.theirs.chosen)
    for node in found.wrong:
        if len(node.step) < 2 and node.key in verdicts and not verdicts[node.key].problem:
            _explain(node, "")
    return verdicts


def doubtful(found: RunComparison, verdicts: Mapping[Key, Verdict]) -> list[SharedNode]:
    """Return nodes of steps that differ, although each node alone is right."""
    return [
        n
        for n in found.wrong
        if len(n.step) > 1 and not any(verdicts[k].problem for k in step_keys(n) if k in verdicts)
    ]


def compare_steps(
    found: RunComparison,
    nodes: Sequence[SharedNode],
    fused: Mapping[Key, Read],
    ctx: Context,
    prompt: Sequence[int],
    n_decode: int,
) -> None:
    """Compare steps with their nodes one by one on the same device, which rounds alike.

    ctx   computes nodes one by one; a step's inputs are the other run's values
    """
    known, asked = {n.key for n in found.nodes}, {n.key: n for n in nodes}
    made: list[tuple[Key, Tensor]] = []

    def look(key: Key, t: Tensor) -> None:
        if key in asked:
            alone = read_values(t, ctx)
            value = fill_unwritten(found.ours, key, fused[key](), alone)
            _explain(asked[key], compare(asked[key], value, alone).problem)
        if key in known:
            made.append((key, t))
        if key[1] == found.ours.steps.get(key, (key[1],))[-1]:
            for one, tensor in made:
                put(tensor, found.theirs.values[one](), tensor.name)
            made.clear()

    WatchedRun(ctx, RecordedRun("one by one"), look).decode(prompt, n_decode, found.theirs.chosen)


def _explain(node: SharedNode, problem: str) -> None:
    """Set the problem of a node's own value; "" if rounding explains it."""
    if node.made is not None and node.rows:
        node.made = replace(node.made, problem=problem)


def step_keys(node: SharedNode) -> list[Key]:
    """Return the node and all nodes computed in the same step."""
    return [(node.key[0], i) for i in node.step] or [node.key]


def nodes_to_check(found: RunComparison) -> list[Key]:
    """Return the nodes to check: wrong nodes, and all nodes of their steps."""
    keys = (key for node in found.wrong for key in step_keys(node))
    return [key for key in dict.fromkeys(keys) if key in found.theirs.values]
