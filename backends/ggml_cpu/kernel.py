"""Decorators that declare kernels (`@kernel`) and their helpers (`@fn`, `@routine`).

A declaration only records the function; it does not compile it or import Numba.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, cast

from ggml_py.tensor import Tensor

KernelFunction = Callable[[int, int, int], None]
# A helper (`@fn`). Numba infers the types of its vectors and addresses from the calling kernels, so
# only helpers that the host also calls have annotations.
Function = Callable[..., Any]
Helper = TypeVar("Helper", bound=Function)


def accept(node: Tensor) -> str:
    """Return "": the default `when`, which accepts every node."""
    return ""


def no_scratch(node: Tensor, nth: int) -> tuple[int, int]:
    """Return zeros: the default `scratch`, of no bytes."""
    return 0, 0


def no_extra(node: Tensor) -> tuple[int, ...]:
    """Return (): the default `extra`, of no integers."""
    return ()


@dataclass(frozen=True, eq=False)
class Kernel:
    """A native function `(p, ith, nth)`: parameter block address, thread index, thread count.

    source: the function. If `made`, a factory of the function: dozens of types have separate
        helpers, which the factory creates only to compile the kernel or to find its cache file.
    ops: names of the ggml ops that it computes; empty for a kernel used only in `prepare`.
    when: returns "" if the kernel accepts the node, else the reason ("needs f32 rows").
    rank: the accepting kernel with the highest rank runs.
    first: the only accepted type of the first source; "" for any.
    scratch: returns (bytes shared by all threads, bytes per thread) for a node and a number of
        threads; if the scratch has several parts, it and the kernel share one `fn` for the sizes.
    prepare: kernels that run before it on the same parameter block.
    extra: returns up to 8 integers for the parameter block, read with `v.extra(p, i)`.
    reads: for a kernel used in `prepare` that writes only the shared scratch: the operands (1.. are
        sources) that the scratch depends on. Nodes with the same operands, op params and `extra`
        reuse the scratch without running it again, so they must not write to the scratch.
        Empty: the node consumes the scratch (counters), so the kernel runs for every node.
        None: it may read all operands and write dst, and it runs for every node.
    """

    name: str
    ops: tuple[str, ...]
    source: Callable[..., Any]
    when: Callable[[Tensor], str] = accept
    scratch: Callable[[Tensor, int], tuple[int, int]] = no_scratch
    prepare: tuple[Kernel, ...] = ()
    extra: Callable[[Tensor], Sequence[int]] = no_extra
    reads: tuple[int, ...] | None = None
    rank: int = 0
    first: str = ""
    made: bool = False

    @cached_property
    def function(self) -> KernelFunction:
        return cast("KernelFunction", self.source() if self.made else self.source)

    @cached_property
    def reads_to_prepare(self) -> tuple[int, ...]:
        """The operands that its `prepare` kernels read, if nodes can reuse their scratch; or ()."""
        reads = [k.reads for k in self.prepare]
        return tuple(i for r in reads for i in r or ()) if all(reads) else ()

    @property
    def module(self) -> str:
        """The module that declares the kernel; a compiling process imports only this module."""
        return self.source.__module__


@dataclass
class Registry:
    """All declared kernels, by name and by op, and helpers not yet known to Numba."""

    kernels: dict[str, Kernel] = field(default_factory=dict)
    by_op: dict[str, dict[str, Kernel]] = field(default_factory=dict)
    helpers: list[Function] = field(default_factory=list)

    def add(self, kernel: Kernel) -> Kernel:
        known = self.kernels.get(kernel.name)
        if known is not None and known.module != kernel.module:
            raise ValueError(
                f"kernel {kernel.name!r} is declared twice, in {known.module} and in "
                f"{kernel.module}; set another name="
            )
        self.kernels[kernel.name] = kernel
        for op in kernel.ops:
            self.by_op.setdefault(op, {})[kernel.name] = kernel
        return kernel

    def new_helpers(self) -> list[Function]:
        """Return helpers declared since the last call."""
        new, self.helpers = self.helpers, []
        return new


REGISTRY = Registry()
ROUTINE = "routine"  # function attribute: do not inline


def fn(function: Helper) -> Helper:
    """Declare a helper for kernels; it is always inlined."""
    REGISTRY.helpers.append(function)
    return function


def routine(function: Helper) -> Helper:
    """Declare a helper that is not inlined, for long calls (a tile or a row).

    LLVM compiles several small functions faster than a large one.
    """
    vars(function)[ROUTINE] = True
    return fn(function)


def is_routine(function: object) -> bool:
    return ROUTINE in getattr(function, "__dict__", ())


def kernel(
    *ops: str,
    when: Callable[[Tensor], str] = accept,
    scratch: Callable[[Tensor, int], tuple[int, int]] = no_scratch,
    prepare: Sequence[Kernel] = (),
    extra: Callable[[Tensor], Sequence[int]] = no_extra,
    reads: Sequence[int] | None = None,
    rank: int = 0,
    first: str = "",
    name: str = "",
    made: bool = False,
) -> Callable[[Callable[..., Any]], Kernel]:
    """Declare a kernel for `ops` (see `Kernel`). The name defaults to the function's.

    Raises ValueError if another module has declared a kernel of the same name.
    """

    def declare(source: Callable[..., Any]) -> Kernel:
        chosen = name or source.__name__
        steps, read = tuple(prepare), None if reads is None else tuple(reads)
        return REGISTRY.add(
            Kernel(chosen, ops, source, when, scratch, steps, extra, read, rank, first, made)
        )

    return declare
