"""Caches pyopencl's work for kernel objects and their arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyopencl as cl

MAKER = "generate_enqueue_and_set_args"


def remember() -> None:
    """Make pyopencl create the Python functions of kernel objects once per signature.

    By default, it reads them from a database and compiles them for each kernel object, at ten times
    the cost of the rest.
    """
    from pyopencl import invoker

    make = getattr(invoker, MAKER, None)
    if make is not None and not hasattr(make, "__wrapped__"):
        setattr(invoker, MAKER, remembering(make))


def remembering(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return `make` with a cache of its results for arguments without types.

    The cache ignores its last argument, the devices, since they are used only for warnings.
    """
    made: dict[tuple[Any, ...], Any] = {}

    @wraps(make)
    def find(name: str, n_passed: int, n: int, types: Any, *others: Any, **named: Any) -> Any:
        if types is not None:
            return make(name, n_passed, n, types, *others, **named)
        if (key := (name, n_passed, n)) not in made:
            made[key] = make(name, n_passed, n, types, *others, **named)
        return made[key]

    return find


def set_arguments(kernel: cl.Kernel, arguments: Sequence[Any]) -> None:
    """Set a kernel's arguments without the type search of `Kernel.set_arg`.

    For bytes and numbers, that would first try four other types, with an exception for each.
    """
    import pyopencl as cl

    set_bytes = getattr(kernel, "_set_arg_buf", kernel.set_arg)
    for i, argument in enumerate(arguments):
        if isinstance(argument, cl.Buffer):
            kernel.set_arg(i, argument)
        else:
            set_bytes(i, argument)
