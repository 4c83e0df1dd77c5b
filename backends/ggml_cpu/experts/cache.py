"""The cache: experts of a model in slots, loaded before a layer needs them."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np

from ggml_cpu.experts.disk import READS, DirectFile, staging_bytes
from ggml_cpu.experts.layer import CachedLayer, slot_bytes
from ggml_cpu.experts.loader import CHECK_SECONDS, ExpertLoad, LoaderThreads
from ggml_cpu.experts.policies import POLICIES, Numbers, Policy, Usage, farthest_layer
from ggml_cpu.experts.slots import FREE, Slots
from ggml_py.backend import Bytes, ExpertStats, ExpertWeights, HostBuffer
from ggml_py.errors import AllocError, BackendError
from ggml_py.machine import host
from ggml_py.machine.shield import raise_noted

log = logging.getLogger("llama_py")

POLICY = "least-stale"
WINDOW = 256  # recent layers
LEAST = 64  # the cache shrinks if less memory than its 1/LEAST is available
MEMORY_SECONDS = 0.2  # between checks of the available memory
RARE = 0.004  # share of missing experts below which forecasts take longer than they save


def uses_most(layer: CachedLayer, experts: Numbers) -> bool:
    """Return True if a batch uses most experts of a layer, like a prompt."""
    return 2 * experts.size > layer.n_experts


def slot_counts(layers: Sequence[ExpertWeights], budget: int) -> dict[int, int] | None:
    """Return the number of slots of each size for a budget of bytes; None if a layer does not fit.

    The budget includes the memory of the loading threads. Each size has a share of the budget like
    the share of its experts' bytes.
    """
    if not layers:
        return None
    wanted, least = dict[int, int](), dict[int, int]()
    budget -= READS * max(staging_bytes(w.tensor.nb[2]) for x in layers for w in x.weights)
    for layer in layers:
        tensors = [w.tensor for w in layer.weights]
        size, n = slot_bytes(tensors), tensors[0].ne[2]
        wanted[size] = wanted.get(size, 0) + n
        least[size] = max(least.get(size, 0), n)
    total = sum(size * n for size, n in wanted.items())
    counts = {size: min(n, budget * n // total) for size, n in wanted.items()}
    return counts if all(n >= least[size] for size, n in counts.items()) else None


class ExpertCache:
    """Experts of all layers. Several programs may use it at the same time, in several threads.

    stats   counters since the start
    """

    def __init__(self, layers: Sequence[ExpertWeights], budget: int, policy: str = POLICY) -> None:
        """Scatter the weights of each layer, and read from their files from now on.

        Raises AllocError if the budget is too small for a layer (see `slot_counts`).
        """
        counts = slot_counts(layers, budget)
        if counts is None:
            raise AllocError(
                f"a cache of {budget} bytes is too small for the experts of one layer; raise the "
                "memory limit (--memory), or map the weights (--no-repack)"
            )
        files: dict[Path, DirectFile] = {}
        self.layers, first = list[CachedLayer](), 0
        for number, (weights, router) in enumerate(layers):
            layer = CachedLayer(number, first, weights[0].tensor.ne[2], router)
            for w in weights:
                if w.path not in files:
                    files[w.path] = DirectFile(w.path)
                table = layer.add(w, files[w.path])
                w.tensor.buffer, w.tensor.offset = ScatteredBuffer(table, layer, self), 0
            self.layers.append(layer)
            first += layer.n_experts
        self._slots = {size: Slots(n, size) for size, n in counts.items()}
        self.slot_of = np.full(first, -1)
        self.usage = Usage(np.repeat(np.arange(len(layers)), [x.n_experts for x in self.layers]))
        self.policy = POLICIES[policy]
        self.stats = ExpertStats(sum(s.memory.size for s in self._slots.values()))
        self._changed = threading.Condition()  # guards all but a load's own slot
        self._loads: dict[int, ExpertLoad] = {}
        self._most_experts = {
            size: max(x.n_experts for x in self.layers if x.slot_bytes == size) for size in counts
        }
        self._next_check, self._least_memory = 0.0, self.stats.memory // LEAST
        self._misses = 1.0  # share of recent experts that were missing
        self._loader = LoaderThreads(READS, max(x.memory for x in self.layers))
        for layer in self.layers:
            for expert in range(layer.n_experts):
                layer.set_address(expert, self.slots(layer).address(0))
        weakref.finalize(self, self._loader.stop)

    def begin_use(self) -> CacheUse:
        """Return the use of the cache by one run of a program."""
        return CacheUse(self)

    def slots(self, layer: CachedLayer) -> Slots:
        return self._slots[layer.slot_bytes]

    def next_layer(self, layer: CachedLayer) -> CachedLayer:
        """Return the layer that runs after a layer; after the last, the first."""
        return self.layers[(layer.number + 1) % len(self.layers)]

    def begin(
        self, use: CacheUse, layer: CachedLayer, experts: Numbers, n_tokens: int
    ) -> list[ExpertLoad]:
        """Hold these experts of a layer until `use` continues with another layer or is released.
        Return the loads to wait for."""
        numbers, many = layer.first + experts, uses_most(layer, experts)
        with self._changed:
            is_new_pass = use.begin(layer)
            if is_new_pass:
                self._check_memory()
            self.usage.note(numbers, layer.number, is_new_pass)
            self.stats.n_tokens += n_tokens * is_new_pass
            slots = self.slot_of[numbers]
            missing = numbers[slots < 0]
            self.stats.n_used += numbers.size
            self.stats.n_missed += missing.size
            self._misses += (missing.size / max(1, numbers.size) - self._misses) / WINDOW
            if layer.forecast is not None:
                self.stats.n_forecast += experts.size
                self.stats.n_right += int(np.isin(experts, layer.forecast).sum())
                layer.forecast = None
            if missing.size:
                self._take(use, layer, numbers, missing, many)
            else:
                use.hold(self.slots(layer), slots)
            pending = [self._loads[n] for n in numbers.tolist() if n in self._loads]
        for load in pending:
            self._loader.hurry(load)
        return pending

    def _check_memory(self) -> None:
        """Release slots if the memory has become short, because other processes need more, or the
        limit of the group (cgroup) is lower."""
        if perf_counter() < self._next_check:
            return
        self._next_check = perf_counter() + MEMORY_SECONDS
        available = host.memory()[0]
        if available >= self._least_memory:
            return
        before, lacking = self.stats.memory, 4 * self._least_memory - available
        for size, slots in self._slots.items():
            n = min(-(-lacking // size), slots.n_open - self._most_experts[size])
            found = slots.find(max(0, n), partial(self.policy, self.usage))
            self._evict(slots, found)
            slots.close(found)
            self.stats.memory -= found.size * size
            lacking -= found.size * size
        if self.stats.memory < before:
            log.warning(
                "only %.0f MiB of memory are available: the cache of experts is reduced from %.0f "
                "to %.0f MiB, so tokens read more of the file",
                *(n / 2**20 for n in (available, before, self.stats.memory)),
            )

    def _take(
        self, use: CacheUse, layer: CachedLayer, numbers: Numbers, missing: Numbers, many: bool
    ) -> None:
        """Start loading missing experts, and hold the slots of all. While another run holds too
        many slots, wait without holding any of this layer."""
        slots, policy = self.slots(layer), farthest_layer if many else self.policy
        while True:
            cached = self.slot_of[numbers]
            cached = cached[cached >= 0]
            slots.users[cached] += 1
            missing = numbers[self.slot_of[numbers] < 0]
            found = slots.find(missing.size, partial(policy, self.usage))
            slots.users[cached] -= 1
            if found.size == missing.size:
                break
            self._changed.wait(CHECK_SECONDS)
            raise_noted()  # Ctrl-C
        self._start(layer, missing, found, urgent=True)
        use.hold(slots, self.slot_of[numbers])

    def _start(self, layer: CachedLayer, numbers: Numbers, found: Numbers, urgent: bool) -> None:
        """Start loading experts into slots, and evict their experts."""
        slots = self.slots(layer)
        self._evict(slots, found)
        self.slot_of[numbers], slots.owner[found], slots.loading[found] = found, numbers, True
        for number, slot in zip(numbers.tolist(), found.tolist(), strict=True):
            load = ExpertLoad(partial(self._load, layer), number, slot, len(layer.matrices))
            self._loads[number] = load
            self._loader.add(load, urgent)

    def _evict(self, slots: Slots, which: Numbers) -> None:
        owners = slots.owner[which]
        self.slot_of[owners[owners >= 0]] = -1

    def _load(self, layer: CachedLayer, load: ExpertLoad, part: int, memory: Bytes) -> None:
        """Load one matrix of an expert; after the last, the expert is cached."""
        slots, expert = self.slots(layer), load.expert - layer.first
        try:
            layer.matrices[part].load(expert, slots.view(load.slot), memory)
        except BaseException as e:  # the waiting thread raises it
            load.error = e
        with self._changed:
            load.done += 1
            if load.done < load.parts:
                return
            del self._loads[load.expert]
            slots.loading[load.slot] = False
            if load.error is not None:
                slots.owner[load.slot] = self.slot_of[load.expert] = FREE
            else:
                layer.set_address(expert, slots.address(load.slot))
                self.stats.n_bytes += layer.nbytes
            self._changed.notify_all()
        load.ended.set()

    def foresees(self, layer: CachedLayer) -> bool:
        """Return True if a forecast of a layer is worth its time: experts were missing lately."""
        return layer.router is not None and self._misses > RARE

    def load_ahead(
        self, layer: CachedLayer, experts: Numbers, policy: Policy, least: float = np.inf
    ) -> None:
        """Load experts while the layer before runs. Experts with lower scores than `least` may be
        evicted."""
        numbers = layer.first + experts
        with self._changed:
            missing = numbers[self.slot_of[numbers] < 0]
            score = partial(policy, self.usage)
            found = self.slots(layer).find(missing.size, score, least)
            self._start(layer, missing[: found.size], found, urgent=False)
            self.stats.n_ahead += found.size

    def wait(self, pending: Sequence[ExpertLoad]) -> None:
        """Wait for loads. Raises BackendError if the file cannot be read, KeyboardInterrupt on
        Ctrl-C."""
        start = perf_counter()
        for load in pending:
            load.wait()
        self.stats.wait_seconds += perf_counter() - start
        error = next((load.error for load in pending if load.error is not None), None)
        if error is not None:
            raise error if isinstance(error, BackendError) else BackendError(str(error))


class CacheUse:
    """The part of the cache that a run of a program holds."""

    def __init__(self, cache: ExpertCache) -> None:
        self.cache = cache
        self._layer = -1
        self._held = list[tuple[Slots, Numbers]]()

    def begin(self, layer: CachedLayer) -> bool:
        """Release the slots of other layers; return True if a new pass begins."""
        if layer.number == self._layer:
            return False
        is_new = layer.number < self._layer or self._layer < 0
        self._release()
        self._layer = layer.number
        return is_new

    def hold(self, slots: Slots, which: Numbers) -> None:
        slots.users[which] += 1
        self._held.append((slots, which))

    def release(self) -> None:
        """Release all slots, after a run or an error."""
        with self.cache._changed:
            self._release()
            self._layer = -1

    def _release(self) -> None:
        for slots, which in self._held:
            slots.users[which] -= 1
        if self._held:
            self.cache._changed.notify_all()
        self._held.clear()


class ScatteredBuffer(HostBuffer):
    """The table of a scattered weight.

    layer   its experts;  cache  the ExpertCache, which has the matrices
    """

    __slots__ = ("cache", "layer")

    def __init__(self, table: Bytes, layer: CachedLayer, cache: ExpertCache) -> None:
        super().__init__(table)
        self.layer, self.cache = layer, cache

    @property
    def matrices(self) -> tuple[int, int]:
        """Address and bytes of the slots of the layer's experts."""
        slots = self.cache.slots(self.layer)
        return slots.address(0), slots.memory.size
