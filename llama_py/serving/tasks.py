"""Tasks between steps, in the context's thread: embeddings, saved slots."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any

Steps = Generator[None, None, Any]


def at_once(do: Callable[[], Any]) -> Steps:
    """Return `do` as a task of one step."""
    return do()
    yield


class Task:
    """Steps with a future result.

    future    result or error;  is_ready  returns True if the next step can run now
    """

    def __init__(self, steps: Steps, is_ready: Callable[[], bool] = lambda: True) -> None:
        self._steps, self.is_ready = steps, is_ready
        self.future: Future[Any] = Future()  # may be cancelled between two steps

    def step(self) -> bool:
        """Run one step; return True if more follow. A cancelled task ends."""
        if self.future.cancelled():
            return self._end()
        try:
            next(self._steps)
        except StopIteration as e:
            return self._end(e.value)
        except Exception as e:
            return self._end(error=e)
        return True

    def fail(self, e: Exception) -> None:
        """End the task with an exception."""
        self._end(error=e)

    def _end(self, value: Any = None, error: Exception | None = None) -> bool:
        self._steps.close()
        if self.future.set_running_or_notify_cancel():
            if error is None:
                self.future.set_result(value)
            else:
                self.future.set_exception(error)
        return False
