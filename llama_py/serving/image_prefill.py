"""Image of a prompt that is processed between steps, so that responses continue."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from llama_py.batch.entries import MediaRows
from llama_py.context import Context

if TYPE_CHECKING:
    from llama_py.serving.job import Job
    from llama_py.serving.slots import Slot


class ImagePrefill:
    """Image (`medium`) at position `at` that a job is processing, part by part.

    rows  rows of an image that joins batches, once they are known; other images are decoded here
    """

    def __init__(self, ctx: Context, slot: Slot, job: Job, most: Callable[[], int]) -> None:
        """Start the job's next image; most: maximum number of rows in the next part."""
        assert job.medium is not None
        self.slot, self.job = slot, job
        self.at, self.medium = job.medium
        self.rows: MediaRows | None = None
        if job.joins(self.medium):
            self._steps = self._encode()
        else:
            self._steps = self.medium.reading(ctx, self.at, slot.id, most)

    def _encode(self) -> Generator[None, None, None]:
        self.rows = yield from self.medium.encode_rows(self.at)

    def step(self) -> bool:
        """Process the next part; return True if it was the last."""
        return next(self._steps, self) is self
