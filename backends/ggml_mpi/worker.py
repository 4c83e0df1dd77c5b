"""The loop of ranks other than 0, which obey orders one after the other."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any

import numpy as np

from ggml_mpi import wire
from ggml_mpi.exchange import Meetings
from ggml_mpi.files import Files
from ggml_mpi.kept import KeptWeights
from ggml_mpi.order import EndProcess, Order
from ggml_mpi.world import World, world
from ggml_py.backend import Buffer, Bytes, Program
from ggml_py.backend.null import NullBuffer
from ggml_py.backend.registry import device as find_device
from ggml_py.machine import host


class RankWorker:
    """A rank with its device, the buffers and programs that rank 0 knows by numbers."""

    def __init__(self, at: World) -> None:
        self.world = at
        self.device = local_device(at)
        self.buffers: dict[int, Buffer] = {}
        self.programs: dict[int, Program] = {}
        self.scripts: dict[int, Sequence[Order]] = {}
        self.given: Bytes = np.zeros(0, np.uint8)
        self.meetings = Meetings(at, self.device)
        self.files = Files()
        self.kept = KeptWeights()
        self._error: Exception | None = None

    def serve(self) -> None:
        """Obey orders until the end."""
        while True:
            order: Order | EndProcess = wire.loads(self.world.next_order(), self._buffer)
            if isinstance(order, EndProcess):
                self._answer(order.number, None)
                return
            self._obey(order)

    def _obey(self, order: Order) -> None:
        value = None
        try:
            value = order.obey(self)
        except Exception as e:
            self.note(e, order.meets)
        if order.number:
            self._answer(order.number, value)

    def note(self, e: Exception, meets: bool) -> None:
        """Store a failure for the next answer, and mark all bytes sent before it; end all
        ranks if others wait for data of this rank."""
        self._error = self._error or self.world.add_rank_name(e)
        self.world.failed = True
        if meets:
            self.world.abort(self._error)

    def _answer(self, number: int, value: Any) -> None:
        error, self._error = self._error, None
        self.world.reply(number, error, value)

    def _buffer(self, handle: int) -> Buffer:
        """Return the buffer of a handle, or a NullBuffer if its allocation failed."""
        return self.buffers.get(handle) or NullBuffer(0)


def local_device(at: World) -> Any:
    """Return the CPU, with this rank's share of threads if ranks share a machine."""
    cpu: Any = find_device("cpu")
    cpu.set_threads(max(1, host.default_threads() // at.n_local))
    return cpu


def serve() -> None:
    """Obey in a rank other than 0 until rank 0's program ends."""
    leave_signals()
    here = world()
    try:
        RankWorker(here).serve()
        here.part()
    except Exception as e:  # a failure outside of orders: the ranks cannot continue
        here.give_up(e)


def leave_signals() -> None:
    """Ignore signals: rank 0 gets them, and ends the others."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
