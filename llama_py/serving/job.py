"""A request on its way."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic

from llama_py.batch.prompts import Medium, Mixed
from llama_py.decoding.keep import KeepRule
from llama_py.serving.answer import Answer
from llama_py.serving.request import Event, Request

log = logging.getLogger("llama_py")

Told = Callable[[Event], None]


class Job:
    """A request, who is told of it, and how far it has come.

    ids     what its slot begins with: the prompt, and what was answered before it gave way
    reads   tokens of them that are still to be computed
    media   what else than tokens there is in them, by its position
    n_held  ids that the memory had when it began
    n_scored  tokens of the prompt that were read with their logits
    keep    what stays in a full context; None: the answer ends when it is full
    alone   its next step is not to be one with others: the last failed
    since   when it came
    """

    def __init__(self, id: int, answer: Answer, told: Told) -> None:
        self.id, self.answer, self._told = id, answer, told
        self.ids = answer.ids
        self.reads = len(answer.ids)
        prompt = answer.request.prompt
        self.media = dict(prompt.media) if isinstance(prompt, Mixed) else {}
        self.n_held = self.n_scored = 0
        self.keep: KeepRule | None = None
        self.alone = False
        self.since = monotonic()
        self.cancelled = False
        self.done = threading.Event()

    @property
    def request(self) -> Request:
        return self.answer.request

    @property
    def pos(self) -> int:
        """How many of its ids the memory has."""
        return len(self.ids) - self.reads

    @property
    def medium(self) -> Medium | None:
        """What it is to read now, if that is no token."""
        return self.media.get(self.pos) if self.reads else None

    @property
    def n_ahead(self) -> int:
        """Tokens that it is to read before something else comes."""
        if self.has_unscored:
            return self.n_scored - self.pos
        return min((at - self.pos for at in self.media if at >= self.pos), default=self.reads)

    @property
    def has_unscored(self) -> bool:
        """Whether tokens of the prompt are still to be read with their logits: all but the last."""
        request = self.request
        return request.prompt_logprobs is not None and self.n_scored < len(request.prompt) - 1

    def cells(self, n: int) -> int:
        """How many the first n ids take."""
        before = (m for at, m in self.media.items() if at + m.n_pos <= n)
        return n + sum(m.n_tokens - m.n_pos for m in before)

    def whole(self, n: int) -> int:
        """The most of the first n ids that end with none of something that goes on."""
        return min((at for at, m in self.media.items() if at < n < at + m.n_pos), default=n)

    @property
    def is_late(self) -> bool:
        """Whether its time is up."""
        return 0 < self.request.t_max < monotonic() - self.since

    def tell(self, event: Event) -> None:
        """Whoever is told may fail: then nobody listens, and the request is cancelled."""
        try:
            self._told(event)
        except Exception:
            log.exception("request %d: the listener failed, the request is cancelled", self.id)
            self.cancelled = True
        if event.finish_reason is not None:
            self.done.set()


class Handle:
    """What `Engine.submit` gives."""

    def __init__(self, job: Job, wake: Callable[[], None]) -> None:
        self._job, self._wake = job, wake

    @property
    def id(self) -> int:
        """A number of its own in the engine."""
        return self._job.id

    def cancel(self) -> None:
        """Nobody wants the answer any more: no other step is computed for it. Its last event has
        the reason "cancelled"; nothing happens if it has already ended."""
        self._job.cancelled = True
        self._wake()

    def wait(self, timeout: float | None = None) -> bool:
        """Until it has ended. False if that took longer than `timeout` seconds."""
        return self._job.done.wait(timeout)
