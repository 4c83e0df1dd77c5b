"""Context managers that postpone Ctrl-C until related changes are complete."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` is slow: it creates enums
import threading
from collections.abc import Callable
from functools import wraps
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from ggml_py._moved import former_names

P = ParamSpec("P")
T = TypeVar("T")
_MAIN = threading.main_thread()
_noted = False


class Shield:
    """Context manager that postpones Ctrl-C to the end of its block.

    The shield notes the signal, and raises KeyboardInterrupt at the end of the block. It works
    only in the main thread and with Python's default handler; a nested shield has no effect.
    """

    __slots__ = ("_is_on",)

    def __enter__(self) -> None:
        global _noted
        self._is_on = (
            threading.get_ident() == _MAIN.ident
            and _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
        )
        if self._is_on:
            _noted = False
            _signal.signal(_signal.SIGINT, _note)

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._is_on:
            _open()


class Seal(Shield):
    """Shield that also prevents `let_through` and `raise_noted` from raising."""

    __slots__ = ("_is_sealed",)

    def __enter__(self) -> None:
        super().__enter__()
        self._is_sealed = _is_shielded()
        if self._is_sealed:
            _signal.signal(_signal.SIGINT, _note_sealed)

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._is_sealed:
            _signal.signal(_signal.SIGINT, _note)
        super().__exit__(kind, e, tb)


def let_through(run: Callable[[], T]) -> T:
    """Return run(), and raise an earlier or new KeyboardInterrupt at once.

    A shielded block that calls this must undo the effects of `run` if it raises.
    """
    if not _is_shielded():
        return run()
    try:
        _open()
        return run()
    finally:
        _signal.signal(_signal.SIGINT, _note)


def raise_noted() -> None:
    """Raise KeyboardInterrupt now if a shield of this thread has noted Ctrl-C."""
    global _noted
    if _noted and _is_shielded():
        _noted = False
        raise KeyboardInterrupt


def postpone_interrupts(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function, so that Ctrl-C is postponed until it returns."""

    @wraps(function)
    def run_shielded(*args: P.args, **kwargs: P.kwargs) -> T:
        with Shield():
            return function(*args, **kwargs)

    return run_shielded


def _is_shielded() -> bool:
    is_main = threading.get_ident() == _MAIN.ident
    return is_main and _signal.getsignal(_signal.SIGINT) is _note


def _open() -> None:
    global _noted
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    if _noted:
        _noted = False
        raise KeyboardInterrupt


def _note(number: int, frame: FrameType | None) -> None:
    global _noted
    _noted = True


def _note_sealed(number: int, frame: FrameType | None) -> None:
    _note(number, frame)


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, shielded="postpone_interrupts")
