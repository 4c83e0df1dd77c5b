"""Many cases in worker processes: crashes and hangs are findings, and do not end the run."""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import IO

from dev.torture.fuzz.judge import ROOT

LIMIT = 20.0  # seconds per case
PATIENCE = 6  # factor for a second try alone: kernels may have been compiled
START = 120.0  # seconds for the start of a worker, which makes its files
PORTION = 4000  # cases of one worker
SILENT = "no answer"


@dataclass
class Finding:
    """Failure of a case. where: findings at the same place count once."""

    number: int
    words: str
    text: str
    where: str


@dataclass
class Totals:
    """Results of many cases."""

    kinds: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def n(self) -> int:
        return sum(self.kinds.values())


def run(
    name: str, seed: int, start: int, stop: int, seconds: float = math.inf, limit: float = LIMIT
) -> Totals:
    """Run cases [start, stop) of a kind, or as many as `seconds` allow."""
    totals, began = Totals(), time.monotonic()
    while start < stop and time.monotonic() < began + seconds:
        job = _Job(name, seed, start, min(start + PORTION, stop), began + seconds, limit)
        start = _portion(totals, job)
    totals.seconds = time.monotonic() - began
    return totals


@dataclass(frozen=True)
class _Job:
    """Task of one worker; alone: a second try of a silent case."""

    name: str
    seed: int
    start: int
    stop: int
    until: float
    limit: float
    alone: bool = False


def _portion(totals: Totals, job: _Job) -> int:
    """Run cases in one worker until it ends; return the next case."""
    name, seed, start, stop, limit = job.name, job.seed, job.start, job.stop, job.limit
    command = [sys.executable, "-m", "dev.torture.fuzz_files", "--worker", name]
    command += map(str, (seed, start, stop))
    with tempfile.TemporaryFile("w+") as errors:
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT)
        try:
            words, at = "the start of the worker", start
            for line in _lines(worker, limit):
                told = json.loads(line)
                if "start" in told:
                    at, words = told["start"], told["words"]
                    continue
                totals.kinds[told["kind"]] += 1
                if told["kind"] == "found":
                    totals.findings.append(Finding(at, words, told["text"], told["where"]))
                at += 1
                if time.monotonic() > job.until:
                    return at
            if at < stop:
                text = _death(worker, limit, errors)
                if text.startswith(SILENT) and not job.alone:
                    patient = PATIENCE * limit
                    again = replace(job, start=at, stop=at + 1, limit=patient, alone=True)
                    return _portion(totals, again)
                totals.kinds["found"] += 1
                totals.findings.append(Finding(at, words, text, text.partition("\n")[0]))
            return at + 1 if at < stop else stop
        finally:
            worker.kill()
            worker.wait()


def _lines(worker: subprocess.Popen[bytes], limit: float) -> Iterator[bytes]:
    """Yield lines until the worker ends, or is silent for too long."""
    assert worker.stdout is not None
    rest, wait = b"", START
    while select.select([worker.stdout], [], [], wait)[0]:
        read = os.read(worker.stdout.fileno(), 1 << 16)
        if not read:
            return
        *lines, rest = (rest + read).split(b"\n")
        wait = limit
        yield from lines


def _death(worker: subprocess.Popen[bytes], limit: float, errors: IO[str]) -> str:
    """Return the end of a worker: a signal, an exit code, or silence."""
    try:
        code = worker.wait(1)
        what = f"signal {-code}" if code < 0 else f"exit {code}"
    except subprocess.TimeoutExpired:
        what = f"{SILENT} in {limit:g} s"
        worker.send_signal(signal.SIGABRT)  # faulthandler prints its location
        worker.wait()
    errors.seek(0)
    lines = errors.read()[-6000:].splitlines()
    frames = [line for line in lines if "site-packages" not in line]
    return "\n".join([what, *frames[-40:]])
