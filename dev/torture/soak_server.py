#!/usr/bin/env python3
"""A server among hostile clients for hours: waits of honest clients, memory, slots, crashes.

    python -m dev.torture.soak_server -m MODEL.gguf --minutes 120

Honest clients repeat their requests, each from its own loopback address (Linux) and with its own
number of tokens (--tokens). Hostile clients
(load/rude.py) join from another process and address. They stop for --control seconds after every
--every minutes: the speed of a shared machine drifts, so requests are compared with the same
client's own requests before and after. A fixed calculation, repeated all the time, shows the drift
within a part: late requests are listed with its time, as a multiple of its median without hostile
clients. Prints for each part: requests of each type, statuses, memory, and times: of /health,
between two tokens, and of a response as a multiple of that client's median without hostile
clients.

The exit code is 1 if an honest request fails, has another response, or takes more than --most times
that median; if the server ends, responds with 5xx to a client's fault, or exceeds its memory
budget; if a slot remains busy without clients, or if SIGTERM takes more than a second longer than
--timeout-stop. The last lines count the requests beyond --most, for each client and in all, with
and without hostile clients.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable
from contextlib import AsyncExitStack, suppress
from math import isfinite, nan
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx
import numpy as np
import psutil

from dev.compare.load.client import Answer, ask, watch_health
from dev.compare.load.rude import Rude
from dev.compare.load.servers import ours, running, server_process

MAY_NOT = {"500", "silence"}  # results that a client must never get
LONGEST = "30"  # seconds of a response: a client may ask for 500 prompts, or for no end
STOP = 1  # --timeout-stop
BODIES = 32  # MiB of all bodies at once, the default of --max-bodies for text
COPIES = 6  # of a body, while it is received, joined, decoded, parsed and tokenized
HOSTILE = "127.0.0.200"
PAUSE = 0.1  # seconds between two calculations that show the machine's speed
NUMBERS = np.ones(2 << 20, np.float32)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--every", type=float, default=5, help="minutes of a part")
    parser.add_argument("--control", type=float, default=20, help="seconds without hostile clients")
    parser.add_argument("--good", type=int, default=4, help="honest clients")
    parser.add_argument(
        "--tokens", default="24,48,96,192", help="tokens of a response, per honest client"
    )
    parser.add_argument("--rude", type=int, default=8, help="hostile clients")
    parser.add_argument("--most", type=float, default=2, help="multiple of the median time")
    parser.add_argument("--threads", type=int, default=1, help="of the server; fewer than cores")
    parser.add_argument("--parallel", type=int, default=6, help="slots")
    parser.add_argument("--client-parallel", type=int, default=2, help="requests of an address")
    parser.add_argument(
        "--cache-ram", type=int, default=256, help="MiB; the memory grows by up to this size"
    )
    parser.add_argument("--kinds", help="hostile requests to send, separated by commas")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = ours(args.model, 512 * args.parallel, args.parallel, args.threads)
        command += ["--slots", "--slot-save-path", folder, "--cache-ram", str(args.cache_ram)]
        command += ["--client-parallel", str(args.client_parallel)]
        command += ["--timeout", LONGEST, "--timeout-stop", str(STOP)]
        with running(command, log) as url:
            soak = Soak(url, args)
            asyncio.run(soak.run())
        faults = soak.faults
        if "Traceback" in log.read_text(errors="replace"):
            faults.append("a traceback")
        if faults:
            print(*faults[:100], log.read_text(errors="replace")[-3000:], sep="\n")
    return bool(faults)


class Wait(NamedTuple):
    """Times of an honest request, in seconds.

    client   number of its client;  at  start of the request, since the start of this program
    seconds  duration;  first  time to the first token;  gap  longest time between two tokens
    """

    client: int
    at: float
    seconds: float
    first: float
    gap: float


class Soak:
    """All clients at once, until the time is up."""

    def __init__(self, url: str, args: argparse.Namespace) -> None:
        self.url, self.args, self.start, self.until = url, args, time.monotonic(), 0.0
        self.seen: Counter[str] = Counter()
        self.faults: list[str] = []
        self.health, self.gaps, self.waits = list[float](), list[float](), list[Wait]()
        self.controls, self.parts = list[list[Wait]](), list[list[Wait]]()
        self.n_tokens = [int(n) for n in args.tokens.split(",")]
        self.server, self.peak, self.expected = server_process(url), 0.0, list[list[list[int]]]()
        self.budget = 0.0
        self.work, self.speeds = list[tuple[float, float]](), list[float]()

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(_client(self.url, i + 2)) for i in self._all]
            watch = await stack.enter_async_context(_client(self.url, 1))
            for i, client in enumerate(clients):
                # A processed and a cached prompt may differ in the rounding of quantized models.
                self.expected.append([(await self._asked(client, i)).ids for _ in range(2)])
            alone = [await _seconds(self._asked(clients[0], 0)) for _ in range(20)]
            print(f"one client alone: median {median(alone):.3f} s", flush=True)
            self.controls.append(await self._control(clients))
            self.budget = self._memory() + self.args.cache_ram + COPIES * BODIES
            context = multiprocessing.get_context("spawn")
            here, there = context.Pipe(False)
            hostile = context.Process(
                target=_attack, args=(self.url, self.args, there), daemon=True
            )
            hostile.start()
            try:
                end = time.monotonic() + 60 * self.args.minutes
                while (left := end - time.monotonic()) > 1:
                    await self._part(clients, watch, here, min(left, 60 * self.args.every))
                    os.kill(hostile.pid or 0, signal.SIGSTOP)
                    await self._idle(watch)
                    self.controls.append(await self._control(clients))
                    self._compare()
                    os.kill(hostile.pid or 0, signal.SIGCONT)
                await asyncio.sleep(3)
                await self._stop()
                self._tell_all()
            finally:
                hostile.kill()

    @property
    def _all(self) -> range:
        return range(self.args.good)

    async def _asked(self, client: httpx.AsyncClient, i: int) -> Answer:
        return await ask(client, range(300 + 50 * i, 340 + 50 * i), self._n_tokens(i))

    def _n_tokens(self, client: int) -> int:
        return self.n_tokens[client % len(self.n_tokens)]

    async def _control(self, clients: list[httpx.AsyncClient]) -> list[Wait]:
        """Measure honest requests without hostile clients."""
        self.waits, n_gaps = [], len(self.gaps)
        n_work = len(self.work)
        self.until = time.monotonic() + self.args.control
        await asyncio.gather(
            *(self._good(client, i) for i, client in enumerate(clients)), self._calculate()
        )
        del self.gaps[n_gaps:]  # the gaps shown are those with hostile clients
        self.speeds.append(median(seconds for _, seconds in self.work[n_work:]))
        return self.waits

    async def _calculate(self) -> None:
        """Note the CPU seconds of a fixed calculation, again and again."""
        while time.monotonic() < self.until:
            start = time.thread_time()
            NUMBERS.sum()
            self.work.append((time.monotonic() - self.start, time.thread_time() - start))
            await asyncio.sleep(PAUSE)

    def _slowness(self, part: int, start: float, end: float) -> float:
        """Return the calculation's median seconds at this time, as a multiple of its median without
        hostile clients; NaN if the clients were blocked and it did not run."""
        found = [seconds for at, seconds in self.work if start - 0.5 <= at <= end + 0.5]
        mean = (self.speeds[part] + self.speeds[part + 1]) / 2
        return median(found) / mean if found else nan

    async def _part(
        self,
        clients: list[httpx.AsyncClient],
        watch: httpx.AsyncClient,
        results: Connection,
        seconds: float,
    ) -> None:
        self.waits = []
        self.until = time.monotonic() + seconds
        await asyncio.gather(
            *(self._good(client, i) for i, client in enumerate(clients)),
            self._calculate(),
            self._collect(results),
            self._measure(),
            watch_health(watch, self.until, 0.05, self.health, self.faults),
        )
        self.parts.append(self.waits)

    async def _good(self, client: httpx.AsyncClient, i: int) -> None:
        while time.monotonic() < self.until:
            start = time.monotonic()
            try:
                answer = await self._asked(client, i)
            except (httpx.HTTPError, RuntimeError) as e:
                self.faults.append(f"{self._minute()}: an honest request failed: {e!r}")
                await asyncio.sleep(0.2)
                continue
            self.seen["honest"] += 1
            at, seconds = start - self.start, time.monotonic() - start
            self.waits.append(Wait(i, at, seconds, answer.first, max(answer.between, default=0)))
            self.gaps += answer.between
            if answer.ids not in self.expected[i]:
                self.faults.append(f"{self._minute()}: another response: {answer.ids}")

    async def _collect(self, results: Connection) -> None:
        """Count the results of hostile requests."""
        while time.monotonic() < self.until:
            await asyncio.sleep(0.1)
            while results.poll():
                saw, request = results.recv()
                self.seen[saw] += 1
                if saw in MAY_NOT:
                    self.faults.append(f"{self._minute()}: {saw}; the request: {request}")

    async def _measure(self) -> None:
        """Compare the memory with its budget every two seconds."""
        while time.monotonic() < self.until:
            self.peak = max(self.peak, self._memory())
            if self.peak > self.budget:
                self.faults.append(f"{self._minute()}: {self.peak:.0f} MiB, not {self.budget:.0f}")
            await asyncio.sleep(min(2, max(self.until - time.monotonic(), 0.1)))

    async def _idle(self, watch: httpx.AsyncClient) -> None:
        """Check that no slot is busy while the hostile clients pause."""
        until = time.monotonic() + float(LONGEST) + 5
        while busy := [s["id"] for s in (await watch.get("/slots")).json() if s["is_processing"]]:
            if time.monotonic() > until:
                self.faults.append(f"{self._minute()}: slots {busy} are still busy")
                break
            await asyncio.sleep(0.2)

    def _compare(self) -> None:
        """Print the last part, as multiples of the median of the controls around it."""
        part = len(self.parts) - 1
        base = self._base(part)
        multiples = [wait.seconds / base[wait.client] for wait in self.parts[-1]]
        for wait, multiple in zip(self.parts[-1], multiples, strict=True):
            if multiple > self.args.most:
                what = f"{self._n_tokens(wait.client)} tokens: {multiple:.2f} times the median"
                slow = self._slowness(part, wait.at, wait.at + wait.seconds)
                what += f" ({wait.seconds:.3f} s; the first token {wait.first:.3f}, the longest "
                what += f"gap {wait.gap:.3f}; the calculation {slow:.2f} times its median)"
                self.faults.append(f"{wait.at / 60:.2f} min: {what}")
        seen = ", ".join(f"{what} {n}" for what, n in self.seen.most_common())
        has = f"{self.server.num_threads()} threads, {self.server.num_fds()} files"
        print(
            f"{self._minute()}: at most {self.peak:.0f} of {self.budget:.0f} MiB, {has}; ", end=""
        )
        print(f"{seen}; faults {len(self.faults)}")
        medians = ", ".join(f"{seconds:.3f}" for seconds in base.values())
        print(f"    honest clients alone: medians {medians} s")
        for what, found, unit in (
            ("/health", self.health, "s"),
            ("a token", self.gaps, "s"),
            ("a response", multiples, "times the median"),
            ("the calculation", self._slownesses(part), "times the median"),
            (
                "the same, without",
                [wait.seconds / base[wait.client] for wait in self.controls[-1]],
                "times the median",
            ),
        ):
            print(f"    {what}: {_times(found)} {unit}")
        self.gaps.clear()
        self.health.clear()
        sys.stdout.flush()

    def _base(self, part: int) -> dict[int, float]:
        """Return each client's median seconds without hostile clients before and after a part."""
        around = [*self.controls[part], *self.controls[part + 1]]
        return {i: median(x.seconds for x in around if x.client == i) for i in self._all}

    def _slownesses(self, part: int) -> list[float]:
        """Return the calculation's times of a part, each the median of a second."""
        starts = {int(wait.at) for wait in self.parts[part]}
        found = (self._slowness(part, start + 0.5, start + 0.5) for start in starts)
        return [one for one in found if isfinite(one)]

    def _tell_all(self) -> None:
        parts, controls = list[tuple[int, float]](), list[tuple[int, float]]()
        for no in range(len(self.parts)):
            base = self._base(no)
            parts += [(x.client, x.seconds / base[x.client]) for x in self.parts[no]]
            around = [*self.controls[no], *self.controls[no + 1]]
            controls += [(x.client, x.seconds / base[x.client]) for x in around]
        for what, found in (("with hostile clients", parts), ("without, twice each", controls)):
            for i in self._all:
                self._tell(
                    f"{what}, {self._n_tokens(i)} tokens", [x for who, x in found if who == i]
                )
            self._tell(what, [x for _, x in found])

    def _tell(self, what: str, multiples: list[float]) -> None:
        n = sum(x > self.args.most for x in multiples)
        print(
            f"{what}: {_times(multiples)} times the median; {n} of {len(multiples)} took ", end=""
        )
        print(f"more than {self.args.most} times as long", flush=True)

    def _minute(self) -> str:
        return f"{(time.monotonic() - self.start) / 60:.1f} min"

    def _memory(self) -> float:
        """Return the MiB of the server and its children; shared memory counts once (PSS)."""
        found = 0
        for process in (self.server, *self.server.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                found += process.memory_full_info().pss
        return found / 2**20

    async def _stop(self) -> None:
        start = time.monotonic()
        self.server.terminate()
        with suppress(psutil.TimeoutExpired):
            await asyncio.to_thread(self.server.wait, 30)
        seconds = time.monotonic() - start
        print(f"SIGTERM: {seconds:.2f} s")
        if seconds > STOP + 1:
            self.faults.append(f"the server ends {seconds:.1f} s after SIGTERM")


def _client(url: str, no: int) -> httpx.AsyncClient:
    """Return a client with the loopback address 127.0.0.`no`."""
    transport = httpx.AsyncHTTPTransport(local_address=f"127.0.0.{no}")
    return httpx.AsyncClient(base_url=url, timeout=300, transport=transport)


def _times(found: list[float]) -> str:
    if not found:
        return "none"
    ordered = sorted(found)
    shown = {"p99": 0.99, "p99.9": 0.999}
    more = "".join(f", {name} {ordered[int(q * len(ordered))]:.3f}" for name, q in shown.items())
    return f"median {median(found):.3f}{more}, at most {ordered[-1]:.3f}"


async def _seconds(doing: Awaitable[object]) -> float:
    start = time.monotonic()
    await doing
    return time.monotonic() - start


def _attack(url: str, args: argparse.Namespace, results: Connection) -> None:
    """Send hostile requests until this process is ended; report each result."""
    # Real attackers use other machines, so these clients only get otherwise unused CPU time.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    target = urlsplit(url)
    kinds = args.kinds.split(",") if args.kinds else []

    async def repeat(no: int) -> None:
        rude = Rude(target.hostname or "", target.port or 0, args.seed * 1000 + no, HOSTILE)
        while True:
            kind = rude.draw.choice(kinds) if kinds else ""
            call = rude.call_by_name(kind) if kind else rude.any()
            try:
                saw = await call()
            except OSError as e:
                saw = type(e).__name__
            results.send((saw, f"{kind or call.__name__} {rude.asked}"))

    async def all_at_once() -> None:
        await asyncio.gather(*map(repeat, range(args.rude)))

    asyncio.run(all_at_once())


if __name__ == "__main__":
    sys.exit(main())
