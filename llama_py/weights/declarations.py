"""Tensors that a model has declared, and the loading of their bytes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from ggml_py.backend import (
    Buffer,
    Bytes,
    CachesExperts,
    Device,
    ExpertStats,
    FileWeight,
    HostBuffer,
    ReadsFiles,
    SupportsKernelCache,
    SupportsRepacking,
)
from ggml_py.errors import AllocError
from ggml_py.tensor import FLAG_WEIGHT, Tensor
from llama_py.gguf.file import TensorInfo
from llama_py.gguf.tensor_part import TensorCut
from llama_py.params.like import LLAMA_CPP
from llama_py.weights.repacking import HostWeight, MemoryLimit, group_experts, plan_repacking

log = logging.getLogger("llama_py")

Progress = Callable[[int, int, str], None]
Readers = Mapping[int, Sequence[Tensor]]  # nodes that read a weight, by its id
DeviceOf = Callable[[Tensor, Sequence[Tensor]], Device]

SMALL = 64 << 10  # maximum bytes of host copies: a mapped page of the file may take 2 MiB


@runtime_checkable
class TensorFactory(Protocol):
    """Tensors of a file that does not exist: each declaration creates a tensor."""

    def declare(self, name: str, ne: tuple[int, ...], needed: bool) -> None:
        """Note that the model needs this tensor."""


@dataclass(slots=True)
class Declarations:
    """Tensors that all parts of a model have declared.

    tied      (tensor, first tensor with the same bytes)
    cut       parts of split tensors
    rows      parts of matrices with concatenated results
    joined    these matrices, each on the device of its results
    replaced  ids of tensors that are not placed, since they are split
    sizes     bytes of weights by device name
    whole     unsplit tensors by name
    experts   counters of the cache of experts, if they are cached
    copied    tensors with separate copies on devices
    uses      device of each placed tensor and the ops that read it, by id
    ignored   names of tensors that llama.cpp and this model ignore
    restored  names of other tensors that llama.cpp ignores but weights need
    """

    infos: Mapping[str, TensorInfo]
    where: str
    invent: TensorFactory | None = None
    like: str = LLAMA_CPP
    tensors: dict[str, Tensor] = field(default_factory=dict)
    tied: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    skipped: set[str] = field(default_factory=set)
    missing: list[str] = field(default_factory=list)
    misshapen: list[str] = field(default_factory=list)
    cut: list[TensorCut] = field(default_factory=list)
    rows: list[TensorCut] = field(default_factory=list)
    joined: list[TensorCut] = field(default_factory=list)
    replaced: set[int] = field(default_factory=set)
    sizes: dict[str, int] = field(default_factory=dict)
    whole: dict[str, TensorCut] = field(default_factory=dict)
    experts: ExpertStats | None = None
    copied: list[TensorInfo] = field(default_factory=list)
    uses: dict[int, tuple[Device, tuple[str, ...]]] = field(default_factory=dict)
    ignored: dict[str, None] = field(default_factory=dict)
    restored: dict[str, None] = field(default_factory=dict)

    @property
    def placed_tensors(self) -> list[Tensor]:
        """All that have a place, or will."""
        tied = (copy for copy, _ in self.tied)
        whole = [t for t in (*tied, *self.tensors.values()) if id(t) not in self.replaced]
        return [*whole, *(part.tensor for part in (*self.cut, *self.rows))]

    @property
    def places(self) -> dict[str, list[TensorCut]]:
        """Parts of each tensor by name: one if it is whole, else several."""
        found = {name: [one] for name, one in self.whole.items()}
        for one in self.joined:
            found.setdefault(one.info.name, [one])
        for one in self.cut:
            found.setdefault(one.info.name, []).append(one)
        return found

    def place(
        self,
        device_of: DeviceOf,
        readers: Readers,
        progress: Progress | None,
        limit: MemoryLimit | None,
    ) -> None:
        """Place all tensors on devices; see Weights.place."""
        if limit is not None:
            self._check_memory(device_of, readers, limit)
        where = self._put_all(device_of, readers, progress)
        tied = {id(copy) for copy, _ in self.tied}
        placed = self.placed_tensors
        own = {id(t): t.nbytes for t in placed if id(t) not in tied}
        total, done = sum(own.values()), 0
        ops = {id(t): tuple(dict.fromkeys(n.op for n in readers.get(id(t), ()))) for t in placed}
        pairs = [pair for pair in self.tied if pair[0].buffer is pair[1].buffer]
        copies = {id(copy) for copy, _ in pairs}
        for copy, original in pairs:  # tied weights share one layout for all ops
            ops[id(copy)] = ops[id(original)] = (
                *dict.fromkeys([*ops[id(copy)], *ops[id(original)]]),
            )
        self.uses = {key: (where[key], found) for key, found in ops.items()}
        prepared = [t for t in placed if id(t) not in copies]
        if limit is not None:
            stay = self._plan(prepared, where, ops, limit)
            prepared = [t for t in prepared if id(t) not in stay]
        for device in dict.fromkeys(where.values()):
            if isinstance(device, SupportsKernelCache):
                mine = [t for t in prepared if where[id(t)] is device]
                device.prepare_weights([(t, ops[id(t)]) for t in mine])
        prepare = {id(t) for t in prepared}
        for t in placed:
            if id(t) in prepare:
                self._prepare(where[id(t)], t, ops[id(t)])
            if progress is not None and id(t) in own:
                done += own[id(t)]
                progress(done, total, t.name)
        for copy, original in pairs:
            copy.buffer, copy.offset = original.buffer, original.offset
            copy.layout = original.layout
        for info in self.copied:
            info.let_go()  # again: readahead has mapped pages next to other tensors
        self._count(placed, where)

    @contextmanager
    def replaced_bytes(self, changes: Mapping[str, Bytes]) -> Iterator[None]:
        """Give whole tensors other bytes; see Weights.replaced_bytes."""
        kept = [(t, t.buffer, t.offset, t.layout) for t in self.placed_tensors if t.name in changes]
        made: dict[tuple[str, int], Tensor] = {}
        try:
            for t, buffer, _, _ in kept:
                new = made.get((t.name, id(buffer)))
                if new is None:
                    new = made[t.name, id(buffer)] = Tensor(t.type, t.ne, name=t.name)
                    device, ops = self.uses[id(t)]
                    new.buffer = device.alloc(new.nbytes)
                    new.buffer.write(0, changes[t.name])
                    device.prepare_weight(new, ops)
                t.buffer, t.offset, t.layout = new.buffer, new.offset, new.layout
            yield
        finally:
            for t, buffer, offset, layout in kept:
                t.buffer, t.offset, t.layout = buffer, offset, layout

    def _check_memory(self, device_of: DeviceOf, readers: Readers, limit: MemoryLimit) -> None:
        """Raise AllocError if weights that no file has, since reading converts them, need more
        memory than is free."""
        need, hosts = 0, dict[Device, None]()
        for name, t in self.tensors.items():
            if name in self.infos and self.infos[name].path is None:
                device = device_of(t, readers.get(id(t), ()))
                if isinstance(device, SupportsRepacking):
                    need += t.nbytes
                    hosts[device] = None
        free = min(map(limit.free_bytes, hosts), default=need)
        if need > free:
            raise AllocError(
                f"{self.where}: the converted weights need {need / 2**20:.0f} MiB of memory, of "
                f"which {free / 2**20:.0f} MiB are free; quantize them (--quantize Q4_K_M), or use "
                "a GGUF file, of which only a part must be in memory (llama-py-gguf convert)"
            )

    def _plan(
        self,
        weights: Sequence[Tensor],
        where: Mapping[int, Device],
        ops: Mapping[int, tuple[str, ...]],
        limit: MemoryLimit,
    ) -> set[int]:
        """Return the ids of weights that are not repacked, for lack of memory."""
        found: dict[int, HostWeight] = {}
        devices, experts = dict[Device, None](), list[FileWeight]()
        for t in weights:
            device, info = where[id(t)], self.infos.get(t.name)
            if info is None or info.path is None or not isinstance(device, SupportsRepacking):
                continue  # a part, or bytes that are in memory already
            laid_out = device.repacked_layout(t, ops[id(t)])
            if laid_out is not None:
                found[id(t)] = HostWeight(t.name, t.nbytes, laid_out[1])
                devices[device] = None
                if ops[id(t)] == ("MUL_MAT_ID",):
                    experts.append(FileWeight(t, info.path, info.offset))
        if not found:
            return set()
        free, layers = min(map(limit.free_bytes, devices)), group_experts(experts, self.tensors)
        hosts = [d for d in devices if isinstance(d, CachesExperts)] if len(devices) == 1 else []
        plan = plan_repacking(
            [*found.values()], free, lambda n: sum(d.can_cache(layers, n) for d in hosts)
        )
        if plan is None:
            return set()
        log.warning("%s: %s", self.where, plan)
        if plan.cached:
            self.experts = hosts[0].cache_experts(layers, plan.left)
        return {key for key, w in found.items() if w.name in plan.names}

    def _prepare(self, device: Device, t: Tensor, ops: tuple[str, ...]) -> None:
        before = t.buffer
        device.prepare_weight(t, ops)
        if t.buffer is not before:
            self._let_go(t.name)

    def _let_go(self, name: str) -> None:
        """Release a tensor's pages of the file after a device has copied it."""
        if name in self.infos:
            self.infos[name].let_go()
            self.copied.append(self.infos[name])

    def _count(self, placed: Sequence[Tensor], where: Mapping[int, Device]) -> None:
        """Set the sizes; repacked weights may take more than the file's bytes."""
        self.sizes.clear()
        if self.experts is not None:
            host = next(where[id(t)] for t in placed if isinstance(where[id(t)], CachesExperts))
            self.sizes[host.name] = self.experts.memory
        buffers = {id(t.buffer): (where[id(t)].name, t.buffer.size) for t in placed if t.buffer}
        for name, size in buffers.values():
            self.sizes[name] = self.sizes.get(name, 0) + size

    def _put_all(
        self, device_of: DeviceOf, readers: Readers, progress: Progress | None
    ) -> dict[int, Device]:
        """Place every tensor and return its device by id. Remote transfers report progress."""
        where: dict[int, Device] = {}
        total, done = sum(t.nbytes for t in self.placed_tensors), 0

        def put(part: TensorCut) -> None:
            nonlocal done
            self._put(part)
            done += part.tensor.nbytes
            if progress is not None and isinstance(part.device, ReadsFiles):
                progress(done, total, f"{part.device.name} {part.tensor.name}")

        for t in self.tensors.values():
            if id(t) not in self.replaced:
                device = where[id(t)] = device_of(t, readers.get(id(t), ()))
                self.whole[t.name] = TensorCut(t, device, self.infos[t.name])
                put(self.whole[t.name])
        for copy, original in self.tied:
            if id(copy) in self.replaced:
                continue
            device = where[id(copy)] = device_of(copy, readers.get(id(copy), ()))
            if device is where.get(id(original)):
                copy.buffer, copy.offset = original.buffer, original.offset
                copy.flags |= FLAG_WEIGHT
            else:
                put(TensorCut(copy, device, self.infos[copy.name]))
        for part in (*self.cut, *self.rows):
            where[id(part.tensor)] = part.device
            put(part)
        return where

    def _put(self, part: TensorCut) -> None:
        t = part.tensor
        t.buffer, t.offset = self._buffer(part), 0
        t.flags |= FLAG_WEIGHT

    def _buffer(self, part: TensorCut) -> Buffer:
        device, place = part.device, part.file_part()
        if place is not None and isinstance(device, ReadsFiles):
            found = device.from_file(place)
            if found is not None:
                return found
        data = part.data()
        found = device.wrap(data)
        if found is None or (isinstance(found, HostBuffer) and data.size <= SMALL):
            found = device.alloc(data.size)
            found.write(0, data)
            self._let_go(part.tensor.name)
        return found

    def plain_bytes(self, name: str) -> Bytes | None:
        """Return the plain bytes of a tensor; see Weights.plain_bytes."""
        info = self.infos.get(name)
        if info is not None:
            return info.data
        parts = (*self.cut, *self.rows)
        return next((c.data() for c in parts if c.tensor.name == name), None)
