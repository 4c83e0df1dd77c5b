"""Which node made an error: each is given the other run's values, and asked for its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ggml_py.backend import Program
from ggml_py.check import Checker
from ggml_py.tensor import Tensor, numpy_dtype
from llama_py_tools.graph.diff.found import Found, compare, written
from llama_py_tools.graph.diff.numbers import Values, error_of, is_whole
from llama_py_tools.graph.diff.own import Watched, replace, values_of
from llama_py_tools.graph.diff.run import Key, Run

if TYPE_CHECKING:
    from ggml_py.backend import Device
    from llama_py import Context

def make_known(found: Found, ctx: Context, prompt: Sequence[int], n_decode: int) -> None:
    """Run again; each value is compared with the other run's, and replaced by it."""
    nodes = {n.key: n for n in found.nodes}
    values, chosen, again = found.theirs.values, found.theirs.chosen, Run("again")

    def look(key: Key, t: Tensor) -> None:
        node = nodes.get(key)
        if node is not None:
            expected = values[key]()
            value = written(again, key, values_of(t, ctx), expected)
            node.made = compare(node, value, expected)
            replace(t, expected, node.name)

    Watched(ctx, again, look).decode(prompt, n_decode, chosen)
    found.known = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the reference device makes of a node's inputs: NMSE of ours, computed alone, and of the
    other run's value from that, with activations rounded as ours may be (Checker.references).

    limit    what rounding explains
    rounded  NMSE of ours, computed alone, from what the reference makes of them as they are
    """

    ours: float
    theirs: float
    limit: float
    rounded: float

    def wrong(self, found: Found) -> list[str]:
        """Which of the two runs."""
        sides = (self.ours, found.ours.what), (self.theirs, found.theirs.what)
        return [what for error, what in sides if not error <= self.limit]


class Judge(Checker):
    """Has some nodes computed by the reference, too."""

    def __init__(self, device: Device, weights: Callable[[str], object], names: set[str]) -> None:
        super().__init__(device, weights)  # type: ignore[arg-type]
        self.names = names
        self.made: dict[int, list[tuple[Values, float]]] = {}  # by id of the node, with bounds

    def checked(self, program: Program, node: Tensor, by: str) -> Program:
        return super().checked(program, node, by) if node.name in self.names else program

    def compare(self, node: Tensor, twin: Tensor, by: str) -> None:
        if numpy_dtype(twin) is not None:
            found = self.references(node, twin)
            self.made[id(node)] = [(values.astype(np.float32), limit) for values, limit in found]


def judge(
    found: Found, wanted: Sequence[Key], ctx: Context, device: Device, prompt: Sequence[int],
    n_decode: int,
) -> dict[Key, Verdict]:  # fmt: skip
    """What the reference says of nodes.

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
            whole, sides = is_whole(records[key]), (values_of(t, ctx), expected)
            errors = [[error_of(r, x, whole).nmse for r, _ in right] for x in sides]
            verdicts[key] = Verdict(min(errors[0]), min(errors[1]), right[0][1], errors[0][0])
        if expected is not None:
            replace(t, expected, t.name)

    Watched(ctx, Run("judged"), look).decode(prompt, n_decode, found.theirs.chosen)
    for node in found.wrong:
        keys = [(node.key[0], i) for i in node.step] or [node.key]
        about = [verdicts[key] for key in keys if key in verdicts]
        if not any(v.wrong(found) for v in about):  # rounding explains as much of the step
            node.bound = max(node.bound, 4 * sum(v.rounded for v in about))
    return verdicts


def wanted(found: Found) -> list[Key]:
    """Nodes to ask of: those that are wrong, with those that were computed with them."""
    keys: list[Key] = []
    for node in found.wrong:
        dec = node.key[0]
        keys += [(dec, i) for i in node.step] or [node.key]
    return [key for key in dict.fromkeys(keys) if key in found.theirs.values]
