"""Matches of patterns in a graph, and checks that fusing them changes no result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set

from ggml_py.fusion.pattern import Match, Pattern
from ggml_py.fusion.uses import Uses
from ggml_py.opspec import OPS
from ggml_py.tensor import Tensor


class NodeRow:
    """Consecutive nodes of one device, without the nodes that steps have taken."""

    def __init__(self, nodes: Sequence[Tensor], uses: Uses) -> None:
        self.nodes = nodes
        self.uses = uses
        self._place = {id(t): i for i, t in enumerate(nodes)}
        self._taken: set[int] = set()
        self._by_op: dict[str, list[Tensor]] = {}
        for t in nodes:
            self._by_op.setdefault(t.op, []).append(t)

    @property
    def ops(self) -> Set[str]:
        return self._by_op.keys()

    def place(self, t: Tensor) -> int:
        return self._place[id(t)]

    def of_op(self, op: str) -> list[Tensor]:
        return self._by_op.get(op, [])

    def take(self, match: Match) -> None:
        """Mark the match's nodes as taken."""
        self._taken.update(id(t) for t in match.nodes)

    def find(
        self, pattern: Pattern, when: Callable[[Match], str], first: Tensor
    ) -> tuple[Match | None, str]:
        """Return a match of pattern and condition that begins with `first`; or None and the
        reason, "" if the pattern does not start there."""
        reasons = []
        if self.is_free(first):
            for found in pattern.find(first, self._free_readers):
                match = Match.from_nodes(pattern, found, self.place, self.uses)
                reason = self.why_not(match, (*pattern.when, when))
                if not reason:
                    return match, ""
                reasons.append(reason)
        return None, reasons[0] if reasons else ""

    def is_free(self, t: Tensor) -> bool:
        """Return True for a node in the row that no step has."""
        return id(t) in self._place and id(t) not in self._taken and not t.is_empty()

    def _free_readers(self, t: Tensor, op: str) -> list[Tensor]:
        return [r for r in self.uses.readers(t) if r.op == op and self.is_free(r)]

    def why_not(self, match: Match, conditions: Iterable[Callable[[Match], str]] = ()) -> str:
        """Return "" if the match can run as one step and meets these conditions, else the
        reason."""
        if reason := self._escapes(match):
            return reason
        refused = next((reason for when in conditions if (reason := when(match))), "")
        return refused or self._overwritten(match) or self._find_conflict(match)

    def _escapes(self, match: Match) -> str:
        """Return the reason why values inside the match are needed outside, or ""."""
        for t in match.inside:
            if t.view_src is not None:
                return f"{t} is overwritten by a write to {t.view_src}"
            if self.uses.is_output(t):
                return f"{t} is an output"
            others = [r for r in self.uses.readers(t) if r not in match.nodes]
            if others:
                return f"{t} is also read by {others[0].op} {others[0]}"
        for t in match.kept:
            if t.root in match.inside:
                return f"{t} is overwritten by a write to {t.root}"
        return ""

    def _overwritten(self, match: Match) -> str:
        """Return the reason why operands are overwritten by results; "" if they are not."""
        results = [w for t in match.nodes for w in changed_tensors(t) if w not in match.inside]
        for s in match.operands:
            if s.root in match.nodes:
                return f"{s} is computed by the step itself"
            for w in results:
                if overlap(w, s):
                    return f"{w} is overwritten by a write to {s}"
        return ""

    def _find_conflict(self, match: Match) -> str:
        """Return the reason why running these nodes together disturbs a node between them, or
        ""."""
        first, last = self.place(match.nodes[0]), self.place(match.nodes[-1])
        for i in range(first + 1, last):
            other = self.nodes[i]
            if other in match.nodes:
                continue
            before = [t for t in match.nodes if self.place(t) < i]
            read = [s for t in before for s in t.src if s is not None]
            made = [w for t in before for w in changed_tensors(t)]
            touched = [*changed_tensors(other), *(s for s in other.src if s is not None)]
            if any(overlap(w, s) for w in changed_tensors(other) for s in read):
                return f"{other.op} {other} runs in between and overwrites an input of the step"
            if any(overlap(w, t) for w in made for t in touched):
                return f"{other.op} {other} runs in between and needs an output of the step"
        return ""


def changed_tensors(t: Tensor) -> list[Tensor]:
    """Return the tensors that running the node changes."""
    written = OPS[t.op].writes
    return [t, *(s for i in written if i < len(t.src) and (s := t.src[i]))] if written else [t]


def overlap(a: Tensor, b: Tensor) -> bool:
    """Return True if two tensors share bytes; tensors without memory will each get their own."""
    (owner_a, start_a), (owner_b, start_b) = _start(a), _start(b)
    if owner_a is not owner_b or a.is_empty() or b.is_empty():
        return False
    if start_a + a.nbytes <= start_b or start_b + b.nbytes <= start_a:
        return False
    return not _are_disjoint_columns(a, start_a, b, start_b)


def _are_disjoint_columns(a: Tensor, start_a: int, b: Tensor, start_b: int) -> bool:
    """Return True if both are different columns of the same rows."""
    (row_a, width_a), (row_b, width_b) = _rows(a), _rows(b)
    if row_a != row_b or not row_a:
        return False
    return width_a <= (start_b - start_a) % row_a <= row_a - width_b


def _rows(t: Tensor) -> tuple[int, int]:
    """Return bytes from one outermost row to the next, 0 if there is only one; and bytes of such a
    row."""
    last = max((i for i in range(4) if t.ne[i] > 1), default=0)
    return (t.nb[last], t.nbytes - (t.ne[last] - 1) * t.nb[last]) if last else (0, t.nbytes)


def _start(t: Tensor) -> tuple[object, int]:
    root = t.root
    return (root, t.view_offs) if root.buffer is None else (root.buffer, root.offset + t.view_offs)
