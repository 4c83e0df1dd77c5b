"""The ranks of this program, and messages between them."""

from __future__ import annotations

import atexit
import os
import pickle
import re
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial, wraps
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from ggml_mpi import wire
from ggml_mpi.about import compared
from ggml_mpi.keeper import ENDS, JOINS, RUNS, tell
from ggml_mpi.keeper import n_started as n_started
from ggml_mpi.lines import connected
from ggml_mpi.order import End, Word
from ggml_mpi.watch import Watch
from ggml_py.backend import Bytes
from ggml_py.errors import BackendError

if TYPE_CHECKING:
    from mpi4py import MPI

ORDER, REPLY, DATA = 1, 2, 3  # tags
CHUNK = 2**30  # bytes of one message
AHEAD = 64  # orders that others have not taken yet, before this rank waits for them
SPINS = 2000  # looks at a message that does not come, before the first sleep
SLEEP = (5e-5, 1e-3)  # seconds, the shortest and the longest
TELLING = 10.0  # seconds in which all ranks end, if one has died

P = ParamSpec("P")
R = TypeVar("R")


def _with_others(method: Callable[P, R]) -> Callable[P, R]:
    """MPI fails where another rank has died, which is then said by who keeps it, or watches."""

    @wraps(method)
    def called(*args: P.args, **more: P.kwargs) -> R:
        try:
            return method(*args, **more)
        except RuntimeError as e:
            if type(e).__module__.partition(".")[0] != "mpi4py":
                raise
            time.sleep(TELLING)
            raise BackendError(f"MPI failed: {e}") from e

    return called


@dataclass(slots=True)
class Sent:
    """Messages that this rank has sent, and their bytes; not those that say that it is alive."""

    n: int = 0
    n_bytes: int = 0

    def add(self, size: int) -> None:
        self.n += 1
        self.n_bytes += size


class World:
    """All ranks. Only rank 0 gives orders.

    n_local  ranks on this machine
    hosts    the machine of each
    watch    notices when one is gone
    sent     counts what this one sends
    """

    def __init__(self) -> None:
        """BackendError in all ranks, if one has another version, or cannot be reached."""
        tell(JOINS)
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as e:
            raise BackendError(
                f"devices of other ranks need MPI: pip install 'llama-py[mpi]' ({e})"
            ) from None
        self._mpi = MPI
        self.comm = MPI.COMM_WORLD
        self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()
        near = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.n_local = near.Get_size()
        near.Free()
        self.sent = Sent()
        self._lock = threading.RLock()
        self._leaving: deque[tuple[MPI.Request, bytes]] = deque()  # with what they send
        self._asked = 0
        self._over = False
        self.byte = MPI.BYTE
        self.hosts = compared(self.comm)
        self.watch = Watch(self.rank, connected(self.comm, self.hosts), dict(enumerate(self.hosts)))
        _unname_shared_memory()
        tell(RUNS)
        if self.rank == 0:
            atexit.register(self._end)

    def _end(self) -> None:
        for rank in range(1, self.size):
            self.ask(rank, End())
        self.part()

    def part(self) -> None:
        """The end of MPI, for all ranks: launchers kill who is left when the first has gone."""
        tell(ENDS)
        self.watch.part()
        self._wait([request for request, _ in self._leaving])
        self.comm.Barrier()
        self._over = True
        self._mpi.Finalize()

    @_with_others
    def tell(self, rank: int, order: Word, *more: Bytes) -> None:
        """Give an order, with bytes that it asks for; it is not waited for."""
        if self._over:  # what is given back at the very end
            return
        with self.whole():
            data = wire.dumps(order)
            self._leave(rank, data)
            for one in more:
                self.send(rank, one)

    def _leave(self, rank: int, data: bytes) -> None:
        """Send an order, whether or not the other rank is ready for it."""
        self.sent.add(len(data))
        while self._leaving and self._leaving[0][0].Test():
            self._leaving.popleft()
        if len(self._leaving) >= AHEAD:
            self._wait([self._leaving.popleft()[0]])
        self._leaving.append((self.comm.Isend([data, self.byte], rank, ORDER), data))

    def ask(self, rank: int, order: Word) -> Any:
        """Give an order and wait for what comes of it, and of all before. Raises what went wrong
        there since the last question."""
        with self._lock:
            self._asked += 1
            number = self._asked
            self.tell(rank, order.numbered(number))
            while True:
                reply = self._next(rank, REPLY)
                answered, error, value = pickle.loads(reply)
                if answered == number:  # others were for who did not wait
                    break
        if error is not None:
            raise error
        return value

    @_with_others
    def reply(self, number: int, error: Exception | None, value: Any) -> None:
        """Answer a question of rank 0."""
        data = pickle.dumps((number, error, value), pickle.HIGHEST_PROTOCOL)
        self.sent.add(len(data))
        self._wait([self.comm.Isend([data, self.byte], 0, REPLY)])

    def next_order(self) -> bytes:
        return self._next(0, ORDER)

    @_with_others
    def _next(self, rank: int, tag: int) -> bytes:
        status = self._mpi.Status()
        for pause in _pauses():
            if self.comm.Iprobe(rank, tag, status):
                break
            pause()
        data = bytearray(status.Get_count(self.byte))
        self.comm.Recv([data, self.byte], rank, tag)
        return bytes(data)

    def send(self, rank: int, data: Bytes) -> None:
        """Bytes to a rank that receives as many."""
        self._wait(self.sending(rank, data))

    def receive(self, rank: int, into: Bytes) -> None:
        self._wait(self.receiving(rank, into))

    @_with_others
    def sending(self, rank: int, data: Bytes) -> list[MPI.Request]:
        data = np.ascontiguousarray(data)
        self.sent.add(data.size)
        return [self.comm.Isend([part, self.byte], rank, DATA) for part in _chunks(data)]

    @_with_others
    def receiving(self, rank: int, into: Bytes) -> list[MPI.Request]:
        return [self.comm.Irecv([part, self.byte], rank, DATA) for part in _chunks(into)]

    @_with_others
    def _wait(self, requests: Sequence[MPI.Request]) -> None:
        waiting = list(requests)
        for pause in _pauses():
            if self._mpi.Request.Testall(waiting):
                return
            pause()

    wait = _wait

    @contextmanager
    def whole(self) -> Iterator[None]:
        """What must not be left half done: an order without its bytes, one of two that meet."""
        with self._lock, _uninterrupted():
            yield

    def abort(self) -> None:
        """End all ranks: the others notice when this one is gone. (MPI's own way has its words.)"""
        sys.stdout.flush()
        os._exit(1)


@cache
def world() -> World:
    """MPI is initialized by the first call."""
    return World()


def _unname_shared_memory() -> None:
    """Once all ranks have it: who is killed cannot, and MPICH leaves that to the end."""
    with suppress(OSError):
        maps = Path("/proc/self/maps").read_text()
        for name in dict.fromkeys(re.findall(r"/dev/shm/mpich_shm_\w+", maps)):
            Path(name).unlink(missing_ok=True)


def _chunks(data: Bytes) -> Iterator[Bytes]:
    for start in range(0, data.size, CHUNK):
        yield data[start : start + CHUNK]


def _pauses() -> Iterator[Callable[[], None]]:
    """What to do between two looks: first let others run, then sleep, ever longer."""
    for _ in range(SPINS):
        yield partial(time.sleep, 0)
    seconds = SLEEP[0]
    while True:
        yield partial(time.sleep, seconds)
        seconds = min(2 * seconds, SLEEP[1])


class _Deferred:
    """Takes note of Ctrl-C."""

    def __init__(self) -> None:
        self.came: tuple[int, FrameType | None] | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.came = number, frame


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C comes afterwards. To block the signal does not do it: another thread, of numpy's or
    the CPU's, would get it, and then the main one its KeyboardInterrupt."""
    before = None
    if threading.current_thread() is threading.main_thread():
        before = signal.getsignal(signal.SIGINT)
    if not callable(before) or isinstance(before, _Deferred):
        yield
        return
    deferred = _Deferred()
    signal.signal(signal.SIGINT, deferred)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if deferred.came is not None:
            before(*deferred.came)
