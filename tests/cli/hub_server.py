"""A hub on this machine: what huggingface_hub asks of the real one for a list and for files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_secret"


Repos = Mapping[str, Mapping[str, bytes]]


@contextmanager
def hub(
    repos: Repos,
    private: str = "",
    slow: str = "",
    commit: str = COMMIT,
    pause: float | None = None,
) -> Iterator[tuple[str, list[str]]]:
    """Its address, and the list of what it is asked; `private` is a repository for TOKEN only. Of
    the files of `slow` the first half comes, and the rest after `pause` seconds, or at the end."""
    asked: list[str] = []
    ended = Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(f"{self.command} {urlsplit(self.path).path}")
            words = urlsplit(self.path).path.strip("/").split("/")
            if words[:2] == ["api", "models"] and words[4:] in (["tree", "main"], ["tree", commit]):
                self._tree("/".join(words[2:4]))
            elif words[:2] == ["api", "models"]:
                self._info("/".join(words[2:4]))
            elif len(words) > 4 and words[2] == "resolve":
                self._file("/".join(words[:2]), "/".join(words[4:]))
            else:
                self._send(404, b"{}")

        do_HEAD = do_GET

        def _files(self, repo: str) -> Mapping[str, bytes] | None:
            may = repo != private or self.headers.get("Authorization") == f"Bearer {TOKEN}"
            if may and repo in repos:
                return repos[repo]
            self._send(401, b'{"error": "Repository not found"}', {"X-Error-Code": "RepoNotFound"})
            return None

        def _tree(self, repo: str) -> None:
            if (files := self._files(repo)) is not None:
                self._json(
                    [
                        {"type": "file", "path": name, "size": len(data), "oid": _etag(data)}
                        for name, data in files.items()
                    ]
                )

        def _info(self, repo: str) -> None:
            if (files := self._files(repo)) is not None:
                names = [{"rfilename": name} for name in files]
                self._json({"id": repo, "sha": commit, "siblings": names})

        def _file(self, repo: str, name: str) -> None:
            files = self._files(repo)
            if files is None:
                return
            if name not in files:
                self._send(404, b"{}", {"X-Error-Code": "EntryNotFound"})
                return
            tag = f'"{_etag(files[name])}"'
            self._send(200, files[name], {"ETag": tag, "X-Repo-Commit": commit})

        def _json(self, value: Any) -> None:
            self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def _send(self, status: int, body: bytes, headers: Mapping[str, str] = {}) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                half = len(body) // 2 if slow and self.path.startswith(f"/{slow}/") else len(body)
                self.wfile.write(body[:half])
                if half < len(body):
                    self.wfile.flush()
                    ended.wait(pause)
                    with suppress(OSError):  # nobody waits any more
                        self.wfile.write(body[half:])

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the test's output is its own."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        ended.set()
        server.shutdown()
        server.server_close()


def _etag(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()
