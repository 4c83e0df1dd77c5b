"""What ranks other than 0 run: orders, one after the other."""

from __future__ import annotations

import platform
import signal
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ggml_mpi import wire
from ggml_mpi.exchange import Meetings
from ggml_mpi.files import Files
from ggml_mpi.order import End, Order
from ggml_mpi.world import World, world
from ggml_py import host
from ggml_py.backend import Buffer, Bytes, Program
from ggml_py.errors import BackendError
from ggml_py.null import NullBuffer
from ggml_py.registry import device as find_device


class Worker:
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
        self._error: Exception | None = None

    def serve(self) -> End:
        """Until the end; the order that said so."""
        while True:
            order: Order | End = wire.loads(self.world.next_order(), self._buffer)
            if isinstance(order, End):
                return order
            self._obey(order)

    def _obey(self, order: Order) -> None:
        """What goes wrong is told with the next answer; at once, and to all, if others wait."""
        value = None
        try:
            value = order.obey(self)
        except Exception as e:
            if order.meets:
                self.give_up(e)
            self._error = self._error or self._told(e)
        if order.number:
            error, self._error = self._error, None
            self.world.reply(order.number, error, value)

    def give_up(self, e: Exception) -> None:
        """Others wait for what has failed: all ranks end."""
        sys.stderr.write(f"error: {self._error or self._told(e)}\n")
        sys.stderr.flush()
        self.world.abort()

    def _told(self, e: Exception) -> Exception:
        """The same kind of error, with this rank's name."""
        text = f"rank {self.world.rank} ({platform.node()}): {e}"
        try:
            return type(e)(text)
        except TypeError:
            return BackendError(text)

    def _buffer(self, handle: int) -> Buffer:
        """NullBuffer for what there was no memory for, which was told."""
        return self.buffers.get(handle) or NullBuffer(0)


def local_device(at: World) -> Any:
    """The CPU, with the threads that this rank has where several share a machine."""
    cpu: Any = find_device("cpu")
    cpu.set_threads(max(1, host.default_threads() // at.n_local))
    return cpu


def serve() -> None:
    """In a rank other than 0: obey until rank 0's program ends."""
    leave_signals()
    here = world()
    last = Worker(here).serve()
    here.reply(last.number, None, None)
    here.part()


def leave_signals() -> None:
    """Rank 0 hears them, and says what follows."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
