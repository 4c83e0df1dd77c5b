"""Supervisor of a server over ranks, which restarts it with the remaining ranks after a loss.

MPI cannot continue without one of its ranks, so all ranks exit, and the supervisor starts the
launcher again.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import IO, TextIO

from ggml_mpi.keeper import end_with_parent

Hosts = list[tuple[str, int]]
AGAIN = "LLAMA_PY_STARTED_AGAIN"  # number of earlier starts, for the server's processes
MOST = 3  # starts after a loss, within
WITHIN = 3600.0  # seconds
LOSS = re.compile(rb"^(?:error: )?rank (\d+) on (\S+) (was killed|has )")
READY = b"ready: "  # begins the line that a ready server prints
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def supervise(hosts: Hosts, launch: Callable[[Hosts], list[str]]) -> int:
    """Run the server until it ends for good, and return the exit code: it was stopped, failed, or
    lost ranks too often.

    launch  the command that starts it on some hosts
    """
    starts: deque[float] = deque(maxlen=MOST + 1)
    n, signals = 0, _Signals()
    while True:
        starts.append(time.monotonic())
        run = _Run(launch(hosts), n, signals)
        code = run.wait()
        signals.set_process(None)
        if signals.has_come and not run.is_ready:  # after an orderly end or not
            _say(f"{signal.Signals(signals.last).name} during start; all ranks ended")
            return 128 + signals.last
        if signals.has_come or code == 0 or run.lost is None:
            return code
        if len(starts) > MOST and starts[-1] - starts[0] < WITHIN:
            _say(
                f"error: ranks were lost {MOST + 1} times within {WITHIN / 60:g} minutes, so the "
                "server is not restarted; check these machines and their network"
            )
            return code or 1
        hosts, n = remove_rank(hosts, *run.lost), n + 1
        names = ",".join(f"{name}:{count}" for name, count in hosts)
        _say(f"restarting with {names}")


def remove_rank(hosts: Hosts, rank: int, silent: bool) -> Hosts:
    """Return the hosts without a lost rank. The first machine keeps at least one process, since
    clients connect there; another machine that does not answer is dropped.

    silent  it did not end, but was heard of no more, as if its machine had gone
    """
    found, first = [], 0
    for i, (name, n) in enumerate(hosts):
        if first <= rank < first + n and rank > 0:
            count = 0 if silent and i else n - 1
            found += [(name, count)] if count else []
        else:
            found.append((name, n))
        first += n
    return found


class _Signals:
    """Signal handlers that pass each signal once to the launcher, which has a separate session. A
    signal during the start waits for the launcher; a signal between two launchers ends the
    supervisor.

    last  number of the last signal
    """

    def __init__(self) -> None:
        self.has_come, self.last = False, 0
        self._process: subprocess.Popen[bytes] | None = None
        self._early: deque[int] = deque()
        for sig in SIGNALS:
            signal.signal(sig, self._come)

    def _come(self, number: int, frame: FrameType | None) -> None:
        self.has_come, self.last = True, number
        self._early.append(number)
        self._forward()

    def set_process(self, process: subprocess.Popen[bytes] | None) -> None:
        """Set the process that gets signals; None: the next one."""
        self._process = process
        self._forward()

    def _forward(self) -> None:
        while self._process is not None and self._early:
            self._process.send_signal(self._early.popleft())


class _Run:
    """One life of the server.

    lost      the rank that ended it, and whether it was silent
    is_ready  the server has printed READY; before that, a signal makes launcher and ranks each
              report their end, and the supervisor hides these messages
    """

    def __init__(self, command: list[str], n: int, signals: _Signals) -> None:
        self.lost: tuple[int, bool] | None = None
        self.is_ready, self._signals = False, signals
        signals.set_process(None)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, AGAIN: str(n)},
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
        signals.set_process(self._process)
        streams = (self._process.stdout, sys.stdout), (self._process.stderr, sys.stderr)
        self._reading = [
            threading.Thread(target=self._read, args=pair, daemon=True) for pair in streams
        ]
        for thread in self._reading:
            thread.start()

    def wait(self) -> int:
        code = self._process.wait()
        for thread in self._reading:
            thread.join(5)
        return code if code >= 0 else 128 - code

    def _read(self, source: IO[bytes], target: TextIO) -> None:
        for line in source:
            found = LOSS.match(line)
            if found and self.lost is None:
                self.lost = int(found[1]), b"has not answered" in line
            self.is_ready = self.is_ready or line.startswith(READY)
            if self.is_ready or not self._signals.has_come:
                target.buffer.write(line)
                target.flush()


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
