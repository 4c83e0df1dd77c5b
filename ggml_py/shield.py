"""Ctrl-C in blocks that change several things together."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` makes enum members, which is slow
import threading
from collections.abc import Callable
from functools import wraps
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Self

P = ParamSpec("P")
T = TypeVar("T")
_MAIN = threading.main_thread()


class Shield:
    """Context manager that postpones Ctrl-C to the end of its block.

    The signal is noted, and KeyboardInterrupt is raised afterwards. This holds in the main thread
    and for Python's own handler. Elsewhere, and within another shield, it does nothing.
    """

    __slots__ = ("_came", "_is_on")

    def __enter__(self) -> Self:
        self._came = False
        self._is_on = (
            threading.get_ident() == _MAIN.ident
            and _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
        )
        if self._is_on:
            _signal.signal(_signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._is_on:
            self._open()

    def let_through(self, run: Callable[[], T]) -> T:
        """Return run(), in which KeyboardInterrupt is raised at once, also if it was noted before.

        The caller must undo what `run` did if this raises.
        """
        if not self._is_on:
            return run()
        try:
            self._open()
            return run()
        finally:
            _signal.signal(_signal.SIGINT, self._note)

    def _open(self) -> None:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        if self._came:
            self._came = False
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = True


def shielded(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function that Ctrl-C does not interrupt, but follows."""

    @wraps(function)
    def done(*args: P.args, **kwargs: P.kwargs) -> T:
        with Shield():
            return function(*args, **kwargs)

    return done
