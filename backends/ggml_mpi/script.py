"""The work of a rank in one run of a graph, kept there: a run is one message, with its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ggml_mpi.exchange import catch_failure
from ggml_mpi.order import Order
from ggml_py.backend import Buffer


@dataclass(frozen=True, kw_only=True)
class Put(Order):
    """Write bytes of the run's message."""

    start: int
    buffer: Buffer
    offset: int
    size: int

    def obey(self, here: Any) -> None:
        self.buffer.write(self.offset, here.given[self.start : self.start + self.size])


@dataclass(frozen=True, kw_only=True)
class Keep(Order):
    """Store orders, to be run in order."""

    handle: int
    orders: Sequence[Order]

    def obey(self, here: Any) -> None:
        here.scripts[self.handle] = self.orders


@dataclass(frozen=True, kw_only=True)
class Play(Order):
    """Run stored orders: all of them, even if one fails, since other ranks wait for the next.

    given  the bytes that `Put` writes
    """

    handle: int
    given: bytes

    def obey(self, here: Any) -> None:
        here.given = np.frombuffer(self.given, np.uint8)
        for order in here.scripts[self.handle]:
            found = catch_failure(partial(order.obey, here))
            if found is not None:
                here.note(found, order.meets)


@dataclass(frozen=True, kw_only=True)
class Forget(Order):
    handle: int

    def obey(self, here: Any) -> None:
        here.scripts.pop(self.handle, None)
