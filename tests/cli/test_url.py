"""-mu, with a server of this machine."""

from __future__ import annotations

import threading
from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ggml_py.errors import ModelError
from llama_py_tools.generate import cli
from llama_py_tools.models.url import download


class Quiet(SimpleHTTPRequestHandler):
    asked: list[str]
    codes: list[str]

    def log_message(self, *_: object) -> None:
        self.asked.append(self.path)
        self.codes += self.headers.get_all("Authorization", [])

    def send_header(self, keyword: str, value: str) -> None:
        lies = keyword == "Content-Length" and "short" in self.path
        super().send_header(keyword, "100" if lies else value)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "web").mkdir()
    for name in ("a.gguf", "b-00001-of-00002.gguf", "b-00002-of-00002.gguf"):
        (tmp_path / "web" / name).write_text(name)
    Quiet.asked, Quiet.codes = [], []
    handler = partial(Quiet, directory=str(tmp_path / "web"))
    found = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "cache"))
    yield f"http://127.0.0.1:{found.server_port}"
    found.shutdown()
    found.server_close()


def test_once(server: str, tmp_path: Path) -> None:
    for _ in range(2):
        path = download(f"{server}/a.gguf?x=y#z", "", False)
        assert path == str(tmp_path / "cache" / "a.gguf")
        assert Path(path).read_text() == "a.gguf"
    assert len(Quiet.asked) == 1
    assert download(f"{server}/a.gguf", "", True) == path


def test_a_name_and_password_are_a_header(server: str) -> None:
    host = server.removeprefix("http://")
    download(f"http://me:p%40ss@{host}/a.gguf", "", False)
    assert Quiet.codes == ["Basic " + b64encode(b"me:p@ss").decode()]
    with pytest.raises(ModelError) as e:
        download(f"http://me:p%40ss@{host}/no.gguf?key=secret", "", False)
    assert str(e.value).startswith(f"-mu {server}/no.gguf: ")
    assert "p%40ss" not in str(e.value) and "secret" not in str(e.value)


def test_where_m_says_and_all_parts(server: str, tmp_path: Path) -> None:
    path = tmp_path / "own" / "mine-00001-of-00002.gguf"
    assert download(f"{server}/b-00001-of-00002.gguf", str(path), False) == str(path)
    assert sorted(p.name for p in path.parent.iterdir()) == ["b-00002-of-00002.gguf", path.name]


def test_refusals(server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for url, offline, says in (
        (f"{server}/no.gguf", False, "HTTP Error 404"),
        (f"{server}/a.gguf", True, "is missing; run without --offline to download it"),
        ("file:///etc/passwd", False, "expected http"),
        (f"{server}/", False, "expected http"),
        ("http://127.0.0.1:1/a.gguf", False, r"cannot be reached \(.*refused\); check the network"),
    ):
        with pytest.raises(ModelError, match=says):
            download(url, "", offline)
    assert not (tmp_path / "cache" / "no.gguf").exists()
    assert cli.main(["-mu", f"{server}/a.gguf", "-p", "x"]) == 1
    assert "not a GGUF file" in capsys.readouterr().err
    assert cli.main(["-mu", f"{server}/a.gguf", "-hf", "a/b"]) == 1


def test_a_file_that_does_not_come_whole(server: str, tmp_path: Path) -> None:
    (tmp_path / "web" / "short.gguf").write_text("x")
    with pytest.raises(ModelError, match="only 1 of 100 bytes were downloaded; try again"):
        download(f"{server}/short.gguf", "", False)
    assert [*(tmp_path / "cache").iterdir()] == []
