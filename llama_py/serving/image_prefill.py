"""Image of a prompt that is processed between steps, so that responses continue."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from llama_py.context import Context

if TYPE_CHECKING:
    from llama_py.serving.job import Job
    from llama_py.serving.slots import Slot


class ImagePrefill:
    """Image (`medium`) that a job is processing, part by part."""

    def __init__(self, ctx: Context, slot: Slot, job: Job, most: Callable[[], int]) -> None:
        """Start an image; most: maximum number of rows in the next part."""
        assert job.medium is not None
        self.slot, self.job, self.medium = slot, job, job.medium
        self._reading = self.medium.reading(ctx, job.pos, slot.id, most)

    def step(self) -> bool:
        """Process the next part; return True if it was the last."""
        return next(self._reading, self) is self
