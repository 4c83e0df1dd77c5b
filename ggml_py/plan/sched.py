"""Scheduler: devices of nodes, memory of the graph, and the frozen plan (ggml-backend.cpp).

One device needs no assignment and no copies. With several devices, the first is preferred. The last
is the host, which has the inputs and runs the nodes that all others refuse.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ggml_py.backend import (
    AsyncDevice,
    Buffer,
    BuildsAhead,
    CompileOptions,
    Device,
    NotesKernels,
    Program,
    SupportsKernelCache,
    Work,
    plan_steps,
)
from ggml_py.backend.kernels import describe
from ggml_py.errors import UnsupportedOp
from ggml_py.fusion import FusedNodes
from ggml_py.fusion.uses import Uses
from ggml_py.graph import Graph
from ggml_py.plan.alloc import MemoryPlan, plan_memory
from ggml_py.plan.assign import Assignment, Causes, Devices, is_view
from ggml_py.plan.collective import AllReduce, Gather, KnowsOthers
from ggml_py.plan.device_threads import DeviceThreads
from ggml_py.plan.order import stored_early
from ggml_py.plan.pipeline import MAX_COPIES, GraphPipeline, PipelinedPlan
from ggml_py.plan.plan import Plan, PlanInWaves, Plans, Split
from ggml_py.plan.split import GraphPart, Splitter
from ggml_py.plan.taps import Taps, cut, hold_sources, keeps_sources, split_taps
from ggml_py.plan.waves import in_waves
from ggml_py.tensor import FLAG_COMPUTE, Tensor

if TYPE_CHECKING:
    from ggml_py.inspection.check import Checker

log = logging.getLogger("llama_py")

Pins = Iterable[tuple[Tensor, Device]]


@dataclass(frozen=True, slots=True)
class Layout:
    """A graph cut into parts, and the offsets of its tensors.

    waves  the parts that run at the same time
    undo   lets the nodes read their own sources again, not copies
    assignment  of several devices
    """

    parts: list[GraphPart]
    waves: list[list[GraphPart]]
    memory: MemoryPlan
    undo: Callable[[], None]
    assignment: Assignment | None = None


class Scheduler:
    """Places graphs on devices and owns their compute buffers, which grow to the largest graph.

    watch     called with each node's tensor after it is computed, views included; nodes then run
              one by one, and sources still have the values that the node read
    check     compares each node with another device's result; nodes then run one by one
    parallel  run several graphs at once if all devices but the host are asynchronous
    n_copies  copies of graph inputs and of tensors between devices: 1 without `parallel`
    together  run devices at the same time if they do not read each other's results
    all_reduce  transport for a REDUCE with parts in several memories
    n_splits  splits of the last planned or reserved graph
    """

    def __init__(
        self,
        devices: list[Device],
        options: CompileOptions | None = None,
        watch: Callable[[Tensor], None] | None = None,
        check: Checker | None = None,
        parallel: bool = False,
        together: bool = False,
        all_reduce: AllReduce | None = None,
    ) -> None:
        self.devices = devices
        self.options = options or CompileOptions()
        self.watch = watch
        self.check = check
        self.n_splits = 0
        able = all(isinstance(d, AsyncDevice) for d in devices[:-1])
        self._one_by_one = watch is not None or check is not None
        alone = len(devices) == 1 or self._one_by_one
        self._pipeline = GraphPipeline() if parallel and able and not alone else None
        self.n_copies = MAX_COPIES if self._pipeline else 1
        self.together = together and not alone
        self._threads = DeviceThreads()
        self._anyhow = all_reduce is not None
        known = (d.all_reduce for d in devices if isinstance(d, KnowsOthers))
        self._all_reduce = all_reduce or next(known, None) or Gather(self.options)
        self._buffers: dict[int, Buffer] = {}  # by arena number, see Splitter
        self._told: set[tuple[str, str]] = set()

    def reserve(self, graph: Graph, pins: Pins = (), fixed: Pins = ()) -> list[int]:
        """Make the compute buffers large enough for this graph; return their sizes in bytes, by
        device. The graph is unchanged. Raises BackendError if its kernels cannot be compiled.
        """
        self._reserve(graph, pins, fixed)
        return self.compute_sizes()

    def work(
        self, graph: Graph, pins: Pins = (), fixed: Pins = ()
    ) -> list[tuple[Device, list[Work]]]:
        """Reserve memory like `reserve`, and return the work of each device."""
        return self._work(self._reserve(graph, pins, fixed))

    def _work(self, layout: Layout) -> list[tuple[Device, list[Work]]]:
        return [(self.devices[part.device], part.steps) for part in layout.parts]

    def _reserve(
        self, graph: Graph, pins: Pins, fixed: Pins, causes: Causes | None = None
    ) -> Layout:
        layout = self._lay_out(graph, pins, fixed, 0, causes=causes)
        layout.undo()
        for part in layout.parts:
            device = self.devices[part.device]
            if isinstance(device, BuildsAhead):
                device.build(part.steps, self.options)
        n = len(self.devices)
        for arena, size in enumerate(layout.memory.sizes):
            copies = self.n_copies if arena >= n else 1
            for number in range(copies if size else 0):
                self._buffer(arena + n * number, size)
        return layout

    def explain(self, graph: Graph, pins: Pins = (), fixed: Pins = ()) -> tuple[Layout, Causes]:
        """Reserve memory like `reserve`; return the layout of the graph and the reason for each
        tensor's device, see Assignment."""
        causes: Causes = {}
        return self._reserve(graph, pins, fixed, causes), causes

    def provide(self, graphs: Iterable[tuple[Graph, Pins, Pins]], key: str = "") -> None:
        """Compile all kernels that these graphs need, with their pins; the graphs are unchanged.

        Raises BackendError if a kernel does not compile.

        key   name under which `has_provided` finds the kernels in later processes; "": no name
        """
        work: dict[str, tuple[Device, list[Work]]] = {}
        for graph, pins, fixed in graphs:
            layout = self._lay_out(graph, pins, fixed, 0)
            layout.undo()
            for device, steps in self._work(layout):
                work.setdefault(device.name, (device, []))[1].extend(steps)
        for device, steps in work.values():
            if isinstance(device, BuildsAhead):
                device.build(steps, self.options)
            elif isinstance(device, SupportsKernelCache):
                device.provide(steps, self.options)
        for device in self.devices:
            if key and isinstance(device, NotesKernels):
                device.note(key, work.get(device.name, (device, []))[1])

    def has_provided(self, key: str) -> bool:
        """Return True if `provide` was called with a key and all its kernels are cached."""
        keep = [d for d in self.devices if isinstance(d, SupportsKernelCache)]
        return all(isinstance(d, NotesKernels) and d.has_noted(key) for d in keep)

    @property
    def buffers(self) -> list[Buffer]:
        """The compute buffers."""
        return [*self._buffers.values()]

    def compute_sizes(self) -> list[int]:
        """Return the bytes of the compute buffers, by device."""
        sizes = [0] * len(self.devices)
        for arena, buffer in self._buffers.items():
            sizes[arena % len(sizes)] += buffer.size
        return sizes

    def plan(
        self, graph: Graph, pins: Pins = (), fixed: Pins = (), taps: Taps | None = None
    ) -> Plan:
        """Assign, allocate and compile; UnsupportedOp lists each node that no device can run.

        pins   (node, device) pairs: run a node on a device that supports it
        fixed  pinned nodes that do not move up to another device on the same memory
        taps   values to report from each run

        With several devices, nodes are changed to read copies of tensors on other devices.
        """
        number = self._pipeline.next_copy() if self._pipeline else 0
        if taps is not None:
            taps = split_taps(taps, graph)
        layout = self._lay_out(graph, pins, fixed, number, taps)
        memory = layout.memory
        used = sorted({arena for _, arena, _ in memory.placed})
        buffers = {arena: self._buffer(arena, memory.sizes[arena]) for arena in used}
        for tensor, arena, offset in memory.placed:
            tensor.buffer, tensor.offset = buffers[arena], offset
        for t in graph.nodes:
            if t.view_src is not None:
                t.buffer, t.offset = t.view_src.buffer, t.view_src.offset + t.view_offs
        splits = [split for part in layout.parts for split in self._splits(part)]
        for step in (step for part in layout.parts for step in part.steps):
            if isinstance(step, FusedNodes):
                step.match.settle()
        if taps is not None:
            splits[-1] = replace(splits[-1], reported=(*splits[-1].reported, *taps.read))
            return Plan(graph, splits, self._tell_both(taps))
        if self._pipeline is not None:
            return PipelinedPlan(graph, splits, self._pipeline, number)
        own = next((d for d in self.devices if isinstance(d, Plans)), None)
        if own is not None and not self._one_by_one:
            return own.plan(graph, splits)
        if self.together:
            number_of = {id(part): i for i, part in enumerate(layout.parts)}
            waves = [[number_of[id(part)] for part in wave] for wave in layout.waves]
            return PlanInWaves(graph, splits, waves, self._threads)
        return Plan(graph, splits, self.watch)

    def _tell_both(self, taps: Taps) -> Callable[[Tensor], None]:
        watch = self.watch
        if watch is None:
            return taps.tell

        def tell(t: Tensor) -> None:
            taps.tell(t)
            watch(t)

        return tell

    def why_not(self, node: Tensor) -> str:
        """Return "" if some device can run the node, else each device's reason."""
        reasons = []
        for d in self.devices:
            reason = d.why_not(node)
            if not reason:
                return ""
            reasons.append(f"{d.name}: {reason}")
        return "; ".join(reasons)

    def _lay_out(
        self,
        graph: Graph,
        pins: Pins,
        fixed: Pins,
        number: int,
        taps: Taps | None = None,
        causes: Causes | None = None,
    ) -> Layout:
        """Lay out a graph in splits.

        number   of the copies in a pipeline
        taps     settled: the graph is cut after each stop; its parts run one after the other
        causes   see Assignment"""
        alignments = tuple(d.alignment for d in self.devices)
        stops, held = (taps.stops, [*taps.sources]) if taps is not None else ((), [])
        if self.watch is not None:
            held += filter(keeps_sources, graph.compute_nodes())
        if len(self.devices) == 1:
            _refuse((t, self.why_not(t)) for t in graph.compute_nodes())
            self.n_splits = 1
            ordered = self._order(graph, lambda _: 0)
            parts = (
                cut([GraphPart(0, ordered.nodes)], stops)
                if stops
                else [GraphPart(0, ordered.nodes)]
            )
            ordered = hold_sources(ordered, held) if held else ordered
            fused = self._fuse(parts, ordered)
            inputs = {id(t): 1 for t in graph.leafs}  # separate: computed values fill whole pages
            memory = plan_memory(ordered, inputs, alignments * 2, fused, self._room(2))
            return Layout(parts, [parts], memory, lambda: None)
        assignment = self._assign(graph, pins, fixed, causes)
        ordered, copy = (
            self._order(graph, assignment.find_device),
            number if self._pipeline else None,
        )
        splitter = Splitter(ordered, assignment, copy, self._anyhow)
        self.n_splits = len(splitter.parts)
        parts = cut(splitter.parts, stops) if stops else splitter.parts
        together = self.together and not stops
        waves = in_waves(parts) if together else [[part] for part in parts]
        whole = splitter.with_copies(waves)
        whole = hold_sources(whole, held) if held else whole
        arenas = alignments * (1 + self.n_copies)
        fused, room = self._fuse(parts, whole), self._room(len(arenas))
        memory = plan_memory(whole, splitter.arena_of, arenas, fused, room)
        return Layout(parts, waves, memory, splitter.undo, assignment)

    def _order(self, graph: Graph, device_of: Callable[[Tensor], int]) -> Graph:
        """Return the graph in execution order; unchanged if each node is observed."""
        return graph if self._one_by_one else stored_early(graph, device_of)

    def _fuse(self, parts: list[GraphPart], whole: Graph) -> list[FusedNodes[Any]]:
        """Set the steps of each part; return the steps of several nodes."""
        uses = Uses(whole.nodes) if self.options.fuse and not self._one_by_one else None
        for part in parts:
            nodes, device = _computed_nodes(part.nodes), self.devices[part.device]
            part.steps = [*nodes] if uses is None else plan_steps(device, nodes, uses)
        return [step for part in parts for step in part.steps if isinstance(step, FusedNodes)]

    def _assign(self, graph: Graph, pins: Pins, fixed: Pins, causes: Causes | None) -> Assignment:
        devices = Devices(self.devices, self._samples)
        index = {id(d): i for i, d in enumerate(self.devices)}
        allowed, final = (
            [(t, index[id(d)]) for t, d in pairs if not d.why_not(t)] for pairs in (pins, fixed)
        )
        assignment = Assignment(graph, devices, allowed, final, causes)
        computed = graph.compute_nodes()
        _refuse((t, devices.refusals(t)) for t in computed if assignment.find_device(t) < 0)
        for t in computed:
            self._tell(t, assignment)
        return assignment

    def _tell(self, node: Tensor, assignment: Assignment) -> None:
        """Log, once for an op, that a device left it to another, and why."""
        chosen = assignment.find_device(node)
        for i, reason in assignment.devices.refused.get(id(node), ()):
            refuser = self.devices[i].name
            if i < chosen and (node.op, refuser) not in self._told:
                self._told.add((node.op, refuser))
                name = self.devices[chosen].name
                log.info(
                    "%s runs on %s, because %s does not support it: %s",
                    node.op,
                    name,
                    refuser,
                    reason,
                )

    def _splits(self, part: GraphPart) -> list[Split]:
        device = self.devices[part.device]
        if part.group is not None:
            group = [None if i is None else self.devices[i] for i in part.group]
            program = self._all_reduce.all_reduce(part.nodes[0], group)
            return [Split(device, part.nodes, part.inputs, part.steps, program, part.reported)]
        if not self._one_by_one:
            program = device.compile(part.steps, self.options)
            return [Split(device, part.nodes, part.inputs, part.steps, program, part.reported)]
        splits = [self._split(device, t) for t in part.nodes]
        splits[0].inputs.extend(part.inputs)
        return splits

    def _split(self, device: Device, node: Tensor) -> Split:
        """Return a split of one node, checked if requested."""
        steps: list[Work] = [*_computed_nodes([node])]
        program: Program = device.compile(steps, self.options)
        if self.check is not None and steps:
            program = self.check.wrap_program(program, node, device.name)
        return Split(device, [node], [], steps, program, [node])

    @cached_property
    def _samples(self) -> list[Buffer]:
        """A little memory of each device, to ask the others whether they can read such."""
        return [d.alloc(d.alignment) for d in self.devices]

    def _room(self, n_arenas: int) -> list[int]:
        """Return the bytes of the existing buffers."""
        return [self._buffers[i].size if i in self._buffers else 0 for i in range(n_arenas)]

    def _buffer(self, arena: int, size: int) -> Buffer:
        buffer = self._buffers.get(arena)
        if buffer is None or buffer.size < size:
            device = self.devices[arena % len(self.devices)]
            buffer = self._buffers[arena] = device.alloc(size)
        return buffer


def _computed_nodes(nodes: list[Tensor]) -> list[Tensor]:
    return [t for t in nodes if t.flags & FLAG_COMPUTE and not is_view(t)]


def _refuse(nodes: Iterable[tuple[Tensor, str]]) -> None:
    """Raise UnsupportedOp for the nodes that have a reason."""
    refused = [(t, why) for t, why in nodes if why]
    if refused:
        lines = [f"{t.name}: {describe(t)}: {why}" for t, why in refused[:5]]
        more = f" (and {len(refused) - 5} more)" if len(refused) > 5 else ""
        raise UnsupportedOp("no device supports " + "; ".join(lines) + more)
