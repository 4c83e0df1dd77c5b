"""Limit of the tokens/s of a planned model on the CPU: bytes of a token at measured rates."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ggml_py.backend import SCATTERED, FileWeight
from ggml_py.backend.planned import PlanningDevice
from ggml_py.errors import BackendError
from ggml_py.ops.traffic import count_bytes
from ggml_py.plan.assign import is_view
from ggml_py.tensor import Tensor
from llama_py_tools.graph.plan import mib

if TYPE_CHECKING:
    from llama_py.fit.planning import PlannedContext


@dataclass(frozen=True, slots=True)
class PlannedSpeed:
    """Bytes of one token in a full context, and measured rates.

    memory, memory_rate  bytes that kernels read and write, and bytes/s
    disk, disk_rate      bytes of the file that a cache misses, and bytes/s
    cached               share of the experts that are in memory
    """

    memory: float
    memory_rate: float
    disk: float = 0.0
    disk_rate: float = 0.0
    cached: float = 1.0

    @property
    def tokens_per_second(self) -> float:
        """Rate if no read overlaps with a computation."""
        disk = self.disk / self.disk_rate if self.disk else 0.0
        return 1 / (self.memory / self.memory_rate + disk)

    def __str__(self) -> str:
        text = (
            f"speed: a token reads {mib(self.memory)} of memory ({self.memory_rate / 1e9:.1f} GB/s)"
        )
        if self.disk:
            text += f" and {mib(self.disk)} of the file ({self.disk_rate / 1e9:.2f} GB/s)"
        text += f": {self.tokens_per_second:.1f} tokens/s"
        if self.disk:
            text += (
                f"; {self.cached:.0%} of the experts are cached; routers that prefer some read less"
            )
        return text


def measure_speed(ctx: PlannedContext) -> PlannedSpeed:
    """Measure the rates of this machine for a planned model.

    Raises BackendError if a part of the model is not on the CPU.
    """
    from llama_py_tools.bench.roofline import common_type, limits

    host = ctx.devices[-1]
    if len(ctx.devices) > 1 or not isinstance(host, PlanningDevice):
        raise BackendError("--speed plans for the CPU alone; omit it, or use -dev cpu")
    graphs = [res for res, *_ in ctx.graphs if res.params.gtype == ctx.gtype]
    graph = min(graphs, key=lambda res: res.params.ubatch.n_tokens).graph
    nodes = [n for n in graph.compute_nodes() if not is_view(n)]
    memory, rate = float(sum(map(count_bytes, nodes))), limits(host.device, common_type(ctx.model))
    stats = ctx.model.expert_stats
    if stats is None:
        return PlannedSpeed(memory, rate.bandwidth)
    used = [(n.source(0), n.source(2).ne[0]) for n in nodes if _reads_experts(n)]
    total = sum(_repacked_bytes(host, w) for w in {id(w): w for w, _ in used}.values())
    cached = min(1.0, stats.memory / total)
    disk = (1 - cached) * sum(w.nbytes / w.ne[2] * n for w, n in used)
    infos = ctx.model.file.tensors
    files = [
        FileWeight(w, path, infos[w.name].offset) for w, _ in used if (path := infos[w.name].path)
    ]
    return PlannedSpeed(memory, rate.bandwidth, disk, host.measure_reads(files), cached)


def as_field(speed: PlannedSpeed | None) -> dict[str, Any]:
    """Return the field of a report as JSON data."""
    if speed is None:
        return {}
    return {"speed": {**asdict(speed), "tokens_per_second": speed.tokens_per_second}}


def as_lines(speed: PlannedSpeed | None) -> list[str]:
    return [] if speed is None else ["", str(speed)]


def _reads_experts(node: Tensor) -> bool:
    return node.op == "MUL_MAT_ID" and node.source(0).layout.endswith(SCATTERED)


def _repacked_bytes(host: PlanningDevice, weight: Tensor) -> int:
    found = host.repacked_layout(Tensor(weight.type, weight.ne, name=weight.name), ("MUL_MAT_ID",))
    return weight.nbytes if found is None else found[1]
