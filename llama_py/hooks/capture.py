"""Capture of node values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from llama_py.batch import UBatch
from llama_py.hooks.hook import Hook
from llama_py.hooks.names import FoundNode
from llama_py.hooks.values import Values

Read = Callable[[FoundNode], Values]


class Capture(Hook, Mapping[str, Values]):
    """The latest values by name: float32 [n_tokens, n_embd] or [n_tokens, n_head, n_embd_head].

    A prompt in several ubatches has several values; `history` has all.
    """

    def __init__(
        self, patterns: Sequence[str], switch: Callable[[Hook, bool], None], read: Read
    ) -> None:
        super().__init__(patterns, switch)
        self._read = read
        self._seen: dict[str, list[Values]] = {}

    def see(self, found: FoundNode, ubatch: UBatch) -> None:
        self._seen.setdefault(found.key, []).append(self._read(found))

    def history(self, name: str) -> list[Values]:
        """Return all values of a node, in the order of ubatches."""
        return self._seen[name]

    def clear(self) -> None:
        """Remove all captured values."""
        self._seen.clear()

    def __getitem__(self, name: str) -> Values:
        return self._seen[name][-1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._seen)

    def __len__(self) -> int:
        return len(self._seen)

    def __repr__(self) -> str:
        return f"<Capture of {len(self)} nodes: {', '.join(self.patterns)}>"
