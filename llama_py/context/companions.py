"""Companion objects of higher layers that are closed with their context."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from llama_py._moved import former

if TYPE_CHECKING:
    from typing_extensions import Self


class Companion(Protocol):
    """Object of a higher layer with the lifetime of its context.

    host_bytes   bytes of host memory that it uses
    """

    @property
    def host_bytes(self) -> int: ...

    def close(self) -> None: ...


C = TypeVar("C", bound=Companion)


class HasCompanions:
    """Context part that owns one companion object per class."""

    def __init__(self) -> None:
        self._companions: dict[type[Companion], Companion] = {}

    def companion(self, kind: type[C], make: Callable[[Self], C]) -> C:
        """Return this context's object of a class; it is created on first use and closed with the
        context."""
        if kind not in self._companions:
            self._companions[kind] = make(self)
        found = self._companions[kind]
        assert isinstance(found, kind)
        return found

    def replace_companion(self, kind: type[C], one: C) -> None:
        """Replace the object of the class, without closing it."""
        self._companions[kind] = one

    def close_companions(self) -> None:
        """Close all, the latest first, and forget them."""
        for one in [*self._companions.values()][::-1]:
            one.close()
        self._companions = {}

    @property
    def host_bytes(self) -> int:
        """Bytes of host memory that companions use."""
        return sum(one.host_bytes for one in self._companions.values())

    @property
    def reuse(self) -> Any:
        """The former name of `PrefixCache.for_context(ctx)`, for one release."""
        return former(self, "reuse", "llama_py.decoding.prefix_cache", "PrefixCache")

    @property
    def speculator(self) -> Any:
        """The former name of `Sequences.for_context(ctx)`, for one release."""
        return former(self, "speculator", "llama_py.decoding.sequences", "Sequences")
