"""Assignment of nodes to devices (ggml-backend.cpp:ggml_backend_sched_split_graph, passes 1 to 4).

Devices are numbers, the preferred one first. The last is the host: it has the graph's inputs and
runs nodes that all other devices reject.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ggml_py.backend import Buffer, Device
from ggml_py.errors import BackendError
from ggml_py.graph import Graph
from ggml_py.opspec import OPS
from ggml_py.tensor import FLAG_INPUT, FLAG_WEIGHT, Tensor

NOWHERE = -1

# Reasons for the device of a node or a tensor.
PINNED, MEMORY, INPUT = "pinned", "memory", "input"
WEIGHT, OFFLOADED = "weight", "offloaded"
NEAR, UP, SOURCES, SEEN, READER = "near", "up", "sources", "seen", "reader"
Causes = dict[int, str]

MIN_OFFLOADED_BATCH = 32  # value of ggml's CUDA and Vulkan backends


def is_view(t: Tensor) -> bool:
    """Return True if the tensor needs no computation."""
    return t.op == "NONE" or OPS[t.op].view


def sources(node: Tensor) -> Iterable[Tensor]:
    return (s for s in node.src if s is not None)


def home(t: Tensor) -> Buffer | None:
    """Return the buffer that a tensor, or the tensor it views, already has."""
    return t.buffer if t.view_src is None else t.view_src.buffer


class Devices:
    """Abilities of devices: the nodes they can run, and the buffers they can read.

    compute  one compute buffer of each device
    refused  by id of a node: (device, reason) of the checked devices that cannot run it
    """

    def __init__(self, devices: Sequence[Device], compute: Sequence[Buffer]) -> None:
        self.all = devices
        self.host = len(devices) - 1
        self.refused: dict[int, list[tuple[int, str]]] = {}
        self._reads = [[d.can_read(b) for b in compute] for d in devices]
        self._why: dict[tuple[int, int], str] = {}

    def reads(self, reader: int, owner: int) -> bool:
        """Return True if a device can directly use another one's results."""
        return reader == owner or self._reads[reader][owner]

    def why_not(self, device: int, node: Tensor) -> str:
        """Return "" if the device can run the node (views always can), else the reason."""
        if is_view(node):
            return ""
        key = (device, id(node))
        if key not in self._why:
            reason = self._foreign(device, node) or self.all[device].why_not(node)
            self._why[key] = reason
            if reason:
                self.refused.setdefault(id(node), []).append((device, reason))
        return self._why[key]

    def _foreign(self, device: int, node: Tensor) -> str:
        for s in sources(node):
            if s.layout and s.buffer is not None and not self.all[device].can_read(s.buffer):
                return f"{s} has layout {s.layout} of another device"
        return ""

    def runs(self, device: int, node: Tensor) -> bool:
        return not self.why_not(device, node)

    def weight_device(self, weight: Buffer, node: Tensor) -> int:
        """Return the device for a node with this weight: the first that can read it. For large
        batches, a GPU copies host weights and runs the node instead of the host (op_offload).
        """
        found = self.reader(weight, node)
        if found != self.host or not weight.is_host:
            return found
        if math.prod(node.ne[i] for i in OPS[node.op].batch) < MIN_OFFLOADED_BATCH:
            return found
        gpus = (i for i, d in enumerate(self.all) if d.kind == "gpu" and self.runs(i, node))
        return next(gpus, found)

    def reader(self, buffer: Buffer, node: Tensor) -> int:
        """Return the first device that can read the buffer and run the node, or NOWHERE."""
        for i, d in enumerate(self.all):
            if d.can_read(buffer) and self.runs(i, node):
                return i
        return NOWHERE

    def refusals(self, node: Tensor) -> str:
        """Return the reasons of each device that refused, for messages."""
        refused = self.refused.get(id(node), ())
        return "; ".join(f"{self.all[i].name}: {why}" for i, why in refused)

    def owner_name(self, buffer: Buffer) -> str:
        """Return the devices that can read a buffer, for messages."""
        names = [d.name for d in self.all if d.can_read(buffer)]
        return "/".join(names) or type(buffer).__name__


class Assignment:
    """The device of every tensor of a graph.

    pins   nodes whose device is already decided
    fixed  pinned nodes that do not move up to a device on the same memory
    causes  dict that gets the reason by id of a tensor, if given:
            PINNED     decided before, by pins or fixed
            MEMORY     the device of its memory, or of the memory that it views
            INPUT      the host, which has the inputs of the graph
            WEIGHT     the device of its weight; OFFLOADED: weight copied for a large batch
            NEAR       the device of adjacent nodes
            UP         to a preferred device on the same memory
            SOURCES    the device of most sources
            SEEN       the device of the tensor that it views, or writes into
            READER     the device of its reader
    Raises BackendError for a node that must write to memory that no device can write.
    """

    def __init__(
        self,
        graph: Graph,
        devices: Devices,
        pins: Iterable[tuple[Tensor, int]] = (),
        fixed: Iterable[tuple[Tensor, int]] = (),
        causes: Causes | None = None,
    ) -> None:
        self.devices = devices
        self._causes = causes
        final = {id(t): i for t, i in fixed}
        self._of = {id(t): i for t, i in pins} | final
        if causes is not None:
            causes.update(dict.fromkeys(self._of, PINNED))
        self._nodes = [t for t in graph.nodes if not is_view(t)]
        for t in (*graph.leafs, *graph.nodes):
            if id(t) not in self._of:
                self._set(t, *self._from_memory(t))
        self._expand()
        for node in self._nodes:
            if id(node) not in final:
                self._improve(node)
        for node in graph.nodes:
            self._complete(node)

    def find_device(self, t: Tensor) -> int:
        """Return the device of a tensor; NOWHERE for a node that no device can run."""
        return self._of.get(id(t), NOWHERE)

    def can_read(self, device: int, t: Tensor) -> bool:
        """Return True if a device can use a tensor in its present or future place."""
        buffer = home(t)
        if buffer is not None:
            return self.devices.all[device].can_read(buffer)
        owner = self.find_device(t)
        if owner == NOWHERE and t.view_src is not None:
            owner = self.find_device(t.view_src)
        return owner != NOWHERE and self.devices.reads(device, owner)

    def _set(self, t: Tensor, device: int, cause: str) -> None:
        if device != NOWHERE:
            self._of[id(t)] = device
            if self._causes is not None:
                self._causes[id(t)] = cause

    def _from_memory(self, t: Tensor) -> tuple[int, str]:
        """Pass 1: the device of the tensor's memory, the inputs or its weight; and the reason."""
        buffer, devices = home(t), self.devices
        if buffer is not None:
            found = devices.reader(buffer, t)
            if found == NOWHERE:
                raise BackendError(_stuck(t, buffer, devices))
            return found, MEMORY
        if t.flags & FLAG_INPUT:
            return devices.host, INPUT
        if t.op != "NONE" and OPS[t.op].at_weights:
            for s in sources(t):
                if s.flags & FLAG_WEIGHT and s.buffer is not None:
                    found = devices.weight_device(s.buffer, t)
                    there = found == NOWHERE or devices.all[found].can_read(s.buffer)
                    return found, WEIGHT if there else OFFLOADED
        return NOWHERE, ""

    def _expand(self) -> None:
        """Pass 2: adjacent nodes run together, first with devices other than the host."""
        for without in (self.devices.host, NOWHERE):
            self._spread(self._nodes, without)
            self._spread(reversed(self._nodes), without)

    def _spread(self, nodes: Iterable[Tensor], without: int) -> None:
        current = NOWHERE
        for node in nodes:
            own = self.find_device(node)
            if own != NOWHERE:
                current = NOWHERE if own == without else own
            elif current != NOWHERE and self.devices.runs(current, node):
                self._set(node, current, NEAR)

    def _improve(self, node: Tensor) -> None:
        """Pass 3: up to a preferred device on the same memory; the rest where most sources are."""
        own = self.find_device(node)
        if own == NOWHERE:
            able = [i for i in range(len(self.devices.all)) if self.devices.runs(i, node)]
            if able:
                self._set(node, max(able, key=lambda i: self._n_at_hand(node, i)), SOURCES)
            return
        for i in range(own):
            same = self.devices.reads(i, own) and self.devices.reads(own, i)
            if same and all(self.can_read(i, s) for s in sources(node)):
                if not self.devices.runs(i, node):
                    continue
                self._set(node, i, UP)
                return

    def _n_at_hand(self, node: Tensor, device: int) -> int:
        return sum(self.can_read(device, s) for s in sources(node))

    def _complete(self, node: Tensor) -> None:
        """Pass 4: views on the device of their source, other sources on their first reader's."""
        root = node.view_src
        if root is not None and (is_view(node) or root.buffer is None):
            self._follow_memory(node, root)
        for s in sources(node):
            if self.find_device(s) == NOWHERE:
                known = NOWHERE if s.view_src is None else self.find_device(s.view_src)
                self._set(s, self.find_device(node) if known == NOWHERE else known, READER)
        if is_view(node) and self.find_device(node) == NOWHERE:
            self._set(node, self.devices.host, SEEN)

    def _follow_memory(self, node: Tensor, root: Tensor) -> None:
        """Keep a node that views, or writes into, memory on a device that has that memory."""
        at = self.find_device(root)
        if at == NOWHERE:
            self._set(root, self.find_device(node), READER)
        elif self.find_device(node) == NOWHERE or not self.devices.reads(
            self.find_device(node), at
        ):
            self._set(node, at, SEEN)
            if not self.devices.runs(at, node):
                raise BackendError(_stuck(node, None, self.devices, at))


def _stuck(t: Tensor, buffer: Buffer | None, devices: Devices, at: int = NOWHERE) -> str:
    """Return ggml's error message, with the reason."""
    where = devices.all[at].name if buffer is None else devices.owner_name(buffer)
    why = devices.refusals(t) or "no device in use can read that buffer"
    return (
        f"pre-allocated tensor ({t.name}) in a buffer ({where}) that cannot run the operation"
        f" ({t.op}): {why}; place it on another device"
    )
