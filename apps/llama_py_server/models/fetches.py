"""Downloads of models from the Hub that clients requested, in separate, cancellable processes
(server-models.cpp:SERVER_CHILD_MODE_DOWNLOAD)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO

from llama_py.params.texts import without_credentials
from llama_py_server.models.feed import Feed
from llama_py_tools.command.logs import log
from llama_py_tools.models import hub

LOOK = 0.25  # seconds between two checks of progress
_CHILD = (
    "import sys; from llama_py_server.models.fetches import fetch; sys.exit(fetch(*sys.argv[1:]))"
)


def fetch(repo: str, *names: str) -> int:
    """Download files of a repository, in a separate process; return the exit code."""
    from ggml_py.errors import ModelError
    from llama_py_tools.command.params import FileParams

    try:
        for name in names:
            hub.download_file(FileParams(hf_repo=repo), name)
    except ModelError as e:
        print(e, file=sys.stderr)
        return 1
    return 0


@dataclass
class Fetch:
    """name  the model's repository and type;  sizes  bytes of its files by path;  done  bytes
    downloaded, of all files;  error  reason of a failure;  n_waiting  clients that want it"""

    name: str
    sizes: Mapping[str, int]
    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    done: int = 0
    cancelled: bool = False
    error: str = ""
    n_waiting: int = 0
    watching: asyncio.Future[None] | None = field(default=None, repr=False)

    @property
    def repo(self) -> str:
        return self.name.partition(":")[0]

    @property
    def progress(self) -> dict[str, dict[str, int]]:
        """Bytes done of each file; files are downloaded one after another."""
        found, left = {}, self.done
        for path, size in self.sizes.items():
            found[f"{self.repo}/{path}"] = {"done": min(left, size), "total": size}
            left -= min(left, size)
        return found

    def cancel(self) -> None:
        self.cancelled = True
        self.process.kill()


class Fetches:
    """Downloads of models in progress.

    feed     receives progress events;  arrived  is called after a complete download
    """

    def __init__(self, feed: Feed, arrived: Callable[[], None]) -> None:
        self.feed, self.arrived = feed, arrived
        self.running: dict[str, Fetch] = {}

    def begin(self, name: str, sizes: Mapping[str, int], token: str = "") -> Fetch:
        """Download the files of a model, and report the result."""
        paths = os.pathsep.join(path for path in sys.path if path)
        environment = {**os.environ, "PYTHONPATH": paths, "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        if token:
            environment["HF_TOKEN"] = token
        errors = _words_file()
        fetch = Fetch(
            name,
            sizes,
            subprocess.Popen(
                [sys.executable, "-c", _CHILD, name.partition(":")[0], *sizes],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            ),
            errors,
        )
        self.running[name] = fetch
        fetch.watching = asyncio.ensure_future(self._watch(fetch))
        return fetch

    async def _watch(self, fetch: Fetch) -> None:
        before = hub.bytes_there(fetch.repo)
        self.feed.send("download_progress", fetch.name, fetch.progress)
        try:
            while fetch.process.poll() is None:
                await asyncio.sleep(LOOK)
                done = max(hub.bytes_there(fetch.repo) - before, fetch.done)
                if done != fetch.done:
                    fetch.done = done
                    self.feed.send("download_progress", fetch.name, fetch.progress)
            good = fetch.process.returncode == 0
            if good:
                self.arrived()
            elif not fetch.cancelled:
                fetch.error = without_credentials(_words(fetch.errors))
                log.warning("download of %s failed: %s", fetch.name, fetch.error)
            self.running.pop(fetch.name, None)
            self.feed.send("download_finished" if good else "download_failed", fetch.name)
        finally:
            self.running.pop(fetch.name, None)
            fetch.process.kill()
            fetch.process.wait()
            fetch.errors.close()

    async def cancel(self, name: str) -> None:
        """Cancel a download; its complete files are cached and are not downloaded again."""
        fetch = self.running[name]
        fetch.cancel()
        if fetch.watching is not None:
            await fetch.watching

    def close(self) -> None:
        """Cancel all downloads; safe to call from any thread."""
        for fetch in [*self.running.values()]:
            fetch.cancel()


def _words_file() -> IO[bytes]:
    """Return a file for a process's stderr, which may exceed a pipe's buffer."""
    return tempfile.TemporaryFile()


def _words(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read()[-2000:].decode("utf-8", "replace").splitlines()
    return next(filter(None, reversed(lines)), "its process ended without a message")
