"""Memory of Python's stack frames.

CPython maps this memory in chunks of 16 KiB: a call that does not fit maps a chunk, and its return
unmaps it. A loop whose calls cross the end of a chunk does so for each call, which then takes ten
times as long. A frame that declares a large stack gets a large chunk, and the rest of the chunk is
free for the calls below it. Unused pages take no memory.
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
