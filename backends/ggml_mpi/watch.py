"""Watch over all ranks: connections in addition to MPI, with a heartbeat every second.

MPI does not report the loss of a rank. Each rank has a connection to rank 0. If it closes, or is
silent for too long, the rank is lost. MPI cannot continue without it, so all ranks end.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping

from ggml_mpi.keeper import limit, say

EVERY = 1.0  # seconds
PATIENCE = 2.0  # seconds in which a launcher ends all ranks after the end of one
ALIVE, BYE = b".", b"/"

Lost = Callable[[int, str], None]


class Watch:
    """Listener for other ranks, in a separate thread.

    lost  called in that thread with the number of a lost rank and the reason. It must end this
          process; otherwise the caller ends it.
    """

    def __init__(
        self, rank: int, peers: Mapping[int, socket.socket], hosts: Mapping[int, str]
    ) -> None:
        self.rank, self.hosts = rank, hosts
        self.lost: Lost = self.end_all
        self._peers = dict(peers)
        now = time.monotonic()
        self._heard = dict.fromkeys(peers, now)
        self._looked = now
        self._expected: tuple[int, float] | None = None
        self._is_over = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="ggml_mpi-watch", daemon=True)
        if self._peers:
            self._thread.start()

    def expect(self, rank: int) -> None:
        """Expect the end of that rank, within the time limit of a silent rank."""
        self._expected = rank, time.monotonic()

    def part(self) -> None:
        """Let other ranks, and this one, end from now on."""
        with self._lock:
            self._is_over = True
            for peer in self._peers.values():
                _send(peer, BYE)

    def _run(self) -> None:
        if hasattr(signal, "pthread_sigmask"):  # signals belong to the main thread
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        due = 0.0
        while not self._is_over:
            now = time.monotonic()
            if now - self._looked > 3 * EVERY:  # this process itself was suspended
                self._heard = dict.fromkeys(self._heard, now)
            self._looked = now
            if now >= due:
                self._say_alive()
                due = now + EVERY
            self._look(now)
            ready, _, _ = select.select(self._peers.values(), [], [], max(due - now, 0.01))
            for rank in [rank for rank, peer in self._peers.items() if peer in ready]:
                self._hear(rank)
            if not self._peers:
                return

    def _say_alive(self) -> None:
        with self._lock:
            if not self._is_over:
                for peer in self._peers.values():
                    _send(peer, ALIVE)

    def _hear(self, rank: int) -> None:
        try:
            said = self._peers[rank].recv(4096)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if BYE in said:
            with self._lock:  # shared with another thread
                del self._peers[rank], self._heard[rank]
        elif said:
            self._heard[rank] = time.monotonic()
        elif not self._is_over:
            self._lose(rank, "has ended")

    def _look(self, now: float) -> None:
        for rank, heard in list(self._heard.items()):
            # if several ranks lose rank 0, rank 1 reports it first
            if now - heard > limit() + PATIENCE * (self.rank > 1):
                self._lose(rank, f"has not answered for {limit():g} s")

        if self._expected is not None and not self._is_over:
            rank, since = self._expected
            if now - since > limit():
                self._lose(rank, f"has not finished its step for {limit():g} s")

    def _lose(self, rank: int, what: str) -> None:
        self.lost(rank, what)
        os._exit(1)

    def end_all(self, rank: int, what: str) -> None:
        """End this process, and so all, with one line, unless the rank's keeper has written it."""
        if what == "has ended":
            time.sleep(PATIENCE)
        if self.rank < 2:
            say(f"rank {rank} on {self.hosts[rank]} {what}")
        sys.stdout.flush()
        os._exit(1)


def _send(peer: socket.socket, what: bytes) -> None:
    """Send bytes; the listening side notices a failure."""
    try:
        peer.send(what)
    except OSError:
        return
