"""Declarations of kernels: `@kernel` for a function the executor calls, `@fn` and `@routine` for
helpers they share.

Nothing is compiled here, and Numba is not imported: a declaration only records the function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, cast

from ggml_py.tensor import Tensor

KernelFunction = Callable[[int, int, int], None]
# A helper, `@fn`. What it takes and returns are vectors and addresses, which Numba infers from the
# kernels that call it: only what is called on the host as well has annotations.
Function = Callable[..., Any]
Helper = TypeVar("Helper", bound=Function)


def accept(node: Tensor) -> str:
    """Return "", a `when` that takes every node."""
    return ""


def no_scratch(node: Tensor, nth: int) -> tuple[int, int]:
    """Return zeros, a `scratch` that needs none."""
    return 0, 0


def no_extra(node: Tensor) -> tuple[int, ...]:
    """Return nothing, an `extra` that passes none."""
    return ()


@dataclass(frozen=True, eq=False)
class Kernel:
    """One native function `(p, ith, nth)`: block address, thread index, number of threads.

    source: the function; `made`: what makes it, from helpers that dozens of types have of their
        own and that nobody needs before it is compiled or looked for.
    ops: names of the ggml ops it computes; none for a step that other kernels `prepare` with.
    when: "" for a node it takes, else the reason why not ("needs f32 rows").
    rank: of several kernels that take a node, the one of highest rank runs.
    first: the only type whose first source it takes, "" for any.
    scratch: (bytes shared by all threads, bytes per thread) for a node and a number of threads;
        where there are several parts, it and the kernel take their sizes from the same `fn`.
    prepare: kernels run before it on the same parameter block.
    extra: up to 8 integers for the parameter block, read with `v.extra(p, i)`.
    reads: for a preparing kernel that writes nothing but the shared scratch, the operands (1.. src)
        that this depends on: other nodes with the same ones, op params and `extra` may use the
        scratch as it is, and none may write to it. Empty: what it makes, counters, is used up, so
        it is always run again.
        None: it may read all operands and write dst, and is always run again.
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

    @property
    def module(self) -> str:
        """The module that declares it; importing that is all a compiling process needs."""
        return self.source.__module__


@dataclass
class Registry:
    """The declarations so far: kernels by name, and by op; helpers that Numba does not know yet."""

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
ROUTINE = "routine"  # among the attributes of a function: it is not inlined


def fn(function: Helper) -> Helper:
    """Declare a helper that kernels may call; it is always inlined into them."""
    REGISTRY.helpers.append(function)
    return function


def routine(function: Helper) -> Helper:
    """Declare a helper that stays a function of its own, as a call takes long (a tile, a
    row): LLVM is done with several small functions sooner than with a large one."""
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

    Raises ValueError where another module has already taken the name.
    """

    def declare(source: Callable[..., Any]) -> Kernel:
        chosen = name or source.__name__
        steps, read = tuple(prepare), None if reads is None else tuple(reads)
        return REGISTRY.add(
            Kernel(chosen, ops, source, when, scratch, steps, extra, read, rank, first, made)
        )

    return declare
