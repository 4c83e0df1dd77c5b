"""Graph on several devices that share layers, with each tensor on the devices that need it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from ggml_py.ops import all_reduce, cast, concat, reduce_part
from ggml_py.opspec import OPS
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F32
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import HParams
from llama_py.memory.specs import BASE

REDUCED_AS_F32 = 32  # maximum tokens; partial sums of more tokens are exchanged in a smaller type
_NUMBER = re.compile(r"-(\d+)$")

Input = TypeVar("Input")


def il_cb(il: int, part: int) -> int:
    """Return the number in the names of a layer's tensors on one device (ik_llama.cpp's il_cb)."""
    return 1000 * il + part if il >= 0 else il


class PartBuilder(GraphBuilder):
    """Graph builder of one device's blocks: its sizes and memory; names have its number. Inputs are
    the whole graph's.
    """

    def __init__(self, whole: GraphBuilder, hp: HParams, number: int, memory: int) -> None:
        """Wrap a builder; number: of the device in its group; memory: among all, see
        `KVCacheSpec.part`."""
        self.__dict__.update(whole.__dict__)
        self.whole, self.hp, self.number, self.memory = whole, hp, number, memory
        self._shared: dict[str, Any] = {}
        self._mine: dict[int, Any] = {}

    def cb(self, t: Tensor, name: str, il: int = -1) -> Tensor:
        name = self.names.get(name, name)
        if name:
            t.name = f"{name}-{il_cb(il, self.number)}" if il >= 0 else name
        return t

    def _localize_input(self, inp: Input) -> Input:
        """Return an input with this device's memory."""
        if id(inp) not in self._mine:
            mine: Any = copy(inp)
            mine.mctx = mine.mctx.select_part(self.memory)
            self._mine[id(inp)] = mine
        found: Input = self._mine[id(inp)]
        return found

    @property
    def inp_pos(self) -> Tensor:
        return self.whole.inp_pos

    @property
    def inp_out_ids(self) -> Tensor:
        return self.whole.inp_out_ids

    @property
    def inp_rs(self) -> Any:
        return self._localize_input(self.whole.inp_rs)

    @property
    def inp_slots(self) -> Any:
        return self._localize_input(self.whole.inp_slots)

    @property
    def inp_cross(self) -> Any:
        return self.whole.inp_cross

    def inp_cache(self, part: str = BASE, f16: bool = False) -> Any:
        return self._localize_input(self.whole.inp_cache(part, f16))

    def inp_no_cache(self, window: Any) -> Any:
        return self.whole.inp_no_cache(window)

    def get_shared(self, key: str) -> Any:
        return self._shared[key] if key in self._shared else self.whole.get_shared(key)


@dataclass(slots=True)
class Group:
    """The devices that share layers.

    hparams   sizes of each device's part
    replicas  weights that are equal on all devices, by name in the file, for each device
    first     number of devices in earlier groups, which have earlier layers
    layers    numbers of its layers
    """

    hparams: Sequence[HParams]
    replicas: Sequence[dict[str, Tensor]] = field(default_factory=list)
    first: int = 0
    layers: frozenset[int] = frozenset()

    @property
    def n(self) -> int:
        return len(self.hparams)


class Spread:
    """One graph's tensors on the devices of a group. The first device, the main one, also has
    tensors that are not split. The scheduler copies tensors from the layers of other groups.
    """

    def __init__(self, g: GraphBuilder, group: Group, before: Spread | None) -> None:
        """Start a group; before: spread of the group of the preceding layers."""
        self.g, self.group, self.before = g, group, before
        self.parts = [PartBuilder(g, hp, i, group.first + i) for i, hp in enumerate(group.hparams)]
        self._sums: dict[int, Tensor] = {}  # REDUCE by id of a block's result
        self._at: dict[tuple[int, int], Tensor] = {}
        self._follows: dict[int, bool] = {}
        self._own: dict[int, bool] = {}
        self._first: set[int] = set()
        self._norms: set[int] = set()  # norms in the group's layers
        self._n_seen = 0  # norms of all layers

    @classmethod
    def for_graph(cls, g: GraphBuilder, group: Group) -> Spread:
        """Return the spread of a graph."""
        spreads: dict[int, Spread] = g.shared("spreads", dict)
        if group.first not in spreads:
            spreads[group.first] = cls(g, group, [None, *spreads.values()][-1])
        return spreads[group.first]

    def build(self, number: int, make: Any) -> Tensor:
        """Expand a tensor built by `make`; assign all its new nodes to that device."""
        nodes = self.g.gf.nodes
        first = len(nodes)
        made: Tensor = self.g.expand(make())
        self.g.res.in_part += [(t, self.group.first + number) for t in nodes[first:]]
        return made

    def get_replica(self, t: Tensor, number: int) -> Tensor:
        """Return a tensor on a device. Results of simple ops on sums are computed there again;
        others are copied by the scheduler.
        """
        if t.op == "NONE":
            return self.group.replicas[number].get(t.name, t)
        if number == 0 or not self._follows_sums(t) or id(t) in self._first:
            return t
        key = (id(t), number)
        if key not in self._at:
            total = self._sums.get(id(t))
            if total is None:
                self._at[key] = self._recompute(t, number)
            else:
                self._at[key] = self._part(total, number, t)
        return self._at[key]

    def _follows_sums(self, t: Tensor) -> bool:
        """Return True if t depends on the group's sums, or precedes the first sum."""
        found = self._follows.get(id(t))
        if found is None:
            if self._is_replicated_input(t):
                found = True
                self._first.add(id(t))
            elif _is_simple(t):
                found = any(self._follows_sums(s) for s in t.src if s is not None)
            else:
                found = t.op != "NONE" and not self._sums
                if found:
                    self._first.add(id(t))
            self._follows[id(t)] = found
        return found

    def _is_replicated_input(self, t: Tensor) -> bool:
        """Return True if the preceding group's devices each compute it."""
        before = self.before
        if before is None or t.op == "NONE" or self._is_own(t):
            return False
        return before._follows_sums(t)

    def _is_own(self, t: Tensor) -> bool:
        """Return True if t depends on this group's sums, on its layers' first norms, or on its
        devices' weights."""
        found = self._own.get(id(t))
        if found is None:
            sources = [s for s in t.src if s is not None]
            if id(t) in self._sums or id(t) in self._own_norms():
                found = True
            elif self.before is not None and id(t) in self.before._follows:
                found = False
            elif any(s.op == "NONE" and s.name in self.group.replicas[-1] for s in sources):
                found = True
            else:
                found = _is_simple(t) and any(self._is_own(s) for s in sources if s.op != "NONE")
            self._own[id(t)] = found
        return found

    def _own_norms(self) -> set[int]:
        """Return ids of the group's norms that the graph has now."""
        norms = self.g.res.in_layer
        new, self._n_seen = norms[self._n_seen :], len(norms)
        self._norms |= {id(t) for t, il in new if il in self.group.layers}
        return self._norms

    def _recompute(self, t: Tensor, number: int) -> Tensor:
        """Compute a node again on another device."""
        src = tuple(None if s is None else self.get_replica(s, number) for s in t.src)
        name = _NUMBER.sub(lambda m: f"-{il_cb(int(m[1]), number)}", t.name)
        base, offset, old = None, 0, t.src[0]
        if t.view_src is not None and old is not None:
            base, offset = src[0], t.view_offs - (old.view_offs if old.view_src else 0)
        return Tensor(t.type, t.ne, t.op, src, t.params, name, t.nb, base, offset)

    def all_reduce(self, parts: Sequence[Tensor | None]) -> Tensor:
        """Sum partial results [n_embd, n]; `at` returns each device's copy."""
        kind = BY_NAME[self.g.cparams.reduce_type]
        first = next(t for t in parts if t is not None)
        whole_blocks = first.ne[0] % kind.block_size == 0
        if kind is not F32 and first.ne[1] > REDUCED_AS_F32 and whole_blocks:
            parts = [
                None if t is None else self.build(i, partial(cast, t, kind))
                for i, t in enumerate(parts)
            ]
        order = [*range(1, len(parts)), 0]  # the result is on the device of the last part
        last = [i for i in order if parts[i] is not None][-1]
        total = self.build(last, lambda: all_reduce([parts[i] for i in order]))
        cur = self.build(0, lambda: self._part(total, 0, first))
        self._sums[id(cur)] = total
        self._follows[id(cur)] = True
        return cur

    def _part(self, total: Tensor, number: int, like: Tensor) -> Tensor:
        """Return a device's copy of a sum; if it had no part, the result itself."""
        i = (number - 1) % self.group.n
        cur = total if total.src[i] is None else reduce_part(total, i)
        return cur if cur.type is like.type else cast(cur, like.type)

    def side_by_side(self, parts: Sequence[Tensor]) -> Tensor:
        """Concatenate rows of results [n_i, ...] on the main device. -> [sum of n_i, ...]"""
        whole = parts[0]
        for t in parts[1:]:
            whole = self.build(0, partial(concat, whole, t, 0))
        return whole


def _is_simple(t: Tensor) -> bool:
    """Return True if computing it again costs less than a copy: rows only, with no weight except a
    norm's or a sum's."""
    first = t.src[0] if t.src else None
    if t.op == "NONE" or first is None or first.op == "NONE":
        return False
    spec = OPS[t.op]
    return spec.view or (spec.inplace and t.view_src is None) or t.op == "GET_ROWS"
