"""A keeper process around each rank, which reports an irregular end of the rank.

A launcher that sees a rank die kills all others at once, with or without a message. So the launcher
starts a small process, which starts the rank and outlives it to report which rank it was. It also
kills a rank that hangs at the start or the end of MPI, when no other rank can check on it.

This runs first: it imports only modules that load fast.
"""

from __future__ import annotations

import contextlib
import os
import platform
import select
import signal
import sys
import time

LIMIT = 30.0  # seconds of silence
LATER = 5.0  # added for waiting ranks, so that the late rank is reported first
WATCHED = 3.0  # added while other ranks watch, so that they report first
READ = 0.2  # seconds for a launcher to read the last line
SET_PDEATHSIG = 1  # linux/prctl.h
HEEDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")  # left to the rank

# Variables that launchers set: MPICH and Intel, Open MPI, Slurm.
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE")
RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")

JOINS, RUNS, ENDS = b"j", b"r", b"e"  # stages of a rank; the first stage has no name

_told: int | None = None  # pipe from the rank to its keeper, for stages


def limit() -> float:
    """Return seconds of silence after which a rank counts as lost (LLAMA_PY_MPI_TIMEOUT)."""
    return float(os.environ.get("LLAMA_PY_MPI_TIMEOUT") or LIMIT)


def n_started() -> int:
    """Return the number of ranks that a launcher has started, 1 without one; does not load MPI."""
    return next((int(os.environ[name]) for name in SIZES if name in os.environ), 1)


def own_rank() -> int:
    """Return the rank that the launcher has set in the environment, before MPI is loaded."""
    return next((int(os.environ[name]) for name in RANKS if name in os.environ), 0)


def say(text: str) -> None:
    """Write a line to stderr in one piece, unmixed with other processes' output."""
    with contextlib.suppress(OSError):
        os.write(2, f"error: {text}; all ranks end\n".encode())


def tell(stage: bytes) -> None:
    """Report the stage that this rank has reached to its keeper."""
    if _told is not None:
        with contextlib.suppress(OSError):
            os.write(_told, stage)


def fork_keeper(linger: float = 0.0) -> None:
    """Return in a new process, the rank; the caller keeps it, and ends after it.

    linger  seconds that the keeper of a rank other than 0 waits before it informs the launcher,
            so that rank 0 can inform its clients
    """
    global _told
    if sys.platform == "win32" or not hasattr(os, "fork"):
        return
    heard, told = os.pipe()
    end_with_parent()
    keeper = os.getpid()
    child = os.fork()
    if child:
        os.close(told)
        os._exit(_Keeper(child, heard, linger).run())
    os.close(heard)
    end_with_parent()
    if os.getppid() != keeper:
        os._exit(1)
    _told = told


def end_with_parent() -> None:
    """Ask Linux to kill this process when its parent ends."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


class _Keeper:
    def __init__(self, child: int, heard: int, linger: float) -> None:
        self.child, self.heard, self.linger = child, heard, linger
        self.rank = own_rank()
        self.name = f"rank {self.rank} on {platform.node()}"
        self._stage, self._since, self._is_stopped = b"", time.monotonic(), False
        self._wake, wakes = os.pipe()
        os.set_blocking(wakes, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        for name in HEEDED:
            signal.signal(getattr(signal, name), signal.SIG_IGN)

    def run(self) -> int:
        """Wait for the rank and return its exit code, 1 after a signal."""
        while True:
            code = self._poll()
            if code is not None:
                if code and self._stage != ENDS:
                    self._end_all()
                return code
            sources = [self._wake] + [self.heard] * (self.heard >= 0)
            ready, _, _ = select.select(sources, [], [], self._patience())
            if self._wake in ready:
                os.read(self._wake, 64)
            if self.heard in ready:
                self._hear()
            elif not ready and self._patience() == 0:
                self._give_up()

    def _hear(self) -> None:
        said = os.read(self.heard, 64)
        if not said:
            os.close(self.heard)
            self.heard = -1
            return
        self._stage, self._since = said[-1:], time.monotonic()

    def _poll(self) -> int | None:
        """Return the exit code, once the rank has ended."""
        while True:
            how = os.WNOHANG | os.WUNTRACED | os.WCONTINUED
            pid, status = os.waitpid(self.child, how)
            if pid == 0:
                return None
            if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
                self._is_stopped = os.WIFSTOPPED(status)
                if self._is_stopped and self._stage == RUNS:
                    self._since = time.monotonic()
            elif os.WIFSIGNALED(status):
                number = os.WTERMSIG(status)
                say(f"{self.name} was killed by signal {number} ({signal.strsignal(number)})")
                return 1
            else:
                return os.WEXITSTATUS(status)

    def _patience(self) -> float | None:
        """Return seconds left; None while ranks run and watch each other: no limit."""
        most = limit()
        if self._stage == RUNS:
            if not self._is_stopped:
                return None
            most += WATCHED
        elif self._stage and not self._is_stopped:  # waits for others; rank 0 reports first
            most += LATER * (1 + (self.rank > 0))
        return max(self._since + most - time.monotonic(), 0.0)

    def _give_up(self) -> None:
        """Report the timeout; of ranks that wait for each other, rank 0 alone reports."""
        seconds = f"for {limit():g} s"
        if self._is_stopped:
            say(f"{self.name} was suspended {seconds}")
        elif not self._stage:
            say(f"{self.name} has not joined the other ranks {seconds}")
        elif self.rank == 0:
            what = "end of" if self._stage == ENDS else "beginning of"
            say(f"{self.name} has waited for the {what} other ranks {seconds}")
        os.kill(self.child, signal.SIGKILL)
        self._end_all()
        os._exit(1)

    def _end_all(self) -> None:
        """Make the launcher end the other ranks by PMI's own command: before MPI has begun, this
        process's end or exit code is not enough."""
        if self.rank:
            time.sleep(self.linger)
        time.sleep(READ)
        with contextlib.suppress(KeyError, ValueError, OSError):
            os.write(int(os.environ["PMI_FD"]), b"cmd=abort exitcode=1\n")
