"""Cancellation of long work: loops regularly call a check of their caller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
EVERY = 1024  # items between two checks

_check: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


@contextmanager
def use_stop_check(check: Callable[[], None]) -> Iterator[None]:
    """Let `check` cancel this block by an exception; loops in the block call it often."""
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


def check_stopped() -> None:
    """Raise the error of the caller's check, if any."""
    check = _check.get()
    if check is not None:
        check()


def iterate_checked(items: Iterable[T]) -> Iterator[T]:
    """Yield items; call the check before each block of `EVERY` items."""
    for i, item in enumerate(items):
        if not i % EVERY:
            check_stopped()
        yield item
