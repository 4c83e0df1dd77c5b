"""Several nodes run by one kernel: a rewrite of the steps, never of the graph that users see.

Each file of `fused/` declares rewriters with `@rewrite(op)`: a function that gets the window of
steps and the index of one that runs `op`, and merges it with its neighbours if they fit.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module

from ggml_cpu.step import Step, overlap, same_bytes
from ggml_py.tensor import FLAG_OUTPUT, Tensor

Rewriter = Callable[["Window", int], None]
REWRITERS: list[tuple[str, Rewriter]] = []


def rewrite(op: str) -> Callable[[Rewriter], Rewriter]:
    """Declare a rewriter, tried at every step that runs `op`; in order of declaration."""

    def register(function: Rewriter) -> Rewriter:
        REWRITERS.append((op, function))
        return function

    return register


@cache
def rewriters() -> tuple[tuple[str, Rewriter], ...]:
    import ggml_cpu.fused

    for module in pkgutil.iter_modules(ggml_cpu.fused.__path__):
        import_module(f"ggml_cpu.fused.{module.name}")
    return tuple(REWRITERS)


def root(t: Tensor) -> Tensor:
    """The tensor that owns the bytes."""
    return t if t.view_src is None else t.view_src


class Window:
    """The steps while they are being merged; merged ones are None."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps: list[Step | None] = list(steps)
        self.readers: dict[int, list[int]] = {}
        self.writer: dict[int, int] = {}
        for i, step in enumerate(steps):
            self.writer[id(step.node)] = i
            for t in {id(root(s)): s for s in step.node.src if s is not None}.values():
                self.readers.setdefault(id(root(t)), []).append(i)

    def op(self, i: int) -> str:
        """What step i runs, "" if it was merged or runs several nodes already."""
        step = self.steps[i] if 0 <= i < len(self.steps) else None
        return "" if step is None or step.op_params else step.node.op

    def step(self, i: int) -> Step:
        found = self.steps[i]
        assert found is not None
        return found

    def made_by(self, t: Tensor) -> int:
        """The step that computes the bytes t looks at, -1 if none does."""
        return self.writer.get(id(root(t)), -1)

    def private(self, i: int, users: Sequence[int]) -> bool:
        """Whether the result of step i is read by these steps only and by no one afterwards."""
        t = self.step(i).node
        wanted = t.flags & FLAG_OUTPUT or t.view_src is not None
        return not wanted and set(self.readers.get(id(t), ())) == set(users)

    def only_reader(self, i: int) -> int:
        """The one step that reads the result of step i, -1 if there are more or it is an output."""
        users = self.readers.get(id(self.step(i).node), [])
        return users[0] if len(users) == 1 and self.private(i, users) else -1

    def between(self, start: int, stop: int) -> Iterator[Step]:
        return (s for s in self.steps[start + 1 : stop] if s is not None)

    def merge(self, members: Sequence[int], at: int, step: Step) -> bool:
        """Replace the members by one step in the place of `at`, if that changes no result.

        It does not if no other step in between writes what the new one reads or reads what it
        writes, and its result is either apart from its operands or exactly one of them.
        """
        first, last = min(members), max(members)
        others = [s for i, s in enumerate(self.steps[first:last], first) if s and i not in members]
        sources = [t for t in step.operands[1:] if t is not None and not t.is_empty()]
        dst = step.operands[0]
        assert dst is not None
        if any(overlap(o.node, t) for o in others for t in (dst, *sources)):
            return False
        if any(overlap(s, dst) for o in others for s in o.node.src if s is not None and s.buffer):
            return False
        if any(overlap(dst, t) and not same_bytes(dst, t) for t in sources):
            return False
        for i in members:
            self.steps[i] = None
        self.steps[at] = step
        return True


def fuse(steps: Sequence[Step]) -> list[Step]:
    """Steps with known neighbours merged."""
    window = Window(steps)
    for op, function in rewriters():
        for i in range(len(window.steps)):
            if window.op(i) == op:
                function(window, i)
    return [s for s in window.steps if s is not None]
