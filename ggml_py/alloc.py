"""Memory for a graph's tensors: liveness, in-place reuse and best fit (ggml-alloc.c:ggml_gallocr).

`plan_memory` only computes offsets; it touches no device, so an 80B model can be planned on a
laptop.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

from ggml_py.graph import Graph
from ggml_py.opspec import OPS
from ggml_py.tensor import FLAG_OUTPUT, Tensor


@dataclass(slots=True)
class Arena:
    """One growing block of bytes: best fit over the free ranges, which are merged when they
    touch.
    """

    alignment: int = 64
    size: int = 0
    free: list[tuple[int, int]] = field(default_factory=list)  # (offset, size), by offset

    def take(self, nbytes: int) -> int:
        need = -(-max(nbytes, 1) // self.alignment) * self.alignment
        best = min(
            (i for i, f in enumerate(self.free) if f[1] >= need),
            key=lambda i: self.free[i][1],
            default=-1,
        )
        if best >= 0:
            offset, size = self.free.pop(best)
            if size > need:
                insort(self.free, (offset + need, size - need))
            return offset
        if self.free and sum(self.free[-1]) == self.size:  # the last range touches the end: grow it
            offset, _ = self.free.pop()
        else:
            offset = self.size
        self.size = offset + need
        return offset

    def give(self, offset: int, nbytes: int) -> None:
        size = -(-max(nbytes, 1) // self.alignment) * self.alignment
        insort(self.free, (offset, size))
        i = self.free.index((offset, size))
        if i + 1 < len(self.free) and offset + size == self.free[i + 1][0]:
            size += self.free.pop(i + 1)[1]
            self.free[i] = (offset, size)
        if i > 0 and sum(self.free[i - 1]) == offset:
            before, before_size = self.free[i - 1]
            self.free[i - 1 : i + 1] = [(before, before_size + size)]


@dataclass(slots=True)
class _Use:
    children: int = 0
    views: int = 0
    offset: int = -1
    owned: bool = False


@dataclass(slots=True)
class MemoryPlan:
    """Offsets of every tensor that needs memory, per arena, and the arenas' sizes."""

    placed: list[tuple[Tensor, int, int]]  # tensor, arena, offset
    sizes: list[int]


def same_layout(a: Tensor, b: Tensor) -> bool:
    return a.type is b.type and a.ne == b.ne and a.nb == b.nb


class _Planner:
    def __init__(self, graph: Graph, arena_of: dict[int, int], arenas: list[Arena]) -> None:
        self.graph = graph
        self.arena_of = arena_of
        self.arenas = arenas
        self.uses: dict[int, _Use] = {}
        self.placed: list[tuple[Tensor, int, int]] = []

    def use(self, t: Tensor) -> _Use:
        u = self.uses.get(id(t))
        if u is None:
            u = self.uses[id(t)] = _Use()
        return u

    def run(self) -> MemoryPlan:
        for leaf in self.graph.leafs:
            self.place(leaf, owned=False)  # keep their bytes: a reused graph sets them again
        for node in self.graph.nodes:
            if node.view_src is not None:
                self.use(node.view_src).views += 1
            for s in node.src:
                if s is not None:
                    self.use(s).children += 1
        for node in self.graph.nodes:
            self.place(node, owned=True)
            for s in node.src:
                if s is not None:
                    self.release(s)
        return MemoryPlan(self.placed, [a.size for a in self.arenas])

    def place(self, t: Tensor, owned: bool) -> None:
        u = self.use(t)
        if t.buffer is not None or t.view_src is not None or u.offset >= 0:
            return
        index = self.arena_of.get(id(t), 0)
        u.owned = owned
        u.offset = self.inherit(t, index)
        if u.offset < 0:
            u.offset = self.arenas[index].take(t.nbytes)
        self.placed.append((t, index, u.offset))

    def inherit(self, t: Tensor, index: int) -> int:
        """The offset of a source that dies here and has the same layout, or -1."""
        if not OPS[t.op].inplace if t.op in OPS else True:
            return -1
        for s in t.src:
            if s is None or s.flags & FLAG_OUTPUT or not same_layout(t, s):
                continue
            u = self.use(s)
            if u.children != 1 or u.views:
                continue
            root = s.view_src
            if root is None:
                if u.owned and self.arena_of.get(id(s), 0) == index:
                    u.owned = False
                    return u.offset
                continue
            r = self.use(root)
            if (
                r.owned and r.views == 1 and r.children == 0 and s.view_offs == 0
                and not root.flags & FLAG_OUTPUT and self.arena_of.get(id(root), 0) == index
                and root.nbytes == t.nbytes
            ):  # fmt: skip
                r.owned = False
                return r.offset
        return -1

    def release(self, s: Tensor) -> None:
        u = self.use(s)
        u.children -= 1
        if u.children or u.views:
            return
        if s.view_src is None:
            self.free(s, u)
            return
        root = self.use(s.view_src)
        root.views -= 1
        if not root.views and not root.children:
            self.free(s.view_src, root)

    def free(self, t: Tensor, u: _Use) -> None:
        if u.owned and not t.flags & FLAG_OUTPUT:
            u.owned = False
            self.arenas[self.arena_of.get(id(t), 0)].give(u.offset, t.nbytes)


def plan_memory(
    graph: Graph, arena_of: dict[int, int] | None = None, alignments: tuple[int, ...] = (64,)
) -> MemoryPlan:
    """Offsets for all tensors of the graph that have no memory yet.

    arena_of     arena index by id(tensor); 0 where absent
    alignments   one per arena
    """
    return _Planner(graph, arena_of or {}, [Arena(a) for a in alignments]).run()
