"""Things to do between steps, in the thread that has the context: embeddings, saved slots."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any

Steps = Generator[None, None, Any]


def at_once(do: Callable[[], Any]) -> Steps:
    """A task of one step."""
    return do()
    yield


class Task:
    """Steps whose result someone waits for.

    future  has the result, or the error;  is_ready  whether its next step can be done now
    """

    def __init__(self, steps: Steps, is_ready: Callable[[], bool] = lambda: True) -> None:
        self._steps, self.is_ready = steps, is_ready
        self.future: Future[Any] = Future()
        self._begun = False

    def step(self) -> bool:
        """One step. Whether there are others."""
        if not self._begun and not self.future.set_running_or_notify_cancel():
            return False
        self._begun = True
        try:
            next(self._steps)
        except StopIteration as e:
            self.future.set_result(e.value)
        except Exception as e:
            self.future.set_exception(e)
        else:
            return True
        return False

    def fail(self, e: Exception) -> None:
        """There is no result."""
        self._steps.close()
        if self._begun or self.future.set_running_or_notify_cancel():
            self.future.set_exception(e)
