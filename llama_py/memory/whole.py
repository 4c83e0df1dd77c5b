"""Changes of a memory that happen entirely or not at all, though an interrupt comes between any two
lines of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
Back = Callable[[], object]


class Remembering(Protocol):
    """Something that keeps books."""

    def remember(self, seq_id: int | None = None) -> Back:
        """What puts the books back as they are now; with a sequence, after a change of that one's
        only. It may be called more than once."""


S = TypeVar("S", bound=Remembering)


def whole(back: Back, change: Callable[[], T]) -> T:
    """What `change` returns. Interrupted, it is made anew from where it began, so that its end is
    reached; then KeyboardInterrupt is raised.

    change  of books, which `back` puts back, and of data, which stays as it was written: it must
            not read what it writes
    """
    interrupted: KeyboardInterrupt | None = None
    while True:
        try:
            result = change()
            break
        except KeyboardInterrupt as e:
            interrupted = e
            back()
    if interrupted is not None:
        raise interrupted
    return result


def entirely(
    only: int | None = None,
) -> Callable[[Callable[Concatenate[S, P], T]], Callable[Concatenate[S, P], T]]:
    """A method that is a `whole` change of its object.

    only  which argument is the sequence that alone changes; None, or -1 in it: all may
    """

    def decorate(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
        @wraps(method)
        def done(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
            named = only is not None and only < len(args)
            seq_id = args[only] if named else -1  # type: ignore[index]
            back = self.remember(seq_id if isinstance(seq_id, int) and seq_id >= 0 else None)
            return whole(back, lambda: method(self, *args, **kwargs))

        return done

    return decorate
