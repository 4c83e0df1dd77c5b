"""Engines of tiny models, and what they have to answer."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from llama_py.batch.prompts import MixedPrompt
from llama_py.context import Context
from llama_py.model import Model
from llama_py.params import AnswerParams
from llama_py.serving import Engine, Event, Handle, Request
from llama_py.text.generate import stream
from tests.support.limits import SECONDS
from tests.support.live_models import EXACT, live

WAIT = SECONDS


def model(name: str) -> Model:
    return live(name, "cpu")


def engine(name: str | Model, **options: Any) -> Engine:
    """With 4 slots of 256 tokens, which compute prompts 8 tokens at a time."""
    made = model(name) if isinstance(name, str) else name
    how = {**EXACT, "n_ctx": 1024, "n_seq_max": 4, "n_piece": 8, "checkpoint_min_step": 16}
    return Engine(made, **{**how, **options})


def request(ids: Sequence[int], n: int = 16, **options: Any) -> Request:
    """Greedy, n tokens; options are those of `Request` and of `AnswerParams`."""
    own = {k: options.pop(k) for k in [*options] if k in Request.__dataclass_fields__}
    how = {"temp": 0.0, "ignore_eos": True, "max_tokens": n, **options}
    return Request(prompt=as_given(ids), params=AnswerParams(**how), **own)


@dataclass
class Asked:
    """A request that was submitted, and what was told of it."""

    events: list[Event] = field(default_factory=list)
    handle: Handle | None = None
    told: threading.Condition = field(default_factory=threading.Condition)

    def __call__(self, event: Event) -> None:
        with self.told:
            self.events.append(event)
            self.told.notify_all()

    def until(self, n_tokens: int) -> int:
        """Wait for so many tokens, 0: until it has begun. -> how many there are"""
        with self.told:
            assert self.told.wait_for(lambda: self.events and len(self.tokens) >= n_tokens, WAIT)
            return len(self.tokens)

    def end(self) -> Event:
        """The last event, once it is there."""
        assert self.handle is not None and self.handle.wait(WAIT)
        return self.events[-1]

    @property
    def tokens(self) -> list[int]:
        return [e.token for e in self.events if e.token is not None]

    @property
    def text(self) -> str:
        return "".join(e.text for e in self.events)


def as_given(ids: Sequence[int]) -> Sequence[int]:
    return ids if isinstance(ids, MixedPrompt) else list(ids)


@contextmanager
def held(made: Engine, n: int) -> Iterator[threading.Event]:
    """As `stall`, up to the end of the block at most."""
    go_on = stall(made, n)
    try:
        yield go_on
    finally:
        go_on.set()
        del made._ctx.decode  # what is stalled hides the class's own


def stall(made: Engine, n: int = 0) -> threading.Event:
    """From now on the engine takes n more steps and then none until this is set: on a busy machine
    it would be done before the test has said what it wants."""
    go_on, ctx, steps = threading.Event(), made._ctx, list[int]()
    decode = ctx.decode

    def stalled(*args: Any, **how: Any) -> Any:
        steps.append(1)
        assert len(steps) <= n or go_on.wait(WAIT)
        return decode(*args, **how)

    ctx.decode = stalled  # type: ignore[method-assign]
    return go_on


def note_charges(made: Engine) -> Counter[str]:
    """Return the seconds charged to each client from now on; they are not owed."""
    charged = Counter[str]()
    shares = made._scheduler._turns.shares
    shares.charge = lambda client, seconds: charged.update({client: seconds})  # type: ignore
    return charged


def ask(made: Engine, one: Request) -> Asked:
    asked = Asked()
    asked.handle = made.submit(one, asked)
    return asked


def ask_all(made: Engine, requests: Sequence[Request]) -> list[Asked]:
    """Of all at once, when all have ended. The engine sees all or none of them: it must not have
    begun, or even ended, with the first before the last is there."""
    with made._changed:
        asked = [ask(made, one) for one in requests]
    for one in asked:
        one.end()
    return asked


def alone(name: str | Model, ids: Sequence[int], n: int = 16, **options: Any) -> list[int]:
    """What `llama_py.stream` makes of a prompt in a fresh context."""
    made = model(name) if isinstance(name, str) else name
    own = {k: options.pop(k) for k in ("context_shift", "n_keep") if k in options}
    ctx = Context(made, **{**EXACT, "n_ctx": 256, **options})
    ends = made.tokenizer.eog

    def goes_on(_: Any, logits: Any) -> Any:
        logits = logits.copy()
        logits[[*ends]] = -float("inf")
        return logits

    pieces = stream(ctx, as_given(ids), max_tokens=n, logits_processors=[goes_on], **own)
    return [p.token for p in pieces if p.token is not None]
