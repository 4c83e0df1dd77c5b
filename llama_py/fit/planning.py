"""Planned models and contexts, on devices that only plan: every decision and every size is computed
from a file's metadata.

    devices = stand_ins(["opencl0", "opencl1", "cpu"], [24 << 30, 24 << 30, 64 << 30])
    model = PlannedModel(open_header("model.gguf"), devices, n_gpu_layers=20)
    ctx = PlannedContext(model, n_ctx=32768)
    ctx.memory_breakdown()       # bytes by device
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ggml_py.backend import Device, registry
from ggml_py.backend.planned import PlanningDevice, planning_devices
from ggml_py.backend.registry import gpu_hint
from ggml_py.errors import BackendError
from ggml_py.plan.assign import Causes
from ggml_py.plan.sched import Layout
from ggml_py.tensor import Tensor
from llama_py.context import Context
from llama_py.context.graph_reserve import reserve_params
from llama_py.gguf.file import GGUFFile
from llama_py.graph.result import GraphResult
from llama_py.loading.model import LoadedModel
from llama_py.loading.open import open_model
from llama_py.weights.declarations import DeviceOf, Progress, Readers
from llama_py.weights.placement import devices_in_use
from llama_py.weights.repacking import MemoryLimit


class PlannedModel(LoadedModel):
    """A model on devices of `stand_ins`. Its weights are not read.

    limited  weights that do not fit into the host's memory are not repacked
    readers  the nodes that read a weight, by its id
    """

    limited = False

    def _place(
        self,
        device_of: DeviceOf,
        readers: Readers,
        progress: Progress | None,
        limit: MemoryLimit | None,
    ) -> None:
        self.readers = readers
        super()._place(device_of, readers, progress, limit if self.limited else None)

    @property
    def weights(self) -> list[Tensor]:
        """All that have a place; of tensors on the same bytes of a device, the first declared."""
        return [*{id(t.buffer): t for t in self._weights.all_tensors}.values()]

    def _check_template(self) -> None:
        """Skip the check: planned models do not chat."""


class LimitedModel(PlannedModel):
    """A planned model whose weights stay in the file if the host has too little memory."""

    limited = True


class PlannedContext(Context):
    """A context of a planned model: it counts its memory.

    graphs  the largest graphs, with their layouts, and the cause of each tensor's placement
    """

    def _reserve(self, next_token: GraphResult) -> None:
        self.graphs: list[tuple[GraphResult, Layout, Causes]] = []
        full = reserve_params(self.model, self._graph_params, self.memory, self.cparams)
        for res in (*map(self.model.architecture.graph, full), next_token):
            self.graphs.append((res, *self.runner.explain(res)))


def open_header(path: str | Path) -> GGUFFile:
    """Open a file without its weights' data."""
    file = open_model(path)
    file.forget_data()
    return file


def stand_ins(
    devices: Sequence[str | Device], free: Sequence[int | None] = ()
) -> list[PlanningDevice]:
    """Return planning devices like these, the last being the host, with `free` bytes of memory
    each, or the device's own.

    A device that this machine lacks is a placeholder if its backend knows the ops it can run.
    Raises BackendError for a name that no backend knows.
    """
    found = [_find(d) if isinstance(d, str) else d for d in devices]
    return planning_devices(devices_in_use(found), free)


def _find(name: str) -> Device:
    """Return a device of this machine, or a placeholder if it lacks the device."""
    try:
        return registry.device(name)
    except BackendError:
        absent = registry.absent(name)
        if absent is None:
            raise
        return absent


def gpus(n: int | None = None) -> list[Device]:
    """Return n GPUs: this machine's, then placeholders. None: only this machine's.

    BackendError if no backend knows GPUs.
    """
    backends = registry.backend_names()
    found = [d for b in backends for d in _devices(b) if d.kind == "gpu"]
    stands = ((b, registry.absent(b)) for b in backends)
    able = next((b for b, d in stands if d is not None and d.kind == "gpu"), None)
    while n is not None and len(found) < n:
        another = registry.absent(f"{able}{len(found)}")
        if another is None:
            raise BackendError(
                f"{n} GPUs requested, but no installed backend has a GPU; {gpu_hint()}"
            )
        found.append(another)
    return found[:n]


def _devices(backend: str) -> Sequence[Device]:
    try:
        return registry.devices(backend)
    except BackendError:
        return ()
