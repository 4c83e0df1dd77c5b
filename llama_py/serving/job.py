"""Job: a request in progress."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from math import inf
from time import monotonic

from llama_py.batch.entries import MediaRows
from llama_py.batch.prompts import Medium, MixedPrompt
from llama_py.decoding.keep import KeepRule
from llama_py.decoding.prefix_cache.tree import common
from llama_py.serving.answer import Answer
from llama_py.serving.known_scores import ScoredText
from llama_py.serving.request import Event, Reason, Request

log = logging.getLogger("llama_py")

Told = Callable[[Event], None]


class Job:
    """Request, its listener, and its progress.

    ids     tokens that its slot begins with: prompt, and response before it was preempted
    reads   number of ids that must still be computed
    media   images among the ids, by position
    images  rows of images that the next batches compute, by position
    n_counted  number of its cells that the metrics count
    n_held  number of ids in memory when it began
    n_scored  prompt tokens that are processed with logits, or need none
    scored  its scores, for other prompts; None: they are not kept
    keep    rule of the context shift; None: the response ends when the context is full
    alone   compute its next step separately: the last one failed
    ends_at  monotonic time of its limit
    """

    def __init__(self, id: int, answer: Answer, told: Told) -> None:
        self.id, self.answer, self._told = id, answer, told
        self.ids = answer.ids
        self.reads = len(answer.ids)
        prompt = answer.request.prompt
        self.media = dict(prompt.media) if isinstance(prompt, MixedPrompt) else {}
        self.n_held, self.n_scored = 0, answer.request.score_from - 1
        self.scored: ScoredText | None = None
        self.images: Mapping[int, MediaRows] = {}
        self.n_counted = 0
        self.keep: KeepRule | None = None
        self.alone = False
        limit = answer.request.t_max
        self.ends_at = monotonic() + limit if limit > 0 else inf
        self.cancelled = False
        self.done = threading.Event()

    @property
    def request(self) -> Request:
        return self.answer.request

    @property
    def pos(self) -> int:
        """Number of its ids in memory."""
        return len(self.ids) - self.reads

    @property
    def medium(self) -> tuple[int, Medium] | None:
        """Position and image to process next. The encoder processes an image that joins batches
        before the text in front of it, one image at a time."""
        ahead = [at for at in self.media if at >= self.pos]
        if not self.reads or not ahead or self.images:
            return None
        at = min(ahead)
        medium = self.media[at]
        return (at, medium) if at == self.pos or self.joins(medium) else None

    def joins(self, medium: Medium) -> bool:
        """Return True if an image's rows are computed in batches with tokens."""
        return medium.joins and not self.has_unscored

    @property
    def n_done(self) -> int:
        """Number of its cells that memory has, including an image's first rows."""
        return self.cells(self.pos) + sum(image.n_done for image in self.images.values())

    @property
    def n_left(self) -> int:
        """Number of cells that must still be computed."""
        return self.cells(len(self.ids)) - self.n_done

    @property
    def n_ahead(self) -> int:
        """Number of cells before the next image without rows, or before the end of the scored
        part."""
        if self.has_unscored:
            return self.n_scored - self.pos
        waiting = (at for at in self.media if at >= self.pos and at not in self.images)
        return self.cells(min(waiting, default=len(self.ids))) - self.n_done

    @property
    def has_unscored(self) -> bool:
        """True if prompt tokens, except the last, must still be processed with logits."""
        request = self.request
        return request.prompt_logprobs is not None and self.n_scored < len(request.prompt) - 1

    @property
    def is_scored(self) -> bool:
        """True if it has the scores of its prompt, and needs no more."""
        return self.answer.is_score and not self.has_unscored and not self.request.alternatives

    def most_reused(self, other: Job) -> int:
        """Return the maximum number of ids that it can reuse from another job.

        Scores are equal up to the first different token. The id before that token is computed
        again, since its logits score a different token.
        """
        if not self.has_unscored:
            return len(self.ids) - 1
        theirs, n_top = other.scored, self.request.prompt_logprobs or 0
        if self.request.score_from > 1 or theirs is None or theirs.n_top < n_top:
            return self.n_scored
        return common(other.ids, self.ids) - 1

    def cells(self, n: int) -> int:
        """Return the number of cells that the first n ids take."""
        before = (m for at, m in self.media.items() if at + m.n_pos <= n)
        return n + sum(m.n_tokens - m.n_pos for m in before)

    def align_prefix(self, n: int) -> int:
        """Return the largest number of ids, at most n, that does not end within an image."""
        return min((at for at, m in self.media.items() if at < n < at + m.n_pos), default=n)

    def has_to_end(self, now: float) -> bool:
        """Return True if it was cancelled, or its time limit has passed."""
        return self.cancelled or self.ends_at < now

    @property
    def early_end(self) -> Reason:
        """Return the reason for `has_to_end`."""
        return "cancelled" if self.cancelled else "time"

    def tell(self, event: Event) -> None:
        """Send an event to the listener; if that fails, cancel the request."""
        try:
            self._told(event)
        except Exception:
            log.exception("request %d: its listener failed, so the request is canceled", self.id)
            self.cancelled = True
        if event.finish_reason is not None:
            self.done.set()


class Handle:
    """Handle of a request, returned by `Engine.submit`."""

    def __init__(self, job: Job, wake: Callable[[], None]) -> None:
        self._job, self._wake = job, wake

    @property
    def id(self) -> int:
        """Unique number of the request in the engine."""
        return self._job.id

    def cancel(self) -> None:
        """Cancel the request, unless it has ended. No further step is computed; its last event
        has the reason "cancelled"."""
        self._job.cancelled = True
        self._wake()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the request has ended; False after `timeout` seconds."""
        return self._job.done.wait(timeout)
