"""An image of a prompt that is read between steps, so that answers go on meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from llama_py.context import Context

if TYPE_CHECKING:
    from llama_py.serving.job import Job
    from llama_py.serving.slots import Slot


class Sight:
    """What a job is reading that is no token (`medium`), part by part."""

    def __init__(self, ctx: Context, slot: Slot, job: Job, most: Callable[[], int]) -> None:
        """most: rows that the next part has at most"""
        assert job.medium is not None
        self.slot, self.job, self.medium = slot, job, job.medium
        self._reading = self.medium.reading(ctx, job.pos, slot.id, most)

    def step(self) -> bool:
        """The next part. Whether it was the last."""
        return next(self._reading, self) is self
