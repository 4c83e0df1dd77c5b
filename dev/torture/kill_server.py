#!/usr/bin/env python3
"""Kill a server while it saves sequences and responds, and check the files after a restart.

    python -m dev.torture.kill_server -m MODEL.gguf --times 50

One client saves sequences under a few names; the other clients stream responses. After a random
time, the server receives SIGKILL. The next server restores every file: it must have the last saved
sequence, or the complete sequence of the interrupted save, and the same prompt must get the same
response. Every request must have had a complete response or an error. Exit code 1 otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from dev.compare.load.client import ask
from dev.compare.load.servers import free_port, ours

READY = 300.0  # maximum seconds for a response
NAMES = ("one", "two", "three")
LENGTHS = range(20, 404, 6)  # tokens of prompts
N = 8  # tokens per response


@dataclass
class Saved:
    """Sequence that a request saved.

    length  tokens of the prompt
    n       tokens of the sequence; 0: unknown
    ids     tokens of the response
    """

    length: int
    n: int
    ids: list[int]


@dataclass
class Kept:
    """Expected content of a file: the last confirmed save, or the save in progress."""

    last: Saved | None = None
    coming: Saved | None = None


@dataclass
class Killing:
    """Test with repeated kills and restarts of the server."""

    args: argparse.Namespace
    folder: Path
    files: dict[str, Kept] = field(default_factory=lambda: {name: Kept() for name in NAMES})
    seen: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    async def run(self) -> None:
        chance = random.Random(self.args.seed)
        for turn in range(self.args.times + 1):
            port = free_port()
            process = await asyncio.create_subprocess_exec(
                *ours(self.args.model, 4096, 4, 2),
                "--slot-save-path",
                str(self.folder),
                "--no-warmup",
                "--port",
                str(port),
                stderr=asyncio.subprocess.DEVNULL,
            )
            try:
                async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                    await self._ready(client, process)
                    await self._restored(client)
                    print(f"run {turn}: {dict(self.seen)}, faults {len(self.faults)}", flush=True)
                    if turn < self.args.times:
                        await self._live(client, process, chance)
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def _ready(self, client: httpx.AsyncClient, process: asyncio.subprocess.Process) -> None:
        until = time.monotonic() + READY
        while time.monotonic() < until and process.returncode is None:
            with suppress(httpx.TransportError):
                if (await client.get("/health")).status_code == 200:
                    return
            await asyncio.sleep(0.1)
        raise RuntimeError(f"the server did not become ready; exit code {process.returncode}")

    async def _live(
        self, client: httpx.AsyncClient, process: asyncio.subprocess.Process, chance: random.Random
    ) -> None:
        """Run clients against a server until it is killed."""
        begun, end = asyncio.Event(), asyncio.Event()
        clients = [asyncio.ensure_future(self._saves(client, chance, begun, end))]
        clients += [asyncio.ensure_future(self._talks(client, chance, end)) for _ in range(2)]
        first = asyncio.ensure_future(begun.wait())
        # A client that ends before the kill has been refused.
        tasks = (first, *clients)
        ended, _ = await asyncio.wait(tasks, timeout=READY, return_when=asyncio.FIRST_COMPLETED)
        self._expect(bool(ended), f"no response within {READY:.0f} s")
        if begun.is_set():
            await asyncio.sleep(chance.uniform(0, self.args.seconds))
        psutil.Process(process.pid).kill()
        end.set()
        first.cancel()
        self.seen["kills"] += 1
        await process.wait()
        await asyncio.gather(*clients)

    async def _saves(
        self,
        client: httpx.AsyncClient,
        chance: random.Random,
        begun: asyncio.Event,
        end: asyncio.Event,
    ) -> None:
        while not end.is_set():
            name, length = chance.choice(NAMES), chance.choice(LENGTHS)
            kept = self.files[name]
            with suppress(httpx.TransportError):
                body = {
                    "prompt": prompt(length),
                    "n_predict": N,
                    "temperature": 0,
                    "id_slot": 0,
                    "ignore_eos": True,
                    "return_tokens": True,
                }
                response = await client.post("/completion", json=body, timeout=READY)
                said = response.raise_for_status().json()
                kept.coming = Saved(length, 0, said["tokens"])
                begun.set()
                url, file = "/slots/0?action=save", {"filename": name}
                found = await client.post(url, json=file, timeout=READY)
                self._expect(found.status_code == 200, f"saving {name}: {found.text}")
                kept.coming.n = found.json()["n_saved"]
                kept.last, kept.coming = kept.coming, None
                self.seen["saved"] += 1

    async def _talks(
        self, client: httpx.AsyncClient, chance: random.Random, end: asyncio.Event
    ) -> None:
        while not end.is_set():
            self.seen[await self._stream(client, chance.choice(LENGTHS), end)] += 1

    async def _stream(self, client: httpx.AsyncClient, length: int, end: asyncio.Event) -> str:
        try:
            await ask(client, prompt(length), 4 * N, 2 + length % 2)  # a prompt that is not saved
            return "streams"
        except httpx.TransportError:
            return "streams that ended with an error"
        except RuntimeError as e:  # fewer tokens without an error
            if not end.is_set():
                raise
            self.faults.append(f"a stream: {e}")
            return "lost streams"

    async def _restored(self, client: httpx.AsyncClient) -> None:
        """Restore every file and check its content."""
        for name, kept in self.files.items():
            file = {"filename": name}
            found = await client.post("/slots/1?action=restore", json=file, timeout=READY)
            if kept.last is None and found.status_code == 400:
                kept.coming = None
                continue
            if not self._expect(found.status_code == 200, f"restoring {name}: {found.text}"):
                continue
            n, may = found.json()["n_restored"], [s for s in (kept.last, kept.coming) if s]
            is_it = [s for s in may if n in (s.n, s.length + N - 1, s.length + N)]
            if not self._expect(bool(is_it), f"{name}: {n} tokens, expected {may}"):
                continue
            now = is_it[-1]
            body = {
                "prompt": prompt(now.length),
                "n_predict": N,
                "temperature": 0,
                "id_slot": 1,
                "ignore_eos": True,
                "return_tokens": True,
            }
            said = (await client.post("/completion", json=body, timeout=READY)).json()
            self._expect(said["tokens"] == now.ids, f"{name}: {said['tokens']}, expected {now.ids}")
            self._expect(said["timings"]["cache_n"] > 0, f"{name}: the restored cache was not used")
            self.seen["restored"] += 1
            self.seen["restored from an interrupted save"] += now is kept.coming
            now.n = n
            kept.last, kept.coming = now, None

    def _expect(self, holds: bool, fault: str) -> bool:
        if not holds:
            self.faults.append(fault)
        return holds


def prompt(length: int) -> list[int]:
    """Return a prompt whose first token differs for each of LENGTHS; ids are below 64, so that a
    small vocabulary has them."""
    return [LENGTHS.index(length), *(i % 64 for i in range(length - 1))]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--times", type=int, default=50, help="number of kills")
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="maximum time between a response and the kill"
    )
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        killing = Killing(args, Path(folder))
        asyncio.run(killing.run())
        left = [p.name for p in Path(folder).iterdir() if p.name not in NAMES]
    print(", ".join(f"{what} {n}" for what, n in killing.seen.items()))
    print(f"files of interrupted saves: {len(left)}; faults {len(killing.faults)}")
    print(*killing.faults, sep="\n")
    return bool(killing.faults)


if __name__ == "__main__":
    sys.exit(main())
