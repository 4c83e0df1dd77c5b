"""The steps of a program while they are being merged, and how a merge is declared."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ggml_cpu.step import Step, address, overlap, same_bytes
from ggml_py.tensor import FLAG_OUTPUT, Tensor

Rewriter = Callable[["Window", int], None]
REWRITERS: list[tuple[str, Rewriter]] = []


def rewrite(op: str) -> Callable[[Rewriter], Rewriter]:
    """Declare a rewriter, tried at every step that runs `op`; in order of declaration."""

    def register(function: Rewriter) -> Rewriter:
        REWRITERS.append((op, function))
        return function

    return register


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

    def readers_of(self, t: Tensor) -> list[int]:
        """The steps that read bytes of t now."""
        return [
            i
            for i in dict.fromkeys(self.readers.get(id(t), ()))
            if (s := self.steps[i]) and any(o is not None and root(o) is t for o in s.operands[1:])
        ]

    def private(self, i: int, users: Sequence[int]) -> bool:
        """Whether the result of step i is read by no other step than these."""
        t = self.step(i).node
        wanted = t.flags & FLAG_OUTPUT or t.view_src is not None
        return not wanted and set(self.readers_of(t)) <= set(users)

    def only_reader(self, i: int) -> int:
        """The one step that reads the result of step i, -1 if there are more or it is an output."""
        users = self.readers_of(self.step(i).node)
        return users[0] if len(users) == 1 and self.private(i, users) else -1

    def merge(
        self,
        members: Sequence[int],
        at: int,
        step: Step,
        *,
        aliases: Sequence[Tensor] = (),
        writes: Sequence[Tensor] = (),
        staged: Sequence[Tensor] = (),
    ) -> bool:
        """Run `step` in the place of `at` instead of the members, if that changes no result.

        aliases   operands the result may share the address of
        writes    operands that are also written, earlier than their own step did
        staged    operands that a preparing kernel copies before anything is written

        Nothing changes if no other step from the first member on writes what the new one reads,
        none up to the last member touches what is written early, and results are apart from the
        operands or exactly one of them. Members whose results others still read are kept.
        """
        first, last = min(members), max(members)
        others = [(i, s) for i in range(first, last) if (s := self.steps[i]) and i not in members]
        dst = step.operands[0]
        assert dst is not None
        sources = [t for t in step.operands[1:] if t is not None and not t.is_empty()]
        read = [t for t in sources if not any(t is w for w in writes)]
        for i, o in others:
            touched = [t for t in (o.node, *o.node.src) if t is not None and t.buffer is not None]
            if i < at and any(overlap(o.node, t) for t in read):
                return False
            if i > at and any(overlap(t, w) for t in touched for w in (*writes, dst)):
                return False
        for t in (t for t in read if not any(t is x for x in staged)):
            exact = same_bytes(dst, t) or (
                any(t is x for x in aliases) and address(t) == address(dst)
            )
            if (overlap(dst, t) and not exact) or any(overlap(w, t) for w in writes):
                return False
        for i in members:
            if i == at or i > at or self.private(i, members):
                self.steps[i] = None
        self.steps[at] = step
        for t in sources:
            self.readers.setdefault(id(root(t)), []).append(at)
        return True
