#!/usr/bin/env python3
"""Check the answers of a server during and after faults of disk, memory, descriptors and clock.

    python -m dev.torture.server_faults -m MODEL.gguf [FAULT ...]

    disk_full     no file may grow beyond 4 KiB
    disk_gone     the folder of --slot-save-path has another name
    read_only     this folder cannot be written (skipped for root)
    memory        the address space can grow by 32 MiB
    descriptors   the server can open two more descriptors
    clock         the clock of the wall is a day ahead, then a day late

During a fault each request has its right answer, or an error in JSON. After it answers are the
same, slots can be restored and saved, and no temporary files remain. For Linux.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from dev.compare.load.client import ask
from dev.compare.load.servers import ours, running, server_process

PROMPT, N = range(300, 340), 24
LOG = 1 << 20  # bytes that a log may have
DAY = 86400.0
SERVER = f"""
import signal, sys, time
real, ahead = time.time, [0.0, {DAY}, -{DAY}]

def jump(*_):
    ahead.append(ahead.pop(0))

signal.signal(signal.SIGUSR1, jump)
time.time = lambda: real() + ahead[0]
from llama_py_server.command import main
sys.exit(main())
"""


class Faults:
    """The ways to let a server fail, by name; each ends with its block."""

    def __init__(self, process: psutil.Process, folder: Path) -> None:
        self.process, self.folder = process, folder

    @contextmanager
    def _set_limit(self, kind: int, most: int) -> Iterator[None]:
        before = self.process.rlimit(kind)
        assert before is not None
        self.process.rlimit(kind, (most, before[1]))
        try:
            yield
        finally:
            self.process.rlimit(kind, before)

    @contextmanager
    def disk_full(self) -> Iterator[None]:
        with self._set_limit(psutil.RLIMIT_FSIZE, 4096):
            yield

    @contextmanager
    def disk_gone(self) -> Iterator[None]:
        away = self.folder.with_name("away")
        self.folder.rename(away)
        try:
            yield
        finally:
            away.rename(self.folder)

    @contextmanager
    def read_only(self) -> Iterator[None]:
        self.folder.chmod(0o500)
        try:
            yield
        finally:
            self.folder.chmod(0o700)

    @contextmanager
    def memory(self) -> Iterator[None]:
        with self._set_limit(psutil.RLIMIT_AS, self.process.memory_info().vms + (32 << 20)):
            yield

    @contextmanager
    def descriptors(self) -> Iterator[None]:
        with self._set_limit(psutil.RLIMIT_NOFILE, self.process.num_fds() + 2):
            yield

    @contextmanager
    def clock(self) -> Iterator[None]:
        self.process.send_signal(signal.SIGUSR1)
        yield
        self.process.send_signal(signal.SIGUSR1)


NAMES = [name for name in vars(Faults) if not name.startswith("_")]
REFUSED = {"disk_full", "disk_gone", "read_only"}  # faults that prevent saves

LOSES = {"descriptors", "memory"}  # faults that may close connections


class Check:
    """One server and one fault."""

    def __init__(self, client: httpx.AsyncClient, name: str, folder: Path) -> None:
        self.client, self.name, self.folder = client, name, folder
        self.bad: list[str] = []
        self.process = server_process(str(client.base_url))

    def expect(self, holds: bool, what: str) -> None:
        if not holds:
            self.bad.append(what)

    async def run(self) -> None:
        self.ids = (await ask(self.client, PROMPT, N, 0)).ids
        await self._slot("save", "kept", lambda status: status == 200)
        running = asyncio.ensure_future(ask(self.client, range(200, 240), 400))
        await asyncio.sleep(0.1)
        with getattr(Faults(self.process, self.folder), self.name)():
            await self._check_fault()
        await self._answers("a stream that ran", running)
        await asyncio.sleep(1)
        await self._check_recovery()

    async def _check_fault(self) -> None:
        for _ in range(3):
            await self._answers("an answer", self._same(ask(self.client, PROMPT, N, 0)))
        may = {False} if self.name in REFUSED else {True, False}
        await self._slot("save", "new", lambda status: (status == 200) in may)
        text = "a king " * (1 << 16)
        crowd = [self._post("/tokenize", {"content": text, "with_pieces": True}) for _ in range(20)]
        crowd += [self._post("/completion", {"prompt": "a", "n_predict": 2}) for _ in range(20)]
        await asyncio.gather(*crowd)

    async def _check_recovery(self) -> None:
        try:
            await self._same(ask(self.client, PROMPT, N))
        except (httpx.HTTPError, RuntimeError) as e:
            self.expect(False, f"no answer after it: {e!r}")
        await self._slot("restore", "kept", lambda status: status == 200)
        await self._slot("save", "new", lambda status: status == 200)
        await self._slot("restore", "new", lambda status: status == 200)
        left = {path.name for path in self.folder.iterdir()} - {"kept", "new"}
        self.expect(not left, f"temporary files remain: {left}")
        self.expect(self.process.is_running(), "the server has ended")

    async def _same(self, doing: Any) -> None:
        self.expect((await doing).ids == self.ids, "another answer")

    async def _answers(self, what: str, doing: Any) -> None:
        try:
            await doing
        except RuntimeError as e:  # a refusal
            self.expect('"error"' in str(e), f"{what}: {e}")
        except httpx.HTTPError as e:
            self.expect(self.name in LOSES, f"{what}: {e!r}")

    async def _post(self, path: str, body: Any) -> httpx.Response | None:
        """Return the response, or an error with a reason; None if the connection is lost."""
        try:
            found = await self.client.post(path, json=body, timeout=60)
        except httpx.HTTPError as e:
            self.expect(self.name in LOSES, f"{path}: {e!r}")
            return None
        whole = found.status_code == 200 or "error" in found.json()
        self.expect(whole, f"{path}: {found.status_code} {found.text[:200]}")
        unexpected = found.status_code == 500 and "disk" not in self.name
        self.expect(not unexpected, f"{path}: {found.text[:200]}")
        return found

    async def _slot(self, action: str, name: str, may: Callable[[int], bool]) -> None:
        found = await self._post(f"/slots/0?action={action}", {"filename": name})
        if found is not None:
            self.expect(may(found.status_code), f"{action} {name}: {found.text[:200]}")


async def check_fault(url: str, name: str, folder: Path) -> list[str]:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        check = Check(client, name, folder)
        await check.run()
    return check.bad


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="by default all")
    args = parser.parse_args()
    if unknown := {*args.faults} - {*NAMES}:
        parser.error(f"unknown fault {min(unknown)!r}; {', '.join(NAMES)}")
    n_bad = 0
    for name in args.faults or NAMES:
        if name == "read_only" and os.geteuid() == 0:
            print(f"{name}: not as root")
            continue
        with tempfile.TemporaryDirectory() as given:
            folder, log = Path(given) / "slots", Path(given) / "log"
            folder.mkdir()
            command = [sys.executable, "-c", SERVER, *ours(args.model, 2048, 4, 1)[1:]]
            command += ["--slot-save-path", str(folder), "-v", "--timeout", "600"]
            with running(command, log) as url:
                bad = asyncio.run(check_fault(url, name, folder))
            text = log.read_text(errors="replace")
            bad += (
                ["in the log: Traceback" + text.partition("Traceback")[2]]
                if "Traceback" in text
                else []
            )
            bad += [f"the log has {len(text)} characters"] if len(text) > LOG else []
        print(f"{name}: {'ok' if not bad else ''}", *dict.fromkeys(bad), sep="\n    ", flush=True)
        n_bad += bool(bad)
    return min(n_bad, 1)


if __name__ == "__main__":
    sys.exit(main())
