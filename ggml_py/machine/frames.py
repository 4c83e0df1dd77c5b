"""Memory of Python's stack frames.

CPython maps this memory in chunks of 16 KiB. A call that does not fit maps another chunk, and its
return unmaps that chunk, so a loop with calls across the end of a chunk is about ten times slower.
A frame that declares a large stack gets a large chunk, and the calls below it use the rest of the
chunk. Unused pages take no memory.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import TypeVar, cast

F = TypeVar("F", bound=Callable[..., object])
N_SLOTS = 1 << 14  # 128 KiB: its chunk has 256 KiB


def with_large_chunk(function: F) -> F:
    """Give a function, and the calls below it, one chunk of frame memory. Use it for functions that
    run a command or a thread."""
    made = cast(FunctionType, function)
    made.__code__ = made.__code__.replace(co_stacksize=N_SLOTS)
    return function
