"""Memory planning of a graph's tensors: liveness and in-place reuse (ggml-alloc.c:ggml_gallocr).

`plan_memory` only computes offsets and does not access devices, so a laptop can plan an 80B model.
For a fused step, it places only the values needed outside and the step's scratch memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ggml_py.fusion import FusedNodes
from ggml_py.graph import Graph
from ggml_py.opspec import OPS
from ggml_py.plan.arena import Arena, PackedArena
from ggml_py.tensor import FLAG_OUTPUT, Tensor


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


class _Planner:
    def __init__(
        self,
        graph: Graph,
        arena_of: dict[int, int],
        arenas: Sequence[Arena | PackedArena],
        fused: Iterable[FusedNodes[Any]],
    ) -> None:
        self.graph = graph
        self.arena_of = arena_of
        self.arenas = arenas
        self.steps = {id(t): step for step in fused for t in step.match.nodes}
        self.uses: defaultdict[int, _Use] = defaultdict(_Use)  # keys: ids of tensors
        self.placed: list[tuple[Tensor, int, int]] = []

    def run(self) -> MemoryPlan:
        uses = self.uses
        for node in self.graph.nodes:
            if node.view_src is not None:
                uses[id(node.view_src)].views += 1
            for s in node.src:
                if s is not None:
                    uses[id(s)].children += 1
        for leaf in filter(self.is_read, self.graph.leafs):
            self.place(leaf, owned=False)  # keep their bytes: a reused graph sets them again
        for node in self.graph.nodes:
            step = self.steps.get(id(node))
            if step is not None:
                self.run_step(step, node)
                continue
            if node.view_src is None:
                self.place(node, True, dying(node))
            self.release_all(node.src)
        return MemoryPlan(self.placed, [a.size for a in self.arenas])

    def is_read(self, leaf: Tensor) -> bool:
        """Return True if a leaf is used, unlike an input for embeddings when there are tokens."""
        u = self.uses[id(leaf)]
        return bool(u.children or u.views or leaf.flags & FLAG_OUTPUT)

    def run_step(self, step: FusedNodes[Any], node: Tensor) -> None:
        """Place a node of a step, unless its value is only used inside. The step runs at its last
        node, and needs all sources of its nodes until then.
        """
        match = step.match
        if node is not match.nodes[-1]:
            if node in match.kept:
                self.place(node, True)
            return
        sources = [s for n in match.nodes for s in n.src if s is not None]
        spent, over = (step.spent, step.over) if node is match.result else ((), None)
        if spent:
            early = {id(s) for s in spent}
            self.release_all(s for s in sources if id(s) in early)
            sources = [s for s in sources if id(s) not in early]
        if node in match.kept:
            n_uses = sum(s is over for s in sources)
            self.place(node, True, [] if over is None else [(over, n_uses)])
        if match.scratch is not None:
            self.place_for_now(match.scratch, self.arena_of.get(id(node), 0))
        self.release_all(sources)

    def place_for_now(self, scratch: Tensor, index: int) -> None:
        arena = self.arenas[index]
        offset = arena.take(scratch.nbytes)
        self.placed.append((scratch, index, offset))
        arena.give(offset, scratch.nbytes)

    def place(self, t: Tensor, owned: bool, dying: Sequence[tuple[Tensor, int]] = ()) -> None:
        """Give t the bytes of a tensor in `dying` if possible, otherwise other bytes.

        owned   its bytes are free after the last use
        dying   sources, and the number of reads by the current node or step
        """
        if t.buffer is not None or t.view_src is not None:
            return
        u = self.uses[id(t)]
        if u.offset >= 0:
            return
        index = self.arena_of.get(id(t), 0)
        u.owned = owned
        able = [self.uses[id(s.root)] for s, n in dying if self.can_inherit(t, s, n, index)]
        if able:
            heir = min(able, key=lambda r: r.offset)  # keep the free bytes above in one range
            u.offset, heir.owned = heir.offset, False
        else:
            u.offset = self.arenas[index].take(t.nbytes)
        self.placed.append((t, index, u.offset))

    def can_inherit(self, t: Tensor, s: Tensor, n_uses: int, index: int) -> bool:
        """Return True if only these uses need s, and t fills its bytes."""
        root = s.root
        u, r = self.uses[id(s)], self.uses[id(root)]
        if s is not root and (r.views != 1 or r.children or s.view_offs):
            return False
        return (
            r.owned
            and u.children == n_uses
            and not u.views
            and root.nbytes == t.nbytes
            and not root.flags & FLAG_OUTPUT
            and not s.flags & FLAG_OUTPUT
            and self.arena_of.get(id(root), 0) == index
        )

    def release_all(self, sources: Iterable[Tensor | None]) -> None:
        uses = self.uses
        for s in sources:
            if s is None:
                continue
            u, root = uses[id(s)], s.view_src
            u.children -= 1
            if u.children or u.views:
                continue
            if root is not None:
                u = uses[id(root)]
                u.views -= 1
                if u.views or u.children:
                    continue
            self.free(root or s, u)

    def free(self, t: Tensor, u: _Use) -> None:
        if u.owned and not t.flags & FLAG_OUTPUT:
            u.owned = False
            self.arenas[self.arena_of.get(id(t), 0)].give(u.offset, t.nbytes)


def dying(node: Tensor) -> list[tuple[Tensor, int]]:
    """Return the sources whose bytes the op's result may overwrite, each read once."""
    if node.op not in OPS or not OPS[node.op].inplace:
        return []
    return [(s, 1) for s in node.src if s is not None and s.same_layout(node)]


def plan_memory(
    graph: Graph,
    arena_of: dict[int, int] | None = None,
    alignments: tuple[int, ...] = (64,),
    fused: Sequence[FusedNodes[Any]] = (),
    room: Sequence[int] = (),
) -> MemoryPlan:
    """Return offsets for all tensors of the graph that have no memory yet.

    arena_of     arena index by id(tensor); 0 where absent
    alignments   one per arena
    fused        steps that run several nodes
    room         bytes already allocated, one per arena: if that is not enough, more time
                 is spent on needing less
    """
    found = _Planner(graph, arena_of or {}, [Arena(a) for a in alignments], fused).run()
    if any(size > have for size, have in zip(found.sizes, room, strict=False)):
        _tighten(found, graph, arena_of or {}, alignments, fused)
    return found


def _tighten(
    found: MemoryPlan,
    graph: Graph,
    arena_of: dict[int, int],
    alignments: tuple[int, ...],
    fused: Iterable[FusedNodes[Any]],
) -> None:
    """Pack the arenas if that saves memory."""
    arenas = [PackedArena(a) for a in alignments]
    blocks = _Planner(graph, arena_of, arenas, fused).run().placed
    offsets = [arena.pack() for arena in arenas]
    better = [arena.size < size for arena, size in zip(arenas, found.sizes, strict=True)]
    found.placed = [
        (t, index, offsets[index][block] if better[index] else offset)
        for (t, index, offset), (_, _, block) in zip(found.placed, blocks, strict=True)
    ]
    found.sizes = [min(a.size, size) for a, size in zip(arenas, found.sizes, strict=True)]
