"""Progress: nothing for short work, lines where there is no terminal, a bar where there is one."""

from __future__ import annotations

import io

import pytest

from llama_py_tools.command import progress
from llama_py_tools.command.progress import Progress


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "monotonic", clock)
    return clock


def work(clock: Clock, seconds: float, steps: int) -> None:
    shows = Progress("loading")
    for i in range(steps + 1):
        shows(i, steps, f"part {i}")
        clock.now += seconds / steps


def test_lines_after_two_seconds(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work(clock, 1.9, 10)
    assert capsys.readouterr().err == ""
    work(clock, 20, 20)
    assert capsys.readouterr().err == "loading: 10% part 2\nloading: 60% part 12\n"


def test_a_bar_on_a_terminal(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    work(clock, 0.4, 10)
    assert terminal.getvalue() == ""
    work(clock, 2, 10)
    assert "loading:" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r")
