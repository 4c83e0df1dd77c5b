#!/usr/bin/env python3
"""A server among rude clients for as long as one likes: memory, slots, and whether it answers.

    python -m dev.torture.soak_server -m MODEL.gguf --minutes 120

Good clients ask for the same answers again and again, rude ones (load/rude.py) do what they can.
Prints a line a minute: requests of each kind, statuses, resident memory, and the longest waits: of
/health, between two tokens of a good stream, and of a good answer as a multiple of its time alone.
Ends with 1 if a good answer differs from the first, the server ends or answers 5xx for a client's
fault, or a slot stays busy when all clients have gone.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from dev.compare.load.client import ask, watch_health
from dev.compare.load.rude import Rude
from dev.compare.load.servers import ours, running, server_process

MAY = {"500", "silence"}  # results that a client must never get
LONGEST = "30"  # seconds of an answer: a client may ask for 500 prompts, or for no end


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--good", type=int, default=2, help="good clients")
    parser.add_argument("--rude", type=int, default=6, help="rude ones")
    parser.add_argument("--parallel", type=int, default=4, help="slots")
    parser.add_argument("--cache-ram", type=int, default=256, help="MiB; memory grows up to it")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = [*ours(args.model, 512 * args.parallel, args.parallel, 2), "--slots"]
        command += ["--slot-save-path", folder, "--cache-ram", str(args.cache_ram)]
        command += ["--timeout", LONGEST]  # makes a minute's silence a fault
        with running(command, log) as url:
            faults = asyncio.run(Soak(url, args).run())
        if faults:
            print(*faults, log.read_text()[-3000:], sep="\n")
    return bool(faults)


class Soak:
    """All clients at once, until the time is up."""

    def __init__(self, url: str, args: argparse.Namespace) -> None:
        self.url, self.args = url, args
        self.until = time.monotonic() + 60 * args.minutes
        self.seen: Counter[str] = Counter()
        self.faults: list[str] = []
        self.health, self.gaps, self.waits = list[float](), list[float](), list[float]()
        self.server = server_process(url)

    async def run(self) -> list[str]:
        async with httpx.AsyncClient(base_url=self.url, timeout=300) as client:
            self.expected = (await ask(client, range(300, 340), 24)).ids
            alone = [await _seconds(ask(client, range(300, 340), 24)) for _ in range(5)]
            self.alone = sorted(alone)[2]
            clients = [self._good(client) for _ in range(self.args.good)]
            clients += [self._rude(i) for i in range(self.args.rude)]
            await asyncio.gather(
                *clients,
                self._tell(client),
                watch_health(client, self.until, 0.05, self.health, self.faults),
            )
            await self._end(client)
        return self.faults

    async def _good(self, client: httpx.AsyncClient) -> None:
        while time.monotonic() < self.until:
            start = time.monotonic()
            try:
                answer = await ask(client, range(300, 340), 24)
            except (httpx.HTTPError, RuntimeError) as e:
                if " 503" not in f" {e}":
                    self.faults.append(f"a good request failed: {e!r}")
                self.seen["busy"] += 1
                await asyncio.sleep(0.2)
                continue
            self.seen["good"] += 1
            self.waits.append((time.monotonic() - start) / self.alone)
            self.gaps += answer.between
            if answer.ids != self.expected:
                self.faults.append(f"another answer: {answer.ids}, not {self.expected}")

    async def _rude(self, no: int) -> None:
        target = urlsplit(self.url)
        rude = Rude(target.hostname or "", target.port or 0, self.args.seed * 1000 + no)
        while time.monotonic() < self.until:
            call = rude.any()
            try:
                saw = await call()
            except OSError as e:
                saw = type(e).__name__
            self.seen[saw] += 1
            if saw in MAY:
                self.faults.append(f"{call.__name__}: {saw}; the last request: {rude.asked}")

    async def _tell(self, client: httpx.AsyncClient) -> None:
        start = time.monotonic()
        while time.monotonic() < self.until:
            await asyncio.sleep(min(60, max(self.until - time.monotonic(), 0.1)))
            memory = self.server.memory_info().rss / 2**20
            seen = ", ".join(f"{what} {n}" for what, n in self.seen.most_common())
            minutes = (time.monotonic() - start) / 60
            has = f"{self.server.num_threads()} threads, {self.server.num_fds()} files"
            print(f"{minutes:.0f} min: {memory:.1f} MiB, {has}; {seen}; faults {len(self.faults)}")
            shown = (("/health", self.health, "s"), ("a token", self.gaps, "s"))
            for what, found, unit in (*shown, ("an answer", self.waits, "times as alone")):
                if found:
                    p99 = sorted(found)[int(0.99 * len(found))]
                    print(f"    {what} took p99 {p99:.3f}, at most {max(found):.3f} {unit}")
            sys.stdout.flush()

    async def _end(self, client: httpx.AsyncClient) -> None:
        """Check that no slot is busy after the end."""
        await asyncio.sleep(5)
        busy = [s["id"] for s in (await client.get("/slots")).json() if s["is_processing"]]
        if busy:
            self.faults.append(f"slots {busy} are still busy")
        if (await ask(client, range(300, 340), 24)).ids != self.expected:
            self.faults.append("another answer at the end")


async def _seconds(doing: Awaitable[object]) -> float:
    start = time.monotonic()
    await doing
    return time.monotonic() - start


if __name__ == "__main__":
    sys.exit(main())
