#!/usr/bin/env python3
"""A server among hostile clients for hours: waits of honest clients, memory, slots, crashes.

    python -m dev.torture.soak_server -m MODEL.gguf --minutes 120

Honest clients repeat their requests, each from its own loopback address (Linux). First each of
them is alone, then all together; then hostile clients (load/rude.py) join from another process and
address. Prints a line per minute: requests of each type, statuses, memory, and times: of /health,
between two tokens, and of a response as a multiple of the median of the honest clients.

The exit code is 1 if an honest request fails, has another response, or takes more than --most times
as long as that median; if the server ends, answers 5xx for a client's fault, or exceeds its memory
budget; if a slot stays busy without clients, or if SIGTERM takes more than a second longer than
--timeout-stop.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable
from contextlib import AsyncExitStack, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import httpx
import psutil

from dev.compare.load.client import Answer, ask, watch_health
from dev.compare.load.rude import Rude
from dev.compare.load.servers import ours, running, server_process

MAY_NOT = {"500", "silence"}  # results that a client must never get
LONGEST = "30"  # seconds of a response: a client may ask for 500 prompts, or for no end
STOP = 1  # --timeout-stop
BODIES = 128  # MiB of all bodies at once, the default of --max-bodies
COPIES = 6  # of a body, while it is received, joined, decoded, parsed and tokenized
N_TOKENS = 24  # of an honest response
HOSTILE = "127.0.0.200"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--together", type=float, default=30, help="seconds without hostile ones")
    parser.add_argument("--good", type=int, default=4, help="honest clients")
    parser.add_argument("--rude", type=int, default=8, help="hostile clients")
    parser.add_argument("--most", type=float, default=2, help="multiple of the median time")
    parser.add_argument("--threads", type=int, default=1, help="of the server; fewer than cores")
    parser.add_argument("--parallel", type=int, default=6, help="slots")
    parser.add_argument("--client-parallel", type=int, default=2, help="requests of an address")
    parser.add_argument("--cache-ram", type=int, default=256, help="MiB; memory grows up to it")
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


class Soak:
    """All clients at once, until the time is up."""

    def __init__(self, url: str, args: argparse.Namespace) -> None:
        self.url, self.args, self.start, self.until = url, args, 0.0, 0.0
        self.seen: Counter[str] = Counter()
        self.faults: list[str] = []
        self.health, self.gaps, self.waits = list[float](), list[float](), list[float]()
        self.server, self.peak, self.expected = server_process(url), 0.0, list[list[list[int]]]()

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(_client(self.url, i + 2)) for i in self._all]
            watch = await stack.enter_async_context(_client(self.url, 1))
            for i, client in enumerate(clients):
                # A processed and a cached prompt may differ in the rounding of quantized models.
                self.expected.append([(await _asked(client, i)).ids for _ in range(2)])
            alone = [await _seconds(_asked(clients[0], 0)) for _ in range(20)]
            base = await self._together(clients)
            budget = self._memory() + self.args.cache_ram + COPIES * BODIES
            print(f"alone {median(alone):.3f} s; together median {base:.3f} s, at most ", end="")
            print(f"{max(self.waits):.3f} s; memory budget {budget:.0f} MiB", flush=True)
            self._begin(60 * self.args.minutes)
            context = multiprocessing.get_context("spawn")
            here, there = context.Pipe(False)
            hostile = context.Process(
                target=_attack, args=(self.url, self.args.rude, self.args.seed, there), daemon=True
            )
            hostile.start()
            try:
                await asyncio.gather(
                    *(self._good(client, i) for i, client in enumerate(clients)),
                    self._tell(base, budget),
                    self._collect(here),
                    watch_health(watch, self.until, 0.05, self.health, self.faults),
                )
                if self.args.minutes > 1:
                    await self._end(watch, clients, hostile)
                await self._stop()
            finally:
                hostile.kill()

    @property
    def _all(self) -> range:
        return range(self.args.good)

    def _begin(self, seconds: float) -> None:
        for found in (self.seen, self.waits, self.gaps):
            found.clear()
        self.start = time.monotonic()
        self.until = self.start + seconds

    async def _together(self, clients: list[httpx.AsyncClient]) -> float:
        """Return the median seconds of honest requests without hostile ones."""
        self._begin(self.args.together)
        await asyncio.gather(*(self._good(client, i) for i, client in enumerate(clients)))
        return median(self.waits)

    async def _good(self, client: httpx.AsyncClient, i: int) -> None:
        while time.monotonic() < self.until:
            start = time.monotonic()
            try:
                answer = await _asked(client, i)
            except (httpx.HTTPError, RuntimeError) as e:
                self.faults.append(f"{self._minute()}: an honest request failed: {e!r}")
                await asyncio.sleep(0.2)
                continue
            self.seen["honest"] += 1
            self.waits.append(time.monotonic() - start)
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

    async def _tell(self, base: float, budget: float) -> None:
        n_before = 0
        while time.monotonic() < self.until:
            await asyncio.sleep(min(60, max(self.until - time.monotonic(), 0.1)))
            self.peak = max(self.peak, self._memory())
            if self.peak > budget:
                self.faults.append(f"{self._minute()}: {self.peak:.0f} MiB, not {budget:.0f}")
            seen = ", ".join(f"{what} {n}" for what, n in self.seen.most_common())
            has = f"{self.server.num_threads()} threads, {self.server.num_fds()} files"
            print(f"{self._minute()}: {self.peak:.0f} MiB, {has}; {seen}; ", end="")
            print(f"faults {len(self.faults)}")
            multiples = [seconds / base for seconds in self.waits]
            late = [x for x in multiples[n_before:] if x > self.args.most]
            n_before = len(multiples)
            if late:
                late.sort()
                what = f"{len(late)} honest requests took more than {self.args.most} times as long"
                self.faults.append(f"{self._minute()}: {what}, at most {late[-1]:.1f}")
            shown = (("/health", self.health, "s"), ("a token", self.gaps, "s"))
            for what, found, unit in (*shown, ("a response", multiples, "times the median")):
                if found:
                    p99 = sorted(found)[int(0.99 * len(found))]
                    times = f"median {median(found):.3f}, p99 {p99:.3f}, at most {max(found):.3f}"
                    print(f"    {what}: {times} {unit}")
            sys.stdout.flush()

    def _minute(self) -> str:
        return f"{(time.monotonic() - self.start) / 60:.1f} min"

    def _memory(self) -> float:
        """Return the resident MiB of the server and its children."""
        found = 0
        for process in (self.server, *self.server.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                found += process.memory_info().rss
        return found / 2**20

    async def _end(
        self,
        watch: httpx.AsyncClient,
        clients: list[httpx.AsyncClient],
        hostile: multiprocessing.process.BaseProcess,
    ) -> None:
        """Check that no slot is busy when the hostile clients pause."""
        os.kill(hostile.pid or 0, 19)  # SIGSTOP
        await asyncio.sleep(float(LONGEST) + 5)
        busy = [s["id"] for s in (await watch.get("/slots")).json() if s["is_processing"]]
        if busy:
            self.faults.append(f"slots {busy} are still busy")
        for i, client in enumerate(clients):
            if (await _asked(client, i)).ids not in self.expected[i]:
                self.faults.append("another response at the end")
        os.kill(hostile.pid or 0, 18)  # SIGCONT
        await asyncio.sleep(3)

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
    """Make a client with a loopback address of its own."""
    transport = httpx.AsyncHTTPTransport(local_address=f"127.0.0.{no}")
    return httpx.AsyncClient(base_url=url, timeout=300, transport=transport)


async def _asked(client: httpx.AsyncClient, i: int) -> Answer:
    return await ask(client, range(300 + 50 * i, 340 + 50 * i), N_TOKENS)


async def _seconds(doing: Awaitable[object]) -> float:
    start = time.monotonic()
    await doing
    return time.monotonic() - start


def _attack(url: str, n: int, seed: int, results: Connection) -> None:
    """Send hostile requests until this process is ended; report each result."""
    os.nice(10)
    target = urlsplit(url)

    async def repeat(no: int) -> None:
        rude = Rude(target.hostname or "", target.port or 0, seed * 1000 + no, HOSTILE)
        while True:
            call = rude.any()
            try:
                saw = await call()
            except OSError as e:
                saw = type(e).__name__
            results.send((saw, f"{call.__name__} {rude.asked}"))

    async def all_at_once() -> None:
        await asyncio.gather(*map(repeat, range(n)))

    asyncio.run(all_at_once())


if __name__ == "__main__":
    sys.exit(main())
