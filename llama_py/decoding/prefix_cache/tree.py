"""Radix tree over token ids with the holders of the tokens (like SGLang's RadixAttention)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Generic, TypeVar

H = TypeVar("H", bound=Hashable)
S = TypeVar("S")


def common(a: Sequence[object], b: Sequence[object]) -> int:
    """Return the length of the common prefix of two sequences."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class TokenRun(Generic[H, S]):
    """Run of tokens without a branch, holder or state inside.

    tokens   tokens of the run; `end` counts all tokens from the root to its end
    holders  sequences and states that have all tokens up to the end
    state    saved state at the end, or None
    """

    def __init__(self, tokens: list[int], parent: TokenRun[H, S] | None) -> None:
        self.tokens = tokens
        self.parent = parent
        self.end: int = len(tokens) + (parent.end if parent else 0)
        self.children: dict[int, TokenRun[H, S]] = {}
        self.holders: set[H] = set()
        self.state: S | None = None

    def path(self) -> Iterator[TokenRun[H, S]]:
        """Yield the nodes from here to the root, without the root."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent


class Tree(Generic[H, S]):
    """Runs of tokens, their holders, and the states saved at their ends.

    The tokens of each `kind` of computation have a separate root, since their states differ.

    ends    node at which each holder's tokens end;  kinds  kind of each holder
    lonely  a state is usable even if no holder has its tokens
    """

    def __init__(self, lonely: bool, dropped: Callable[[S], None]) -> None:
        """Create an empty tree; dropped: called with states that lost their last holder."""
        self.roots: dict[Hashable, TokenRun[H, S]] = {}
        self.ends: dict[H, TokenRun[H, S]] = {}
        self.kinds: dict[H, Hashable] = {}
        self.lonely = lonely
        self._dropped = dropped

    def _root(self, kind: Hashable) -> TokenRun[H, S]:
        if kind not in self.roots:
            self.roots[kind] = TokenRun([], None)
        return self.roots[kind]

    def match(self, ids: Sequence[int], kind: Hashable = ()) -> tuple[list[TokenRun[H, S]], int]:
        """Return the nodes that match `ids`, the last perhaps in part, and the tokens matched."""
        ids = list(ids)
        node, n, path = self._root(kind), 0, list[TokenRun[H, S]]()
        while n < len(ids) and (found := node.children.get(ids[n])) is not None:
            path.append(found)
            n += common(found.tokens, ids[n : n + len(found.tokens)])
            if n < found.end:
                break
            node = found
        return path, n

    def reach(self, ids: Sequence[int], kind: Hashable = ()) -> TokenRun[H, S]:
        """Return the node at the end of these tokens; it is created if missing."""
        path, n = self.match(ids, kind)
        node = path[-1] if path else self._root(kind)
        if n < node.end:
            node = self._cut(node, n)
        if n < len(ids):
            node = self._leaf(node, list(ids[n:]))
        return node

    def _leaf(self, node: TokenRun[H, S], ids: list[int]) -> TokenRun[H, S]:
        leaf = node.children[ids[0]] = TokenRun(ids, node)
        return leaf

    def _cut(self, node: TokenRun[H, S], n: int) -> TokenRun[H, S]:
        """Split a node after n tokens; the rest becomes its child."""
        parent = node.parent
        assert parent is not None and parent.end < n < node.end
        upper = self._leaf(parent, node.tokens[: n - parent.end])
        upper.holders = set(node.holders)
        node.tokens, node.parent = node.tokens[n - parent.end :], upper
        upper.children = {node.tokens[0]: node}
        return upper

    def hold(self, holder: H, ids: Sequence[int], kind: Hashable = ()) -> TokenRun[H, S]:
        """Set the tokens of a holder, replacing all earlier tokens."""
        before, node = self.ends.get(holder), self.reach(ids, kind)
        self._let_go(holder, before, node)
        for one in node.path():
            one.holders.add(holder)
        self.ends[holder], self.kinds[holder] = node, kind
        self.prune(before)
        return node

    def grow(self, holder: H, ids: Sequence[int], kind: Hashable = ()) -> TokenRun[H, S]:
        """Append tokens of the same kind to a holder's tokens."""
        node = self.ends.get(holder) or self._root(kind)
        alone = node.holders == {holder} and node.state is None and not node.children
        if alone:
            node.tokens += ids
            node.end += len(ids)
            return node
        end = self._child(node, list(ids))
        for one in end.path():
            if holder in one.holders:
                break
            one.holders.add(holder)
        self.ends[holder], self.kinds[holder] = end, kind
        self._join(node)
        return end

    def _child(self, node: TokenRun[H, S], ids: list[int]) -> TokenRun[H, S]:
        """Return the node at the end of `ids` after `node`; it is created if missing."""
        while ids and (child := node.children.get(ids[0])) is not None:
            n = common(child.tokens, ids[: len(child.tokens)])
            node = child if n == len(child.tokens) else self._cut(child, node.end + n)
            ids = ids[n:]
        return self._leaf(node, ids) if ids else node

    def _join(self, node: TokenRun[H, S]) -> None:
        """Merge a node into its only child, unless holders or a state differ."""
        if node.parent is None or node.state is not None or len(node.children) != 1:
            return
        (child,) = node.children.values()
        if child.holders == node.holders:
            child.tokens, child.parent = node.tokens + child.tokens, node.parent
            node.parent.children[child.tokens[0]] = child

    def release(self, holder: H) -> None:
        """Remove a holder and its tokens."""
        node = self.ends.pop(holder, None)
        self.kinds.pop(holder, None)
        self._let_go(holder, node, None)
        self.prune(node)

    def _let_go(
        self, holder: H, before: TokenRun[H, S] | None, after: TokenRun[H, S] | None
    ) -> None:
        kept = set() if after is None else set(after.path())
        for node in () if before is None else before.path():
            if node in kept:
                return
            node.holders.discard(holder)

    def prune(self, node: TokenRun[H, S] | None) -> None:
        """Remove unusable states and tokens, from a node up to the root."""
        while node is not None and node.parent is not None:
            if node.state is not None and not node.holders and not self.lonely:
                self._dropped(node.state)
                node.state = None
            needless = not node.holders and node.state is None and not node.children
            if needless:
                del node.parent.children[node.tokens[0]]
            node = node.parent
        used = {*self.kinds.values()}
        self.roots = {k: root for k, root in self.roots.items() if root.children or k in used}

    def tokens(self, node: TokenRun[H, S]) -> list[int]:
        """Return all tokens from the root to the end of a node."""
        runs = [one.tokens for one in node.path()]
        return [id for run in reversed(runs) for id in run]
