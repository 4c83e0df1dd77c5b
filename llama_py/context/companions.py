"""Objects of higher layers that live as long as a context, and are closed with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from llama_py._moved import former

if TYPE_CHECKING:
    from typing_extensions import Self


class Companion(Protocol):
    """An object of a higher layer that lives as long as its context.

    host_bytes   what it takes of the host's memory
    """

    @property
    def host_bytes(self) -> int: ...

    def close(self) -> None: ...


C = TypeVar("C", bound=Companion)


class Accompanied:
    """A context, to what belongs to it: an object of each class."""

    def __init__(self) -> None:
        self._companions: dict[type[Companion], Companion] = {}

    def companion(self, kind: type[C], make: Callable[[Self], C]) -> C:
        """The object of a class that belongs to this context: made when it is first asked for,
        closed with it."""
        if kind not in self._companions:
            self._companions[kind] = make(self)
        found = self._companions[kind]
        assert isinstance(found, kind)
        return found

    def replace_companion(self, kind: type[C], one: C) -> None:
        """Let another object take the place of the class's one; that is not closed here."""
        self._companions[kind] = one

    def close_companions(self) -> None:
        """Close all, the latest first, and forget them."""
        for one in [*self._companions.values()][::-1]:
            one.close()
        self._companions = {}

    @property
    def host_bytes(self) -> int:
        """What companions take of the host's memory."""
        return sum(one.host_bytes for one in self._companions.values())

    @property
    def reuse(self) -> Any:
        """The former name of `PrefixCache.of(ctx)`, for one release."""
        return former(self, "reuse", "llama_py.decoding.prefix_cache", "PrefixCache")

    @property
    def speculator(self) -> Any:
        """The former name of `Sequences.of(ctx)`, for one release."""
        return former(self, "speculator", "llama_py.decoding.sequences", "Sequences")
