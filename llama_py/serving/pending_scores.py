"""Scores of several continuations of one text: their requests, and the future of all results."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from ggml_py.errors import ContextError
from llama_py.decoding.scores import Score
from llama_py.params import AnswerParams
from llama_py.serving.job import Handle, Told
from llama_py.serving.request import Busy, Event, Request

Scores = list[tuple[Score, ...]]
_SCORED = AnswerParams(max_tokens=0)


def score_requests(
    prompt: Sequence[int], continuations: Sequence[Sequence[int]], n_top: int, **options: Any
) -> Iterator[tuple[Request, list[int]]]:
    """Yield requests that score continuations, and the continuations that each one scores.

    Continuations of one token have the prompt's last logits in common, hence one request.
    """
    prompt, how = list(prompt), {"params": _SCORED, "prompt_logprobs": n_top, **options}
    single = [i for i, ids in enumerate(continuations) if len(ids) == 1]
    if single:
        ids = [continuations[i][0] for i in single]
        yield Request(prompt=prompt, alternatives=ids, score_from=len(prompt), **how), single
    for i, more in enumerate(continuations):
        if len(more) > 1:
            whole, marks = [*prompt, *more], (len(prompt) - 1,)
            yield Request(prompt=whole, score_from=len(prompt), marks=marks, **how), [i]


class PendingScores:
    """Results of requests by the continuations that they score.

    future  scores of all continuations, or the first error; cancelling it cancels the requests
    """

    def __init__(self, n: int) -> None:
        """Create the future of n continuations."""
        self.future: Future[Scores] = Future()
        self._found: Scores = [()] * n
        self._left, self._ended = n, False
        self._handles: list[Handle] = []
        self._lock = threading.Lock()
        self.future.add_done_callback(self._cancel_requests)

    def add(self, handle: Handle) -> None:
        """Add a request, which is cancelled with the others."""
        with self._lock:
            self._handles.append(handle)
            ended = self._ended
        if ended:
            handle.cancel()

    def cancel(self) -> None:
        """Cancel all requests."""
        with self._lock:
            self._ended = True
            handles = [*self._handles]
        for handle in handles:
            handle.cancel()

    def _cancel_requests(self, future: Future[Scores]) -> None:
        if future.cancelled():
            self.cancel()

    def listener(self, places: Sequence[int], n: int) -> Told:
        """Return the listener of a request for these continuations, with n scores in all."""
        parts: list[Score] = []

        def told(event: Event) -> None:
            parts.extend(event.scores)
            if event.finish_reason is None:
                return
            if event.finish_reason != "length" or len(parts) != n:
                self._fail(event)
            elif n == len(places):
                self._complete(places, [(score,) for score in parts])
            else:
                self._complete(places, [tuple(parts)])

        return told

    def _complete(self, places: Sequence[int], scores: Scores) -> None:
        for i, found in zip(places, scores, strict=True):
            self._found[i] = found
        self._left -= len(places)
        if not self._left and self.future.set_running_or_notify_cancel():
            self.future.set_result(self._found)

    def _fail(self, event: Event) -> None:
        if self._ended:
            return
        self.cancel()
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(event.error or _early_end(event))


def _early_end(event: Event) -> Exception:
    if event.finish_reason == "time":
        return Busy("the time limit passed before all texts were scored; try again later")
    return ContextError(f"scoring ended early ({event.finish_reason}); score the texts again")
