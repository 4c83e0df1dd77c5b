"""Graph of tensors in ggml's execution order, with ggml's automatic names
(ggml.c:ggml_build_forward_expand).
"""

from __future__ import annotations

from ggml_py.opspec import OPS
from ggml_py.tensor import FLAG_COMPUTE, Tensor


class Graph:
    """Nodes (tensors an op makes) in execution order, and leafs (weights, caches, inputs) in order
    of first visit.
    """

    def __init__(self) -> None:
        self.nodes: list[Tensor] = []
        self.leafs: list[Tensor] = []
        self._seen: set[int] = set()

    def build_forward_expand(self, tensor: Tensor) -> Tensor:
        """Append everything `tensor` needs, then itself: post-order over src[0..9], left to
        right.
        """
        self.insert(tensor)
        self._mark(tensor)
        return tensor

    def select(self, tensors: list[Tensor], index: int) -> Tensor:
        """Insert all alternatives, mark only the chosen one for computing
        (ggml_build_forward_select).
        """
        for t in tensors:
            self.insert(t)
        self._mark(tensors[index])
        return tensors[index]

    def _mark(self, tensor: Tensor) -> None:
        stack: list[Tensor | None] = [tensor]
        while stack:
            t = stack.pop()
            if t is not None and t.op != "NONE" and not t.flags & FLAG_COMPUTE:
                t.flags |= FLAG_COMPUTE
                stack += t.src

    def insert(self, root: Tensor) -> None:
        """Append a tensor and everything it needs, without marking them for computing."""
        seen = self._seen
        if id(root) in seen:
            return
        seen.add(id(root))
        stack = [root]
        while stack:
            for s in stack[-1].src:
                if s is not None and id(s) not in seen:
                    seen.add(id(s))
                    stack.append(s)
                    break
            else:
                self._append(stack.pop())

    def _append(self, t: Tensor) -> None:
        if t.op == "NONE":
            if not t.name:
                t.name = f"leaf_{len(self.leafs)}"
            self.leafs.append(t)
        else:
            if not t.name:
                t.name = f"node_{len(self.nodes)}"
            self.nodes.append(t)

    def compute_nodes(self) -> list[Tensor]:
        """Return the nodes to run: marked, and not mere views."""

        views = {name for name, spec in OPS.items() if spec.view}
        return [t for t in self.nodes if t.flags & FLAG_COMPUTE and t.op not in views]

    def find(self, name: str) -> Tensor:
        """Return the last node or leaf of that name; raise KeyError if it does not exist."""
        for t in (*reversed(self.nodes), *self.leafs):
            if t.name == name:
                return t
        raise KeyError(name)
