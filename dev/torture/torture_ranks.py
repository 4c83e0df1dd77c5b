#!/usr/bin/env python3
"""Kill (SIGKILL) or stop (SIGSTOP) ranks at random moments, and check that all others end.

    python -m dev.torture.torture_ranks [--faults 100] [--seed 1] [--timeout 3]

The other ranks must exit within the time-out, print one line that names the failed rank, end all
processes and free shared memory. A run has 2 to 4 ranks of the demo model on this machine, with
`-sm layer` or `-sm graph`. Runs alternate between the phases start, load, prompt, decode and end;
the rank and the moment are random. Exit code 1 if any run failed.

Needs Linux, `pip install '.[mpi]'` and psutil.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
MARK = "LLAMA_PY_TORTURE"
COMMAND = "import sys; from llama_py_tools.start import cli; sys.exit(cli())"
PROMPT = "Now is the winter of our discontent made glorious summer by this sun of York. " * 20
PHASES = ("start", "load", "prompt", "decode", "end")
MARGIN = 20.0  # extra seconds for processes to start and end on a busy machine


@dataclass
class Running:
    """Command that runs on several ranks, and its output."""

    process: subprocess.Popen[bytes]
    mark: str
    out: bytearray = field(default_factory=bytearray)
    err: bytearray = field(default_factory=bytearray)

    @classmethod
    def started(cls, n: int, mode: str, n_gen: int, timeout: float) -> Running:
        mark = uuid.uuid4().hex
        launcher = str(Path(sys.executable).with_name("mpiexec"))
        env = {**os.environ, MARK: mark, "LLAMA_PY_MPI_TIMEOUT": f"{timeout:g}"}
        env["PYTHONPATH"] = os.pathsep.join(
            [str(ROOT), str(ROOT / "backends"), str(ROOT / "apps"), env.get("PYTHONPATH", "")]
        )
        process = subprocess.Popen(
            [
                launcher,
                "-n",
                str(n),
                sys.executable,
                "-c",
                COMMAND,
                "-p",
                PROMPT,
                "-n",
                str(n_gen),
                "--temp",
                "0",
                "-no-cnv",
                "--ignore-eos",
                "--context-shift",
                "-sm",
                mode,
                "-t",
                "1",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
        )
        found = cls(process, mark)
        for stream, into in ((process.stdout, found.out), (process.stderr, found.err)):
            assert stream is not None
            threading.Thread(target=_pump, args=(stream.fileno(), into), daemon=True).start()
        return found

    def wait_for(self, what: bytes, into: bytearray, seconds: float) -> None:
        until = time.monotonic() + seconds
        while what not in into and self.process.poll() is None and time.monotonic() < until:
            time.sleep(0.005)

    def left(self) -> list[psutil.Process]:
        """Return the remaining processes of this run, including its launcher."""
        return [p for p in psutil.process_iter() if _environ(p).get(MARK) == self.mark]


def _pump(source: int, into: bytearray) -> None:
    while data := os.read(source, 65536):
        into += data


def _environ(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ() if process.status() != psutil.STATUS_ZOMBIE else {}
    except psutil.Error:
        return {}


def rank_of(run: Running, rank: int) -> psutil.Process | None:
    """Return the innermost process of a rank; None if it does not exist."""
    found = None
    try:
        for child in psutil.Process(run.process.pid).children(recursive=True):
            if _environ(child).get("PMI_RANK") == str(rank):
                found = child  # children are listed after their parents
    except psutil.Error:
        return None
    return found


@dataclass(frozen=True)
class Times:
    """Seconds of a short run, until the first text and from the first text to the end."""

    load: float
    run: float


def measured(timeout: float) -> Times:
    run = Running.started(2, "layer", 24, 10 * timeout)
    start = time.monotonic()
    run.wait_for(b"\n", run.out, 120)
    load = time.monotonic() - start
    run.process.wait(120)
    return Times(load, time.monotonic() - start - load)


def fault(rng: random.Random, phase: str, times: Times, timeout: float) -> str:
    """Run once with one fault, and return the outcome.

    The outcome is `named`, `named by the launcher`, `late` (the run had already ended), or a
    description of the failure.
    """
    n, mode = rng.choice([2, 3, 4]), rng.choice(["layer", "graph"])
    rank = rng.randrange(n)
    number = signal.SIGSTOP if rng.random() < 0.25 else signal.SIGKILL
    run = Running.started(n, mode, 24 if phase == "end" else 1_000_000, timeout)
    _until(rng, run, phase, times)
    victim = rank_of(run, rank)
    about = f"{phase}, {mode}, rank {rank} of {n}, {number.name}"
    hit = time.monotonic()
    inner = victim is not None and _is_kept(victim, rank)
    if victim is not None:
        try:
            victim.send_signal(number)
        except psutil.Error:
            victim = None
    found = _outcome(run, rank, timeout, hit, victim is not None, inner)
    seconds = time.monotonic() - hit
    print(f"{about}: {found}, {seconds:.1f} s", flush=True)
    return found


def _until(rng: random.Random, run: Running, phase: str, times: Times) -> None:
    if phase == "start":
        time.sleep(rng.uniform(0, 0.4 * times.load))
    elif phase == "load":
        time.sleep(rng.uniform(0.3, 1.0) * times.load)
    elif phase == "prompt":
        run.wait_for(b"Now", run.out, 60)
        time.sleep(rng.uniform(0, 0.1))
    elif phase == "decode":
        run.wait_for(b"\n\n", run.out, 60)
        time.sleep(rng.uniform(0, 1.5))
    else:
        run.wait_for(b"generated", run.err, 60)
        time.sleep(rng.uniform(0, 0.3))


def _is_kept(process: psutil.Process, rank: int) -> bool:
    """Return True for the process that computes, False for its supervisor."""
    try:
        parent = process.parent()
        return parent is not None and _environ(parent).get("PMI_RANK") == str(rank)
    except psutil.Error:
        return False


def _outcome(run: Running, rank: int, timeout: float, hit: float, is_hit: bool, inner: bool) -> str:
    wrong = []
    try:
        run.process.wait(timeout + MARGIN)
    except subprocess.TimeoutExpired:
        wrong.append("no end within the time-out")
        run.process.kill()
    time.sleep(0.3)
    left = run.left()
    if left:
        wrong.append(f"remaining processes: {[(p.pid, p.name(), p.status()) for p in left]}")
        for p in left:
            p.kill()
    text = run.err.decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.startswith("error: ")]
    if run.process.returncode == 0 and not wrong:
        return "late"
    if not is_hit:
        wrong.append("ended without a fault")
    elif inner and len(lines) != 1:
        wrong.append(f"{len(lines)} error lines instead of 1")
    elif inner and not re.match(rf"error: rank {rank} on \S+ ", lines[0]):
        wrong.append(f"unexpected error {lines[0]!r}")
    if wrong:
        print(text, run.out.decode("utf-8", "replace")[-300:], sep="\n")
        return "; ".join(wrong)
    return "named" if inner else "named by the launcher"


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir() if "mpi" in path.name}


def _arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--faults", type=int, default=100)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--timeout", type=float, default=3.0, help="LLAMA_PY_MPI_TIMEOUT")
    p.add_argument("--phase", choices=PHASES, help="test only this phase")
    return p.parse_args()


def phases(n: int, only: str | None) -> Iterator[str]:
    for i in range(n):
        yield only or PHASES[i % len(PHASES)]


def main() -> int:
    args = _arguments()
    rng, before = random.Random(args.seed), shared_memory()
    times = measured(args.timeout)
    print(f"without a fault: text after {times.load:.1f} s, the end {times.run:.1f} s later")
    found: dict[str, Counter[str]] = {phase: Counter() for phase in PHASES}
    for phase in phases(args.faults, args.phase):
        found[phase][fault(rng, phase, times, args.timeout)] += 1
    print()
    for phase, outcomes in found.items():
        print(f"{phase}: {', '.join(f'{n} {what}' for what, n in outcomes.most_common())}")
    litter = shared_memory() - before
    print(f"left in /dev/shm: {len(litter)}{' ' + ', '.join(sorted(litter)[:5]) if litter else ''}")
    good = {"named", "named by the launcher", "late"}
    return int(any(what not in good for outcomes in found.values() for what in outcomes))


if __name__ == "__main__":
    sys.exit(main())
