"""Image of a prompt that is processed between steps, so that responses continue."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING

from llama_py.batch.entries import MediaRows
from llama_py.context import Context

if TYPE_CHECKING:
    from llama_py.serving.job import Job
    from llama_py.serving.slots import Slot
    from llama_py.serving.step_batches import Busy


class ImagePrefill:
    """Image (`medium`) at position `at` that a job is processing, part by part.

    rows  rows of an image that joins batches, None before its last part; other images are decoded
          here
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


class ImageTurns:
    """The image in progress: one at a time, as images share the encoder's memory."""

    def __init__(
        self,
        ctx: Context,
        find_payers: Callable[[Iterable[Busy]], list[Busy]],
        most: Callable[[], int],
    ) -> None:
        """Begin without an image.

        find_payers  selects the jobs of clients without debts
        most             maximum number of rows in the next part
        """
        self._ctx, self._find_payers, self._most = ctx, find_payers, most
        self._current: ImagePrefill | None = None

    def choose(self, busy: Sequence[Busy]) -> ImagePrefill | None:
        """Return the image to process a part of now: the current one, or the oldest job's.

        The images of a client that owes time wait. The current image only waits until another
        client has one, which needs the encoder.
        """
        ready = self._find_payers(one for one in busy if one[1].medium is not None)
        if not ready:
            return None
        if self._current is None:
            self._current = ImagePrefill(
                self._ctx, *min(ready, key=lambda one: one[1].id), self._most
            )
        return self._current

    def forget(self, job: Job) -> None:
        """Forget the current image if it is this job's."""
        if self._current is not None and self._current.job is job:
            self._current = None
