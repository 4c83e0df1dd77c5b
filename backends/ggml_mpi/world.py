"""The ranks of this program, and messages between them."""

from __future__ import annotations

import atexit
import os
import pickle
import platform
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
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, NoReturn, ParamSpec, TypeVar

import numpy as np

from ggml_mpi import wire
from ggml_mpi.about import gather_hosts
from ggml_mpi.keeper import ENDS, JOINS, RUNS, tell
from ggml_mpi.keeper import n_started as n_started
from ggml_mpi.lines import connect_ranks
from ggml_mpi.order import EndProcess, Settle, Word
from ggml_mpi.watch import Watch
from ggml_py.backend import Bytes
from ggml_py.errors import BackendError
from ggml_py.machine.extras import install_hint
from ggml_py.machine.shield import Seal

if TYPE_CHECKING:
    from mpi4py import MPI

ORDER, REPLY = 1, 2  # tags
GOOD, FAILED = 0, 1  # tags of bytes from rank to rank, on another communicator
CHUNK = 2**30  # bytes of one message
AHEAD = 64  # unreceived orders before this rank waits
SPINS = 2000  # polls for a message before the first sleep
SLEEP = (5e-5, 1e-3)  # seconds, the shortest and the longest
TELLING = 10.0  # seconds until all ranks end, if one has died

P = ParamSpec("P")
R = TypeVar("R")


def _with_others(method: Callable[Concatenate[World, P], R]) -> Callable[Concatenate[World, P], R]:
    """Return a method with handling of MPI failures after another rank's death. That rank's
    keeper or the watch reports the death; without a report this rank ends all ranks, since
    others would wait forever."""

    @wraps(method)
    def handle_failure(here: World, /, *args: P.args, **more: P.kwargs) -> R:
        try:
            return method(here, *args, **more)
        except RuntimeError as e:
            if type(e).__module__.partition(".")[0] != "mpi4py":
                raise
            time.sleep(TELLING)
            here.give_up(BackendError(f"MPI failed: {e}"))

    return handle_failure


class Response(NamedTuple):
    """The response to a question.

    error   the first failure of the rank since the last response
    failed  True if the rank failed, or received bytes from a failed rank
    """

    number: int
    error: Exception | None
    failed: bool
    value: Any


@dataclass(slots=True)
class SentCount:
    """Messages that this rank has sent, and their bytes, without signs of life."""

    n: int = 0
    n_bytes: int = 0

    def add(self, size: int) -> None:
        self.n += 1
        self.n_bytes += size


class World:
    """All ranks. Only rank 0 gives orders.

    n_local  ranks on this machine
    hosts    the machine of each
    watch    notices the end of a rank
    sent     counts the messages of this rank
    failed   True if this rank, or a sender to it, has an unreported failure. All bytes it sends
             then have the tag FAILED, so that the mark follows the results up to rank 0
    """

    def __init__(self) -> None:
        """Connect all ranks; BackendError in all if one is unreachable or has another version."""
        tell(JOINS)
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as e:
            raise BackendError(
                f"devices of other ranks need MPI: {install_hint('mpi')} ({e})"
            ) from None
        self._mpi = MPI
        self.comm = MPI.COMM_WORLD
        self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()
        near = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.n_local = near.Get_size()
        near.Free()
        self._data = self.comm.Dup()
        self.sent = SentCount()
        self.failed = False
        self._lock = threading.RLock()
        self._leaving: deque[tuple[MPI.Request, bytes]] = deque()  # requests with their bytes
        self._asked = 0
        self._over = False
        self.byte = MPI.BYTE
        self.hosts = gather_hosts(self.comm)
        self.watch = Watch(
            self.rank, connect_ranks(self.comm, self.hosts), dict(enumerate(self.hosts))
        )
        _unname_shared_memory()
        tell(RUNS)
        if self.rank == 0:
            atexit.register(self._end)

    def _end(self) -> None:
        """End rank 0's program without an exception, after which rank 0 would wait for all ranks at
        the end of MPI, and they for its message. Unreported failures are printed here."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        with self._lock:
            try:
                problem = self._farewell()
            except Exception as e:
                self.give_up(e)
        if problem is not None:
            self.abort(problem)

    def _farewell(self) -> Exception | None:
        """End all ranks; return an unreported failure, or None."""
        numbers = {rank: self._put(rank, EndProcess()) for rank in range(1, self.size)}
        self._over = True
        problem = None
        for rank, number in numbers.items():
            self.watch.expect(rank)
            problem = self._answer(rank, number).error or problem
        self.part()
        return problem

    def part(self) -> None:
        """End MPI in all ranks: launchers kill the others when the first has ended."""
        tell(ENDS)
        self.watch.part()
        self._wait((), [request for request, _ in self._leaving])
        self.comm.Barrier()
        self._over = True
        self._mpi.Finalize()

    @_with_others
    def tell(self, rank: int, order: Word, *more: Bytes) -> None:
        """Give an order, with bytes that it asks for, without waiting."""
        if self._over:  # buffers freed at the very end
            return
        with self.atomic():
            data = wire.dumps(order)
            self._leave(rank, data)
            for one in more:
                self.send(rank, one)

    def _leave(self, rank: int, data: bytes) -> None:
        """Send an order, even if the other rank is not ready."""
        self.sent.add(len(data))
        while self._leaving and self._leaving[0][0].Test():
            self._leaving.popleft()
        if len(self._leaving) >= AHEAD:
            self._wait((), [self._leaving.popleft()[0]])
        self._leaving.append((self.comm.Isend([data, self.byte], rank, ORDER), data))

    def ask(self, rank: int, order: Word) -> Any:
        """Give an order and wait for its result, after all earlier orders. Raises a failure since
        the last request, of that rank or a rank that sent it bytes."""
        with self._lock:
            found = self._answer(rank, self._put(rank, order))
            if found.failed:
                self.settle(found.error)
            return found.value

    def settle(self, problem: Exception | None = None) -> None:
        """Make every rank report its failures and clear its mark, then raise the first failure.

        problem  a failure known already, which is raised first
        """
        with self._lock:
            for rank in range(1, self.size):
                told = self._answer(rank, self._put(rank, Settle())).error
                problem = problem or told
            self.failed = False
        if problem is not None:
            raise problem

    def check(self) -> None:
        """Raise a failure of a rank that sent bytes, or send no message without a mark."""
        if self.failed:
            self.settle()

    def _put(self, rank: int, question: Word) -> int:
        """Ask without waiting and return the question's number."""
        with self._lock:
            self._asked += 1
            self.tell(rank, question.replace_number(self._asked))
            return self._asked

    def _answer(self, rank: int, number: int) -> Response:
        while True:
            found: Response = pickle.loads(self._next(rank, REPLY))
            if found.number == number:  # the answer to an abandoned question is skipped
                return found

    @_with_others
    def reply(self, number: int, error: Exception | None, value: Any) -> None:
        """Answer a question of rank 0, with this rank's failures."""
        answer = Response(number, error, self.failed, value)
        data = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
        self.failed = False
        self.sent.add(len(data))
        self._wait((), [self.comm.Isend([data, self.byte], 0, REPLY)])

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
        """Send bytes to a rank that receives this number."""
        self._wait((), self.sending(rank, data))

    def receive(self, rank: int, into: Bytes) -> None:
        self._wait(self.receiving(rank, into))

    @_with_others
    def sending(self, rank: int, data: Bytes) -> list[MPI.Request]:
        data, tag = np.ascontiguousarray(data), FAILED if self.failed else GOOD
        self.sent.add(data.size)
        return [self._data.Isend([part, self.byte], rank, tag) for part in _chunks(data)]

    @_with_others
    def receiving(self, rank: int, into: Bytes) -> list[MPI.Request]:
        return [self._data.Irecv([part, self.byte], rank) for part in _chunks(into)]

    @_with_others
    def _wait(self, coming: Sequence[MPI.Request], leaving: Sequence[MPI.Request] = ()) -> None:
        waiting, said = [*coming, *leaving], [self._mpi.Status() for _ in coming]
        for pause in _pauses():
            if self._mpi.Request.Testall(waiting, said):
                break
            pause()
        if any(status.tag == FAILED for status in said[: len(coming)]):
            self.failed = True

    wait = _wait

    @_with_others
    def make_progress(self, requests: Sequence[MPI.Request]) -> None:
        """Let messages go on, which they do while MPI is called."""
        self._mpi.Request.Testall([*requests])

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """Guard an order and its bytes, or orders that meet, against a stop halfway."""
        with Seal(), self._lock:
            yield

    def add_rank_name(self, e: Exception) -> Exception:
        """Return the same kind of error, with this rank's name."""
        text = f"rank {self.rank} ({platform.node()}): {e}"
        try:
            found = type(e)(text)
            pickle.loads(pickle.dumps(found))
        except Exception:  # special constructor or pickling
            return BackendError(text)
        return found

    def give_up(self, e: Exception) -> NoReturn:
        """End all ranks, with this error and this rank's name: others wait for the failed work."""
        self.abort(self.add_rank_name(e))

    def abort(self, e: Exception) -> NoReturn:
        """End this process, with this error: the others notice its end. (MPI's abort prints
        another text.)"""
        self._say(e)
        os._exit(1)

    @staticmethod
    def _say(e: Exception) -> None:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        with suppress(OSError):
            os.write(2, f"error: {e}\n".encode())


@cache
def world() -> World:
    """Return the world; the first call initializes MPI."""
    return World()


def _unname_shared_memory() -> None:
    """Remove the name of shared memory that all ranks have: MPICH does so only at its end."""
    with suppress(OSError):
        maps = Path("/proc/self/maps").read_text()
        for name in dict.fromkeys(re.findall(r"/dev/shm/mpich_shm_\w+", maps)):
            Path(name).unlink(missing_ok=True)


def _chunks(data: Bytes) -> Iterator[Bytes]:
    for start in range(0, data.size, CHUNK):
        yield data[start : start + CHUNK]


def _pauses() -> Iterator[Callable[[], None]]:
    """Yield pauses between two polls: first let other threads run, then sleep, ever longer."""
    for _ in range(SPINS):
        yield partial(time.sleep, 0)
    seconds = SLEEP[0]
    while True:
        yield partial(time.sleep, seconds)
        seconds = min(2 * seconds, SLEEP[1])
