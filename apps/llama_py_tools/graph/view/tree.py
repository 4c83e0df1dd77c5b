"""Foldable tree of a graph: layers, their blocks, and repeated layers.

The graph itself defines everything: node names give layers. A block ends after a node with only one
value in use. Repetitions have equal structure (ops, shapes, and edges).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from ggml_py.graph import Graph
from ggml_py.opspec import OPS
from ggml_py.tensor import FLAG_COMPUTE, Tensor
from llama_py_tools.graph.layers import groups
from llama_py_tools.graph.view.families import family

MIN_BLOCK = 4  # minimum nodes of a block; fewer join the previous block
MAX_BLOCK = 240  # nodes that are laid out at once


@dataclass(slots=True)
class BlockBox:
    """Consecutive nodes, `first` to `last`. signature: equal for blocks of the same structure."""

    title: str
    first: int
    last: int
    signature: int


@dataclass(slots=True)
class LayerBox:
    """Blocks of a layer; number: of the layer, None between or around layers."""

    title: str
    number: int | None
    blocks: list[BlockBox]

    @property
    def signature(self) -> tuple[int, ...]:
        return (self.number is None, *(b.signature for b in self.blocks))


@dataclass(slots=True)
class RepeatBox:
    """Repeated parts: all repetitions have the same structure."""

    turns: list[list[Item]] = field(default_factory=list)


Item = LayerBox | RepeatBox


def tree(graph: Graph) -> list[Item]:
    """Return the parts of a graph, in order."""
    structure = Structure(graph)
    found, layers = groups(graph), list[LayerBox]()
    in_layers = [i for i, (title, _) in enumerate(found) if title.startswith("layer")]
    for i, (title, nodes) in enumerate(found):
        inside = i in in_layers
        number = int(title.split()[-1]) if inside else None
        if not inside and in_layers:
            outside = {True: "input", False: "between layers"}[i < in_layers[0]]
            title = "output" if i > in_layers[-1] else outside
        blocks = list(structure.blocks(nodes[0][0], nodes[-1][0], inside))
        if len(blocks) == 1 and not inside:
            blocks[0].title = title
        layers.append(LayerBox(title, number, blocks))
    return fold_repeats(layers)


class Structure:
    """Structure of a graph without names, to find the ends of blocks and equal blocks."""

    def __init__(self, graph: Graph) -> None:
        self.nodes = graph.nodes
        self.index = {id(t): i for i, t in enumerate(graph.nodes)}
        self.leafs = {id(t) for t in graph.leafs}
        self.last_use: dict[int, int] = {}
        self._n_computed = [0, *accumulate(is_computed(t) for t in graph.nodes)]
        self._signatures: dict[object, int] = {}
        for i, t in enumerate(graph.nodes):
            for s in original_sources(t):
                self.last_use[id(s.root)] = i

    def blocks(self, first: int, last: int, inside: bool) -> Iterator[BlockBox]:
        """Yield the nodes as blocks, divided further if they are too large to view."""
        ends = [*self._ends(first, last), last] if inside else [last]
        for end in ends:
            n_pieces = -(-(end + 1 - first) // MAX_BLOCK)
            for piece in range(n_pieces):
                stop = first + -(-(end + 1 - first) // (n_pieces - piece)) - 1
                title = self._title(first, stop)
                yield BlockBox(title, first, stop, self._signature(first, stop))
                first = stop + 1

    def _ends(self, first: int, last: int) -> Iterator[int]:
        """Yield nodes of a layer after which only one value of the layer is still needed, such as
        between attention and feed-forward network. Values passed through the layer do not count."""
        start, alive = first, set[int]()
        enters = {
            id(s.root)
            for t in self.nodes[first : last + 1]
            for s in original_sources(t)
            if self._is_value(s.root) and self.index[id(s.root)] < first
        }
        alive = {root for root in enters if self.last_use[root] <= last}
        for i in range(first, last):
            root = self.nodes[i].root
            if self._is_value(root):
                alive.add(id(root))
            alive = {r for r in alive if self.last_use.get(r, -1) > i}
            if len(alive) == 1 and min(self._cost(start, i), self._cost(i + 1, last)) >= MIN_BLOCK:
                yield i
                start = i + 1

    def _is_value(self, root: Tensor) -> bool:
        return id(root) in self.index

    def _cost(self, first: int, last: int) -> int:
        """Return the number of computed nodes."""
        return self._n_computed[last + 1] - self._n_computed[first]

    def _title(self, first: int, last: int) -> str:
        """Return the title of a block, by the weights that it reads, or by how it mixes tokens."""
        nodes = self.nodes[first : last + 1]
        sizes = Counter[str]()
        for t in nodes:
            for s in t.src:
                found = _STEM.search(s.name) if s is not None and id(s) in self.leafs else None
                if s is not None and found:
                    sizes[found[1]] += s.nbytes
        if any("_exps" in stem for stem in sizes):
            return "experts"
        words = Counter[str]()
        for stem, size in sizes.items():
            words[re.split(r"[_.]", stem)[0]] += size
        word = max(words, key=lambda w: words[w], default="")
        if word != "ffn":
            mixers = {family(t.op) for t in nodes} & set(MIXERS)
            if mixers:
                return min(mixers, key=MIXERS.index).replace("_", " ")
        return TITLES.get(word, word) or f"nodes {first} to {last}"

    def _signature(self, first: int, last: int) -> int:
        """Hash ops, shapes, types and edges; sources outside count as such, weights by shape."""
        parts = list[object]()
        for i in range(first, last + 1):
            t = self.nodes[i]
            if not is_computed(t):
                continue
            sources = tuple(self._source(s, i, first) for s in t.src)
            parts.append((t.op, t.ne, t.type.name, sources))
        return self._signatures.setdefault(tuple(parts), len(self._signatures))

    def _source(self, s: Tensor | None, i: int, first: int) -> object:
        if s is None:
            return None
        s = computed_source(original(s))
        at = self.index.get(id(s))
        if at is None:
            return ("leaf", s.ne if s.name.startswith("blk.") else None)
        return self._cost(at, i) if at >= first else "outside"


_STEM = re.compile(r"^(?:\w+\.)?blk\.\d+\.(.*?)(?:\.weight|\.bias|\.scale)?$")
MIXERS = ("delta_net", "linear_attention", "attention", "ssm")  # the first match is used
TITLES = {"attn": "attention", "ffn": "feed-forward", "ssm": "state space"}


def original(s: Tensor) -> Tensor:
    """Return the source of a copy to another device."""
    return s.src[0] if s.op == "NONE" and s.src and s.src[0] is not None else s


def original_sources(t: Tensor) -> list[Tensor]:
    return [original(s) for s in t.src if s is not None]


def is_computed(t: Tensor) -> bool:
    return bool(t.flags & FLAG_COMPUTE) and not OPS[t.op].view


def computed_source(s: Tensor) -> Tensor:
    """Return the node that computed a view's values."""
    while s.op != "NONE" and OPS[s.op].view and s.src and s.src[0] is not None:
        s = original(s.src[0])
    return s


def fold_repeats(items: Sequence[LayerBox]) -> list[Item]:
    """Fold repetitions into `RepeatBox`es: the longest first, then those around and within it."""
    signatures = [item.signature for item in items]
    best = (0, 0, 0)  # nodes saved, -period, start
    n = len(items)
    for period in range(1, n // 2 + 1):
        start = 0
        for i in range(n - period + 1):
            if i < n - period and signatures[i] == signatures[i + period]:
                continue
            best = max(best, ((i - start) // period * period, -period, -start))
            start = i + 1
    saved, length, first = best[0], -best[1], -best[2]
    if not saved:
        return [*items]
    end = first + saved + length
    turns = [fold_repeats(items[at : at + length]) for at in range(first, end, length)]
    return [*fold_repeats(items[:first]), RepeatBox(turns), *fold_repeats(items[end:])]
