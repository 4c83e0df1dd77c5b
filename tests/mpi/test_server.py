"""A server over ranks: the same answers, and what becomes of it when one is lost."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from llama_py_server.models.fitting import check_fits
from llama_py_server.models.loss import Loss
from llama_py_server.wire.errors import HTTPError
from llama_py_tools.command.supervisor import remove_rank
from tests.mpi.launching import TIMEOUT, launcher
from tests.mpi.test_ranks import rank_of
from tests.server.served import events
from tests.support.commands import DEMO, SCRIPTS, clean_environment, run

ASK = {"prompt": "ROMEO: what is it that you say", "n_predict": 12, "temperature": 0}


@contextmanager
def serving(*flags: str) -> Iterator[subprocess.Popen[str]]:
    """A server that is a command of its own, at a port that is free."""
    launcher()
    process = subprocess.Popen(
        [str(SCRIPTS / "llama-py-server"), "--port", "0", "--no-warmup", *flags],
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(TIMEOUT)


def client_of(lines: list[str]) -> httpx.Client:
    """Make a client of a server that says in one of these lines where it listens."""
    said = next(line for line in lines if line.startswith("listening on "))
    return httpx.Client(base_url=said.split()[2], timeout=TIMEOUT)


def until(process: subprocess.Popen[str], what: str) -> list[str]:
    """Lines of stderr up to one that begins so."""
    assert process.stderr is not None
    found = []
    for line in process.stderr:
        found.append(line)
        if line.startswith(what):
            return found
    raise AssertionError("".join(found))


def said(client: httpx.Client, **more: Any) -> dict[str, Any]:
    found = client.post("/completion", json={**ASK, **more})
    assert found.status_code == 200, found.text
    return dict(found.json())


def test_a_server_goes_on_without_a_rank_that_was_killed(tmp_path: Path) -> None:
    alone = run("llama-py-cli", "-p", ASK["prompt"], "-n", "12", "--temp", "0", "-no-cnv").stdout
    flags = ("--hosts", "localhost:2", "-np", "2", "-c", "8192", "--slot-save-path", str(tmp_path))
    with serving(*flags) as process, client_of(until(process, "ready: demo")) as client:
        first = said(client, id_slot=0)
        assert alone.strip().endswith(first["content"].strip())
        kept = client.post("/slots/0?action=save", json={"filename": "kept"}).json()["n_saved"]
        endless = {**ASK, "n_predict": -1, "ignore_eos": True, "stream": True}
        with client.stream("POST", "/completion", json=endless) as answer:
            parts = answer.iter_text()
            next(parts)
            rank_of(process, 1).kill()
            text = "".join(parts)
            refused = client.post("/completion", json=ASK)
        assert events(text)[-1][1]["error"]["code"] == 503, text[-300:]
        assert "rank 1 on" in events(text)[-1][1]["error"]["message"]
        assert refused.status_code == 503 and "rank 1 on" in refused.json()["error"]["message"]
        lines = until(process, "ready: demo")
        assert sum(line.startswith("error: rank 1 on ") for line in lines) == 1
        assert "restarting with localhost:1\n" in lines
        with client_of(lines) as client:
            back = client.post("/slots/1?action=restore", json={"filename": "kept"}).json()
            assert back["n_restored"] == kept
            again = said(client, id_slot=1)
        assert again["content"] == first["content"] and again["timings"]["cache_n"] > 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 0


@pytest.mark.parametrize("moment", ["its ranks are there", "it listens"])
def test_a_stop_while_it_starts_is_one_line_and_one_code(moment: str) -> None:
    """However each of its processes ends; unless it was ready before the signal came."""
    with serving("--hosts", "localhost:2") as process:
        if moment == "it listens":
            until(process, "listening on")
        else:
            rank_of(process, 1)
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=TIMEOUT)
    lines = [line for line in told.splitlines() if not line.startswith("listening on")]
    if any(line.startswith("ready: ") for line in lines):
        assert process.returncode == 0 and "error" not in told
    else:
        assert (process.returncode, lines[-1:]) == (
            128 + signal.SIGTERM,
            ["SIGTERM during start; all ranks ended"],
        )
        assert all(line.startswith("rank ") and "weights" in line for line in lines[:-1]), told


def test_who_is_left() -> None:
    hosts = [("a", 2), ("b", 1), ("c", 2)]
    assert remove_rank(hosts, 0, False) == remove_rank(hosts, 0, True) == hosts
    assert remove_rank(hosts, 1, True) == [("a", 1), ("b", 1), ("c", 2)]
    assert remove_rank(hosts, 2, False) == [("a", 2), ("c", 2)]
    assert remove_rank(hosts, 4, False) == [("a", 2), ("b", 1), ("c", 1)]
    assert remove_rank(hosts, 3, True) == [("a", 2), ("b", 1)]


class _Has:
    """A device with so much memory free."""

    def __init__(self, free: int) -> None:
        self.free = free

    def memory(self) -> tuple[int, int]:
        return self.free, self.free


def test_a_model_that_is_larger_than_what_is_left_is_refused() -> None:
    size = DEMO.stat().st_size
    check_fits(str(DEMO), [_Has(size)])  # type: ignore[list-item]
    with pytest.raises(Exception, match="use more ranks or a smaller model"):
        check_fits(str(DEMO), [_Has(size - 1), _Has(size - 1)])  # type: ignore[list-item]


def test_nothing_is_begun_after_a_loss() -> None:
    loss = Loss()
    loss.check()
    loss.error = HTTPError("unavailable_error", "rank 1 on b has ended")
    with pytest.raises(HTTPError):
        loss.check()
