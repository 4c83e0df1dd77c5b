"""What the memory has to forget when a computation does not come to its end."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import TYPE_CHECKING

from llama_py.batch import UBatch
from llama_py.memory import MemoryGroup

if TYPE_CHECKING:
    from typing_extensions import Self

log = logging.getLogger("llama_py")


class Unfinished:
    """The ubatch that is being computed: with `while_at`, it is forgotten if an exception comes."""

    def __init__(self) -> None:
        self._now: tuple[UBatch, MemoryGroup] | None = None

    def while_at(self, ubatch: UBatch, memory: MemoryGroup) -> Self:
        self._now = ubatch, memory
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        try:
            if kind is None:
                self._now = None
            else:
                self.discard()
        except BaseException:  # an interrupt that comes here
            self.discard()
            raise

    def discard(self) -> None:
        """Forget what was not finished; again, if a second interrupt came meanwhile."""
        if self._now is not None:
            ubatch, memory = self._now
            tell_removed(memory.discard(ubatch))
            self._now = None


def tell_removed(seqs: list[int]) -> None:
    if seqs:
        log.info("interrupted: sequences %s had to be removed from the memory", seqs)
