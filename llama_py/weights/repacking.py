"""Choice of the weights to repack if the host's memory is too small for all weights.

Repacked weights are a copy in memory that the system cannot drop. Experts that do not fit are read
from the file when a graph needs them, and cached (docs/larger-than-memory.md). Other weights are
mapped: the system reads pages of the file when a kernel needs them, and drops them when memory is
short.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ggml_py.backend import Device, ExpertWeights, FileWeight
from ggml_py.machine import host
from ggml_py.tensor import Tensor
from llama_py.weights.placement import EXPERTS

RESERVE = 256 << 20  # minimum bytes for contexts and later allocations
PART = 8  # by default, contexts have 1/PART of the memory
CACHE = 10  # without repacking all weights, pages of the file need 1/CACHE of the memory
PAGES = 20  # with a cache of experts, other pages of files (libraries, embeddings) need 1/PAGES
ROUTER = "ffn_gate_inp.weight"
_LAYER = re.compile(r"blk\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """Memory of the host that a model may use.

    memory   maximum bytes of this process; 0: the limit of the system and of its groups (cgroups)
    reserve  bytes that are not for weights, but for contexts; None: an eighth, at least 256 MiB
    """

    memory: int = 0
    reserve: int | None = None

    def free_bytes(self, device: Device) -> int:
        """Return the bytes that weights may still take."""
        free = device.memory()[0]
        if self.memory:
            free = min(free, self.memory - host.own_memory())
        return max(0, free - (max(RESERVE, free // PART) if self.reserve is None else self.reserve))


class HostWeight(NamedTuple):
    """A weight of the host: its name, and its bytes in the file and repacked."""

    name: str
    in_file: int
    repacked: int


class _Group(NamedTuple):
    """Weights that are repacked together, because kernels read them together: the experts or the
    other weights of a layer, or (-1) weights of no layer."""

    experts: bool
    layer: int


@dataclass(frozen=True, slots=True)
class RepackingPlan:
    """The weights to repack, and the weights that kernels read from the mapped file.

    free      available bytes
    repacked  bytes of the repacked weights
    mapped    bytes of the other weights;  names  their names
    cached    bytes of a cache for the other weights, which are experts; 0: they are mapped
    left      bytes that the cache may use, with memory for its loads
    """

    free: int
    repacked: int
    mapped: int
    names: frozenset[str]
    cached: int = 0
    left: int = 0

    def __str__(self) -> str:
        layers = {_group(name) for name in self.names}
        experts, dense = ([g.layer for g in layers if g.experts is kind] for kind in (True, False))
        parts = [f"the experts of {_layers(experts)}"] if experts else []
        what = "the other weights" if experts else "the weights"
        parts += [f"{what} of {_layers(dense)}"] if dense else []
        then = "remain in the file, which is slow"
        if self.cached:
            then = f"are read from the file when they are needed; {_size(self.cached)} are cached"
        return (
            f"the weights need {_size(self.repacked + self.mapped)}, but only {_size(self.free)} of"
            f" memory is free: {' and '.join(parts)} ({_size(self.mapped)}) {then};"
            " use a smaller model, type or context"
        )


def plan_repacking(
    weights: Sequence[HostWeight], free: int, cache_bytes: Callable[[int], int] = lambda _: 0
) -> RepackingPlan | None:
    """Return a plan for weights that could all be repacked; None if all fit into `free` bytes.

    Weights that every token needs are repacked first. The experts are cached if the memory after
    that is large enough; else the experts of the first layers are repacked, because each token uses
    few experts of a layer.

    cache_bytes  returns the bytes of a cache of all experts for at most the given bytes, or 0
    """
    total = sum(w.repacked for w in weights)
    if total <= free:
        return None
    groups: dict[_Group, list[HostWeight]] = {}
    for w in weights:
        groups.setdefault(_group(w.name), []).append(w)
    experts = [w for group, found in groups.items() if group.experts for w in found]
    dense = total - sum(w.repacked for w in experts)
    left = free - free // PAGES - dense
    cached = cache_bytes(left) if experts and left > 0 else 0
    if cached:
        names = frozenset(w.name for w in experts)
        return RepackingPlan(free, dense, sum(w.in_file for w in experts), names, cached, left)
    left, stay, mapped = free - free // CACHE, set[str](), 0
    for _, group in sorted(groups.items()):
        size = sum(w.repacked for w in group)
        if size <= left:
            left -= size
        else:
            stay |= {w.name for w in group}
            mapped += sum(w.in_file for w in group)
    repacked = sum(w.repacked for w in weights if w.name not in stay)
    return RepackingPlan(free, repacked, mapped, frozenset(stay))


def group_experts(
    weights: Iterable[FileWeight], tensors: Mapping[str, Tensor]
) -> list[ExpertWeights]:
    """Return the weights of experts that are used together: of one layer, and of one set, with the
    layer's router."""
    found: dict[tuple[int, str], list[FileWeight]] = {}
    for w in weights:
        if group := re.search(EXPERTS, w.tensor.name):
            found.setdefault((_group(w.tensor.name).layer, group[2]), []).append(w)
    return [ExpertWeights(found[key], _router(found[key], tensors)) for key in sorted(found)]


def _router(weights: Sequence[FileWeight], tensors: Mapping[str, Tensor]) -> Tensor | None:
    """Return the matrix of the router [n_embd, n_experts] of a set of experts, or None."""
    one = weights[0].tensor
    router = tensors.get(f"blk.{_group(one.name).layer}.{ROUTER}")
    return router if router is not None and router.ne[1] == one.ne[2] else None


def _group(name: str) -> _Group:
    found = _LAYER.search(name)
    return _Group(re.search(EXPERTS, name) is not None, int(found[1]) if found else -1)


def _layers(numbers: Iterable[int]) -> str:
    """Return `layers 3-5, 7`, or `the output` for -1."""
    runs = list[list[int]]()
    for il in sorted(n for n in numbers if n >= 0):
        if runs and runs[-1][1] == il - 1:
            runs[-1][1] = il
        else:
            runs.append([il, il])
    texts = [f"{a}-{b}" if a < b else f"{a}" for a, b in runs]
    several = len(runs) > 1 or any(a < b for a, b in runs)
    shown = [f"layer{'s' if several else ''} {', '.join(texts)}"] if texts else []
    return " and ".join([*shown, *(["the output"] if -1 in numbers else [])])


def _size(n: int) -> str:
    return f"{n / 2**30:.2f} GiB" if n >= 2**26 else f"{n / 2**20:.2f} MiB"
