"""Graphs of a context: built once per shape, planned on the model's devices, run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

from ggml_py.backend import CompileOptions, Device, SupportsBatchThreads, SupportsKernelCache, Work
from ggml_py.backend.registry import device as find_device
from ggml_py.machine.digest import hex_digest
from ggml_py.machine.garbage import collected_later
from ggml_py.machine.shield import let_through
from ggml_py.plan import Plan
from ggml_py.plan.assign import Causes
from ggml_py.plan.sched import Layout, Scheduler
from ggml_py.plan.taps import Taps
from ggml_py.tensor import Tensor
from llama_py.batch import UBatch
from llama_py.graph.params import GraphParams
from llama_py.graph.result import GraphResult
from llama_py.loading.model import LoadedModel
from llama_py.params import ContextParams
from llama_py.support.progress import progress_callback, show_progress

if TYPE_CHECKING:
    from ggml_py.inspection.check import Checker

log = logging.getLogger("llama_py")

N_GRAPHS = 4  # built graphs to keep for reuse
OnGraph = Callable[[GraphResult, UBatch], None]
WantedOf = Callable[[GraphResult], Taps | None]


def set_threads(devices: Sequence[Device], p: ContextParams) -> None:
    """Set the context's numbers of threads on each device."""
    for device in devices:
        if p.n_threads is not None:
            device.set_threads(p.n_threads)
        if isinstance(device, SupportsBatchThreads):
            device.set_batch_threads(p.n_threads_batch)


class Runner:
    """The scheduler of a context, and the graphs that it has planned.

    graphs    graphs for reuse, the latest first; n_graphs  maximum number of graphs with one token
              per sequence, and of other graphs: prompts do not evict graphs of responses
    n_reused  number of reuses
    n_changes  number of times that another graph became the first one
    checker   counts the nodes that `check` compared
    ubatch    ubatch in computation
    computes  False: graphs are built, but not computed
    """

    def __init__(self, model: LoadedModel, p: ContextParams) -> None:
        self.model = model
        self.graphs: list[tuple[GraphResult, Plan]] = []
        self.n_graphs = N_GRAPHS
        self.ubatch: UBatch | None = None
        self.computes = True
        self._taps: WantedOf | None = None
        self._untapped: list[tuple[GraphResult, Plan]] = []
        self.n_reused = self.n_changes = 0
        self.checker = _checker(model, p.check) if p.check else None
        self.progress, self._several = p.progress, p.n_seq_max > 1
        self._next_token: GraphResult | None = None  # its kernels are not checked yet
        how = CompileOptions(
            progress_callback(p.progress), p.fuse and p.watch is None and not p.check
        )
        devices = list(model.placement.devices)
        self.sched = Scheduler(
            devices,
            how,
            p.watch,
            self.checker,
            parallel=_several_in_flight(model, p),
            together=model.placement.shares_layers,
        )

    @property
    def devices(self) -> Sequence[Device]:
        return self.model.placement.devices

    @property
    def shares_layers(self) -> bool:
        return self.model.placement.shares_layers

    def run(self, params: GraphParams, on_graph: OnGraph | None) -> GraphResult:
        """Compute a ubatch; call on_graph with its graph first."""
        res, plan = self._reusable(params) or let_through(lambda: self._build(params))
        res.set_inputs(params.ubatch)
        return self._compute(res, plan, params.ubatch, on_graph)

    def run_again(self, ubatch: UBatch, on_graph: OnGraph | None) -> GraphResult:
        """Compute the tokens after the tokens of the last `run`, in its graph, which fits them."""
        res, plan = self.graphs[0]
        self.n_reused += 1
        res.follow(ubatch)
        return self._compute(res, plan, ubatch, on_graph)

    def _compute(
        self, res: GraphResult, plan: Plan, ubatch: UBatch, on_graph: OnGraph | None
    ) -> GraphResult:
        if not self.computes:
            return res
        if on_graph is not None:
            let_through(lambda: on_graph(res, ubatch))
        self.ubatch = ubatch
        plan.run()
        return res

    def _reusable(self, params: GraphParams) -> tuple[GraphResult, Plan] | None:
        for i, built in enumerate(self.graphs):
            if built[0].can_reuse(params):
                if i:
                    self.n_changes += 1
                    self.graphs.insert(0, self.graphs.pop(i))
                self.n_reused += 1
                return built
        return None

    @collected_later()
    def _build(self, params: GraphParams) -> tuple[GraphResult, Plan]:
        res = self.model.architecture.graph(params)
        log.debug("graph of %d tokens: %d nodes", params.ubatch.n_tokens, len(res.graph.nodes))
        with show_progress(self.progress):
            plan = self._plan(res, self._taps(res) if self._taps else None)
        built = res, plan
        self.n_changes += 1
        single = _is_single(res)
        alike = [one for one in self.graphs if _is_single(one[0]) == single]
        for old in alike[self.n_graphs - 1 :]:
            self.graphs.remove(old)
        self.graphs.insert(0, built)
        return built

    def set_taps(self, taps: WantedOf | None) -> None:
        """Set a function that chooses taps for each graph. Without taps, the graphs planned earlier
        without taps are used again."""
        self.n_changes += 1
        if self._taps is None:
            self._untapped = self.graphs
        self._taps = taps
        self.graphs = [] if taps else self._untapped

    def reset(self) -> None:
        """Remove taps, and set the counts of a new runner; graphs are kept."""
        self.set_taps(None)
        self._untapped, self.ubatch, self.n_reused = [], None, 0

    def _plan(self, res: GraphResult, taps: Taps | None = None) -> Plan:
        many = res.params.ubatch.n_tokens > 1
        self.sched.options = replace(self.sched.options, many=many)
        return self.sched.plan(res.graph, self._pins(res), self._in_parts(res), taps)

    def steps(self, res: GraphResult) -> list[Work]:
        """Return the steps of a graph in order, each one or several nodes, without running it."""
        work = self.sched.work(res.graph, self._pins(res), self._in_parts(res))
        return [step for _, steps in work for step in steps]

    @collected_later()
    def prepare(self, params: Iterable[GraphParams], key: str = "") -> None:
        """Compile the kernels of all these graphs; the graphs are discarded.

        key   if not empty: name for `Scheduler.has_provided` in later processes
        """
        built = map(self.model.architecture.graph, params)
        with show_progress(self.progress):
            self.sched.provide(((r.graph, self._pins(r), self._in_parts(r)) for r in built), key)

    def graph_key(self, params: GraphParams, shapes: Sequence[tuple[int, int]]) -> str:
        """Return a digest of one graph, and of (tokens, sequences) of graphs made in the same way.

        The graph represents everything else that determines the kernels of the others: the
        model's layers, types of weights and caches, variants of blocks, adapters.
        """
        nodes = [
            (t.op, t.params, [(s.type.name, s.ne, s.layout) for s in (t, *t.src) if s is not None])
            for t in self.model.architecture.graph(params).graph.nodes
        ]
        names = [d.name for d in self.model.devices]
        return hex_digest(repr((nodes, shapes, names, self.sched.options.fuse)).encode())

    def lacks_next(self) -> bool:
        """Return True if the next token may need compiled kernels. Checked once per change; with
        several sequences, it is unknown for one alone."""
        res, self._next_token = self._next_token, None
        if res is None or self._several:
            return res is not None
        work = self.sched.work(res.graph, self._pins(res), self._in_parts(res))
        return any(d.lacks(steps) for d, steps in work if isinstance(d, SupportsKernelCache))

    def _pins(self, res: GraphResult) -> list[tuple[Tensor, Device]]:
        """Return nodes with a fixed device, which the scheduler does not choose
        (llama_context::graph_get_cb)."""
        model = self.model
        pins = [(t, model.placement.host) for t in res.on_host]
        n_layers = len(model.layer_devices)
        full_offload = model.placement.n_offloaded(n_layers - 1) == n_layers
        if full_offload or res.params.ubatch.n_tokens < 32:
            pins += [(t, model.layer_devices[il]) for t, il in res.in_layer]
        return pins

    def _in_parts(self, res: GraphResult) -> list[tuple[Tensor, Device]]:
        """Return nodes of layer parts that devices share, except nodes of keys on the host."""
        group, free = self.model.placement.group, res.of_host_keys
        parts = ((t, group[number]) for t, number in res.in_part if id(t) not in free)
        return [(t, device) for t, device in parts if _can_write(device, t)]

    def unsupported_ops(self, fused: dict[str, list[Tensor]]) -> dict[str, str]:
        """Return the types of fused ops that a device cannot run, with reasons."""
        return {
            kind: f"{d.name}: {why}"
            for d in dict.fromkeys(self._layer_devices())
            for kind, nodes in fused.items()
            for why in filter(None, map(d.why_not, nodes))
        }

    def _layer_devices(self) -> list[Device]:
        place = self.model.placement
        shared = place.group if place.shares_layers else ()
        return [*self.model.layer_devices[:-1], *shared]

    @collected_later()
    def reserve(self, full: list[GraphParams], next_token: GraphResult) -> None:
        """Compute buffers for the largest graphs, so that decode does not allocate."""
        start = perf_counter()
        graphs: dict[int, tuple[int, int]] = {}  # (nodes, splits) by tokens
        n_next = next_token.params.ubatch.n_tokens
        skips = len(self.devices) == 1 and any(p.ubatch.n_tokens > n_next for p in full)
        for res in (*map(self.model.architecture.graph, full), next_token):
            if not (skips and res is next_token):  # needs less memory than the others
                self.sched.reserve(res.graph, self._pins(res), self._in_parts(res))
            if res.params.gtype != "encoder":
                counts = len(res.graph.nodes), self.sched.n_splits
                graphs[res.params.ubatch.n_tokens] = counts
        self._next_token = next_token
        for device, size in zip(self.model.placement.devices, self.compute_sizes(), strict=True):
            log.info(
                "sched_reserve: %10s compute buffer size = %8.2f MiB", device.name, size / 2**20
            )
        for what, counts in zip(
            ("nodes", "splits"), zip(*graphs.values(), strict=True), strict=True
        ):
            same = len(set(counts)) == 1
            each = ", ".join(f"{n} (with bs={bs})" for bs, n in zip(graphs, counts, strict=True))
            log.info("sched_reserve: graph %s = %s", what, counts[0] if same else each)
        log.info(
            "sched_reserve: reserve took %.2f ms, sched copies = %d",
            (perf_counter() - start) * 1e3,
            self.sched.n_copies,
        )

    def explain(self, res: GraphResult) -> tuple[Layout, Causes]:
        """Compute buffers for a graph; how it is laid out, and why (see Scheduler.explain)."""
        return self.sched.explain(res.graph, self._pins(res), self._in_parts(res))

    def compute_sizes(self) -> list[int]:
        """Return the bytes of each device's compute buffer."""
        return self.sched.compute_sizes()


def _is_single(res: GraphResult) -> bool:
    """Return True if a graph has one token per sequence."""
    return res.params.ubatch.n_tokens == res.params.ubatch.n_seqs_unq


def _several_in_flight(model: LoadedModel, p: ContextParams) -> bool:
    """Return True if ubatches may overlap on several devices (llama_context::llama_context). This
    takes memory, and needs all layers on devices.
    """
    place, n_layers = model.placement, len(model.layer_devices)
    everything = place.n_offloaded(n_layers - 1) == n_layers and not place.overrides
    apart = len(place.offload) > 1 and not place.shares_layers
    return apart and everything and p.offload_kqv


def _can_write(device: Device, node: Tensor) -> bool:
    """Return True if a device can access the buffer that a node writes to."""
    buffer = None if node.view_src is None else node.view_src.buffer
    return buffer is None or device.can_read(buffer)


def _checker(model: LoadedModel, device: str) -> Checker:
    """Return a checker on the named device, with the file's unpacked weights."""
    from ggml_py.inspection.check import Checker  # most contexts have no checker

    return Checker(find_device(device), model.plain_bytes)
