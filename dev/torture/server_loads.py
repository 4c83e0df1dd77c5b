#!/usr/bin/env python3
"""A server under one kind of hostile request at a time: how long others wait, and how soon it ends.

    python -m dev.torture.server_loads -m MODEL.gguf --seconds 5

Prints a table with a line per kind of request: 99th percentile and worst time of /health and
between two pieces of a stream, and the seconds from SIGTERM to the end while the requests continue.
Hostile clients run in a separate process. The exit code is 1 if a server answers 500, crashes, or
ends more than a second after --timeout-stop.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil

from dev.compare.load.client import watch_health
from dev.compare.load.rude import LONG, Rude
from dev.compare.load.servers import ours, running, server_process

STOP = 1  # --timeout-stop
EVERY = 0.02  # seconds between two requests of /health
METHODS = (
    "hangs_up",
    "half_a_request",
    "wrong_fields",
    "no_json",
    "no_http",
    "huge",
    "slow",
    "crowd",
    "drip",
    "unfinished",
    "other_page",
)
KINDS = ("alone", *METHODS, *LONG)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--seconds", type=float, default=5, help="of each kind")
    parser.add_argument("--clients", type=int, default=4, help="hostile clients at a time")
    parser.add_argument("--threads", type=int, default=1, help="of the server")
    parser.add_argument("kinds", nargs="*", help=f"by default all: {', '.join(KINDS)}")
    args = parser.parse_args()
    for name in args.kinds:
        if name not in KINDS:
            parser.error(f"unknown kind {name!r}")
    print("| requests | /health p99, worst (s) | stream p99, worst (s) | SIGTERM (s) | |")
    print("|---|---|---|---|---|", flush=True)
    return max([_shown(kind, args) for kind in args.kinds or KINDS])


def _shown(kind: str, args: argparse.Namespace) -> int:
    """Print the line of a kind. -> whether it has a fault"""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = [*ours(args.model, 4096, 4, args.threads), "--timeout-stop", str(STOP)]
        with running([*command, "--slot-save-path", folder], log) as url:
            load = Load(url, kind, args)
            asyncio.run(load.run())
        faults = load.faults
        faults += ["a traceback"] if "Traceback" in log.read_text(errors="replace") else []
    stopped = f"{load.stopped:.1f}"
    columns = (
        kind,
        _times(load.health),
        _times(load.gaps),
        stopped,
        "; ".join(dict.fromkeys(faults)),
    )
    print("|", " | ".join(columns), "|", flush=True)
    return bool(faults)


def _times(found: list[float]) -> str:
    if not found:
        return "none"
    return f"{sorted(found)[int(0.99 * len(found))]:.3f}, {max(found):.3f}"


class Load:
    """One kind of request, next to a client of /health and a client of streams."""

    def __init__(self, url: str, kind: str, args: argparse.Namespace) -> None:
        self.url, self.kind, self.args = url, kind, args
        self.health, self.gaps, self.faults = list[float](), list[float](), list[str]()
        self.server, self.stopped, self.until = server_process(url), 0.0, 0.0

    async def run(self) -> None:
        context = multiprocessing.get_context("spawn")
        attack = context.Process(target=_attack, args=(self.url, self.kind, self.args.clients))
        async with httpx.AsyncClient(base_url=self.url, timeout=60) as client:
            await self._stream(client, 16)  # kernels are compiled
            self.gaps.clear()
            if self.kind != "alone":
                attack.start()
                await asyncio.sleep(2)  # time for that process to start
            self.until = time.monotonic() + self.args.seconds
            await asyncio.gather(
                watch_health(client, self.until, EVERY, self.health, self.faults),
                self._streams(client),
            )
        start = time.monotonic()
        try:
            self.server.terminate()
            await asyncio.to_thread(self.server.wait, 30)
        except (psutil.NoSuchProcess, psutil.TimeoutExpired) as e:
            self.faults.append(type(e).__name__)
        self.stopped = time.monotonic() - start
        if self.stopped > STOP + 1:
            self.faults.append(f"it ends after {self.stopped:.1f} s")
        if attack.pid is not None:
            attack.kill()
            attack.join()

    async def _streams(self, client: httpx.AsyncClient) -> None:
        try:
            while time.monotonic() < self.until:
                await self._stream(client, 2000)
        except httpx.HTTPError as e:
            self.faults.append(f"a stream: {e!r}")

    async def _stream(self, client: httpx.AsyncClient, n: int) -> None:
        body = {"prompt": list(range(300, 340)), "n_predict": n, "ignore_eos": True, "stream": True}
        async with client.stream("POST", "/completion", json=body) as response:
            if response.status_code == 500:
                self.faults.append("a stream: 500")
            before = 0.0
            async for _ in response.aiter_raw():
                now = time.monotonic()
                if before:
                    self.gaps.append(now - before)
                before = now
                if self.until and now > self.until:
                    return


def _attack(url: str, kind: str, n: int) -> None:
    """Send requests of a kind until this process is ended."""
    os.nice(10)
    target = urlsplit(url)

    async def repeat(seed: int) -> None:
        rude = Rude(target.hostname or "", target.port or 0, seed)
        while True:
            with suppress(OSError):
                await rude.call_by_name(kind)()
            await asyncio.sleep(0.01)

    async def all_at_once() -> None:
        await asyncio.gather(*map(repeat, range(n)))

    asyncio.run(all_at_once())


if __name__ == "__main__":
    sys.exit(main())
