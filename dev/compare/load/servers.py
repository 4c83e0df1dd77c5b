"""Servers in separate processes, on loopback."""

from __future__ import annotations

import socket
import subprocess
import sysconfig
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil

READY = 300.0  # seconds until a server answers


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[str]:
    """Yield the address of a ready server. RuntimeError if it exits or takes too long."""
    port = free_port()
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)], stdout=out, stderr=out
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(process, url, log)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + READY
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args} ended: {log.read_text()[-2000:]}")
        try:
            if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise RuntimeError(f"{process.args} is not ready after {READY} s")


def server_process(url: str) -> psutil.Process:
    """Return the process of a server that this one has started."""
    port = str(urlsplit(url).port)
    return next(p for p in psutil.Process().children() if port in p.cmdline())


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def ours(model: str, n_ctx: int, n_parallel: int, n_threads: int) -> list[str]:
    program = Path(sysconfig.get_path("scripts")) / "llama-py-server"
    return [str(program), *_common(model, n_ctx, n_parallel, n_threads)]


def theirs(
    program: str, model: str, n_ctx: int, n_parallel: int, n_threads: int, more: Sequence[str]
) -> list[str]:
    return [program, *_common(model, n_ctx, n_parallel, n_threads), "--no-webui", *more]


def _common(model: str, n_ctx: int, n_parallel: int, n_threads: int) -> list[str]:
    return ["-m", model, "-c", str(n_ctx), "-np", str(n_parallel), "-t", str(n_threads)]
