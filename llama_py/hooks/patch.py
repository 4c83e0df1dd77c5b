"""Replacement of node values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llama_py.batch import UBatch
from llama_py.hooks.hook import Hook, HookContext
from llama_py.hooks.names import FoundNode
from llama_py.hooks.values import Values, write

Change = Callable[[Values, HookContext], Any]
Read = Callable[[FoundNode], Values]


class Patch(Hook):
    """Hook that replaces a node's value; all later nodes read the new one.

    change   called with each value and its context, and returns the new value or None to keep the
             value. Or the new value itself.
    """

    changes = True

    def __init__(
        self, pattern: str, change: Change | Any, switch: Callable[[Hook, bool], None], read: Read
    ) -> None:
        super().__init__([pattern], switch)
        self._change = change
        self._read = read

    def see(self, found: FoundNode, ubatch: UBatch) -> None:
        new = self._change
        if callable(new):
            new = new(self._read(found), HookContext(found.key, found.node, ubatch))
        if new is not None:
            write(found.node, new, found.key)
