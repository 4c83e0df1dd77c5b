"""Scores of several continuations of one text: their requests, and the future of all results."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from ggml_py.errors import ContextError
from llama_py.batch.prompts import MixedPrompt
from llama_py.decoding.scores import Score
from llama_py.params import AnswerParams
from llama_py.serving.job import Handle, Told
from llama_py.serving.request import Busy, Event, Request

Scores = list[tuple[Score, ...]]
_SCORED = AnswerParams(max_tokens=0)


class ScoreRequest(NamedTuple):
    """A request that scores some continuations, by index, and its number of scores."""

    request: Request
    places: list[int]
    n: int


def score_requests(
    prompt: Sequence[int],
    continuations: Sequence[Sequence[int]],
    n_top: int,
    width: int = 0,
    **options: Any,
) -> Iterator[ScoreRequest]:
    """Yield the requests that score continuations.

    Continuations of one token have the prompt's last logits in common, hence one request.

    width  number of sequences that require equal numbers of tokens in a batch: texts of similar
           length are padded with tokens at their ends, which do not change the scores before them;
           0: any numbers

    Raises ContextError for a longer continuation of a prompt with images.
    """
    mixed = isinstance(prompt, MixedPrompt)
    prompt = prompt if mixed else list(prompt)
    how = {"params": _SCORED, "prompt_logprobs": n_top, "score_from": len(prompt), **options}
    single = [i for i, ids in enumerate(continuations) if len(ids) == 1]
    if single:
        ids = [continuations[i][0] for i in single]
        yield ScoreRequest(Request(prompt=prompt, alternatives=ids, **how), single, len(ids))
    several = [i for i, ids in enumerate(continuations) if len(ids) > 1]
    if several and mixed:
        raise ContextError("continuations of a prompt with images must each be one token")
    if width:
        several.sort(key=lambda i: -len(continuations[i]))
    for at, i in enumerate(several):
        more = continuations[i]
        n = len(continuations[several[at - at % width]]) if width else len(more)
        whole = [*prompt, *more, *[more[-1]] * (n - len(more))]
        request = Request(prompt=whole, marks=(len(prompt) - 1,), **how)
        yield ScoreRequest(request, [i], n)


class PendingScores:
    """Results of requests by the continuations that they score.

    future  scores of all continuations, or the first error; cancelling it cancels the requests
    """

    def __init__(self, continuations: Sequence[Sequence[int]]) -> None:
        """Create the future of their scores."""
        self.future: Future[Scores] = Future()
        self._lengths = [len(ids) for ids in continuations]
        self._found: Scores = [()] * len(continuations)
        self._left, self._ended = len(continuations), False
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
        """Cancel the requests of all continuations."""
        with self._lock:
            self._ended = True
            handles = [*self._handles]
        for handle in handles:
            handle.cancel()

    def _cancel_requests(self, future: Future[Scores]) -> None:
        if future.cancelled():
            self.cancel()

    def listener(self, asked: ScoreRequest) -> Told:
        """Return the listener of a request."""
        parts: list[Score] = []

        def receive(event: Event) -> None:
            parts.extend(event.scores)
            if event.finish_reason is None:
                return
            if event.finish_reason == "length" and len(parts) == asked.n:
                self._complete(asked, parts)
            else:
                self._fail(event)

        return receive

    def _complete(self, asked: ScoreRequest, scores: Sequence[Score]) -> None:
        first, *others = asked.places
        self._found[first] = tuple(scores[: self._lengths[first]])
        for i, one in zip(others, scores[1:], strict=bool(others)):
            self._found[i] = (one,)
        self._left -= len(asked.places)
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
