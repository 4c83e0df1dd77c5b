"""Numba typing and lowering of `min` and `max` of two int64 in kernels.

Numba's implementations use a tuple and two closures; importing their compiler passes takes longer
than typing the first kernel. Other argument types still use Numba's implementations.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba.core import base, imputils, types
from numba.core.typing.templates import AbstractTemplate, Registry, Signature, signature

TYPING, LOWERING = Registry(), imputils.Registry("extremes")
_TWO = (types.int64, types.int64)


class _OfTwo(AbstractTemplate):
    def generic(self, args: tuple[types.Type, ...], kws: dict[str, types.Type]) -> Signature | None:
        return signature(types.int64, *_TWO) if args == _TWO and not kws else None


def _build_lowering(by: str) -> Callable[..., ir.Value]:
    """Return a lowering to: second if second `by` first else first, with `by` < or >."""

    def lower(
        context: base.BaseContext, builder: ir.IRBuilder, sig: Signature, args: list[ir.Value]
    ) -> ir.Value:
        first, second = args
        return builder.select(builder.icmp_signed(by, second, first), second, first)

    return lower


for _function, _by in ((min, "<"), (max, ">")):
    TYPING.register_global(_function)(_OfTwo)
    LOWERING.lower(_function, *_TWO)(_build_lowering(_by))
