"""Records of planned, optionally timed graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ggml_py.fusion import FusedNodes
from ggml_py.graph import Graph
from ggml_py.plan import Plan
from ggml_py.tensor import Tensor

if TYPE_CHECKING:
    from llama_py import Context
    from llama_py.batch import UBatch
    from llama_py.graph.result import GraphResult
    from llama_py_tools.graph.profile import ProfiledRun

Overlay = dict[str, float]
MANY = 256  # limit of graphs with measurements, which are all shown


@dataclass(slots=True)
class GraphRecord:
    """Graph with data about its nodes.

    what      label: "prompt, 7 tokens", "token 1"
    plan      devices of nodes; None if unknown
    seconds   time of each timed node, by id; kernels: names of its kernels
    overlays  values of other programs, by number of the node: {"error": 1e-3}
    """

    what: str
    graph: Graph
    plan: Plan | None = None
    seconds: dict[int, float] = field(default_factory=dict)
    kernels: dict[int, list[str]] = field(default_factory=dict)
    overlays: dict[int, Overlay] = field(default_factory=dict)

    def devices(self) -> dict[int, str]:
        """Return the device of each node by its id."""
        splits = self.plan.splits if self.plan else []
        return {id(t): split.device.name for split in splits for t in split.nodes}

    def last_of_step(self) -> dict[int, Tensor]:
        """Return the last node of each fused step, by the id of each of its nodes."""
        splits = self.plan.splits if self.plan else []
        steps = [s.match.nodes for p in splits for s in p.steps if isinstance(s, FusedNodes)]
        return {id(t): nodes[-1] for nodes in steps for t in nodes}

    def overwritable_sources(self) -> set[tuple[int, int]]:
        """Return ids of fused nodes and their sources that the result may overwrite."""
        splits = self.plan.splits if self.plan else []
        steps = [s for p in splits for s in p.steps if isinstance(s, FusedNodes)]
        return {(id(t), id(s)) for step in steps for t in step.match.nodes for s in step.spent}

    def overlay_names(self) -> list[str]:
        return list(dict.fromkeys(name for o in self.overlays.values() for name in o))


def plan_graphs(ctx: Context, ids: Sequence[int], n_decode: int) -> list[GraphRecord]:
    """Return the graphs of a prompt and of tokens after it. Planned devices do not compute
    them."""
    found = list[GraphRecord]()

    def on_graph(res: GraphResult, ubatch: UBatch) -> None:
        plan = next(plan for known, plan in ctx.runner.graphs if known is res)
        found.append(GraphRecord("", res.graph, plan))

    ctx.on_graph = on_graph
    count = f"{len(ids)} {'token' if len(ids) == 1 else 'tokens'}"
    if ctx.model.has_encoder:
        ctx.encode(ids)
        _name(found, f"encoder, {count}")
    before = len(found)
    ctx.decode(ids)
    _name(found[before:], f"prompt, {count}")
    for number in range(1, n_decode + 1):
        before = len(found)
        ctx.decode([0])
        _name(found[before:], f"token {number}")
    return found


def time_graphs(ctx: Context, runs: Callable[[], Sequence[ProfiledRun]]) -> list[GraphRecord]:
    """Return the graphs of `runs`, which measures decodes of the context (profile.measure)."""
    ctx.runner.n_graphs = MANY
    found = list[GraphRecord]()
    measured = runs()
    plans = [plan for _, plan in reversed(ctx.runner.graphs)]
    of = {id(t): plan for plan in plans for t in plan.graph.nodes}
    for run in measured:
        ran = {id(plan): plan for s in run.steps if (plan := of.get(id(s.time.node)))}
        parts = {key: GraphRecord("", plan.graph, plan) for key, plan in ran.items()}
        for step in run.steps:
            node = id(step.time.node)
            if node in of:
                part = parts[id(of[node])]
                part.seconds[node] = part.seconds.get(node, 0.0) + step.seconds
                part.kernels.setdefault(node, []).append(step.time.kernel)
        _name([*parts.values()], run.what)
        found += parts.values()
    return found


def _name(parts: Sequence[GraphRecord], what: str) -> None:
    for number, part in enumerate(parts, 1):
        part.what = what if len(parts) == 1 else f"{what}, part {number}"
