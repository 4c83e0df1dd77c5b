"""dev/compare/compare_turns.py: what is computed of each turn, and a server asked the same."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dev.compare import compare_turns

SERVER = """#!{python}
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response({status})
        self.end_headers()
        for i in range(asked["n_predict"]):
            event = {{"tokens": [i], "timings": {{"prompt_n": len(asked["prompt"])}}}}
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\\n\\n")
        self.wfile.write(b"data: [DONE]\\n\\n")

HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Answers).serve_forever()
"""
SMALL = ["--first", "40", "--turn", "6", "--answer", "4", "--turns", "3"]


def fake(path: Path, status: int = 200) -> str:
    path.write_text(SERVER.format(python=sys.executable, status=status))
    path.chmod(0o755)
    return str(path)


def rows(text: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in text.splitlines()[2:]]


def test_only_what_is_new_is_computed(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare_turns.main(SMALL) == 0
    first, *later = [int(row[1]) for row in rows(capsys.readouterr().out)]
    assert first == 40 and len(later) == 2
    assert all(6 <= n <= 8 for n in later)


def test_beside_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = fake(tmp_path / "server")
    assert compare_turns.main([*SMALL, "--server", server, "--edit", "2"]) == 0
    found = rows(capsys.readouterr().out)
    assert [int(row[3]) for row in found] == [40, 50, 56]  # the third without half of the answers
    assert all(row[5].startswith("x") for row in found)


def test_a_server_that_refuses(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="llama-server: 500"):
        compare_turns.main([*SMALL, "--server", fake(tmp_path / "server", 500)])
    gone = tmp_path / "gone"
    gone.write_text(f"#!{sys.executable}\nraise SystemExit(1)\n")
    gone.chmod(0o755)
    with pytest.raises(RuntimeError, match="does not start"):
        compare_turns.main([*SMALL, "--server", str(gone)])
