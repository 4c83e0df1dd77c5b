"""What is shown while kernels are compiled, and where."""

from __future__ import annotations

import io
import subprocess
import sys
import threading

import pytest

from ggml_py.machine import building
from ggml_py.machine.building import BuildStage
from llama_py.support import progress
from llama_py.support.progress import Kernels, show_progress
from tests.support.limits import SECONDS


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """What is shown from now on; of a fixture's, pytest would make a pipe again."""
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setattr(progress, "TICK", 1000.0)
    monkeypatch.setattr(progress, "KERNELS", Kernels())
    assert isinstance(sys.stderr, Terminal)
    return sys.stderr


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [50.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    return now


def test_a_bar_that_counts_all(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Three kernels before it is known that four follow."""
    terminal = terminal_of(monkeypatch)
    display = Kernels()
    told = [BuildStage(0, 0), BuildStage(3, 0, "c"), BuildStage(0, 4), BuildStage(1, 4, "d")]
    texts = []
    for stage in told:
        now[0] += 1.0
        display(stage)
        texts.append(display.text().removeprefix("compiling kernels, first use only"))
    assert texts == [
        " ...",
        ": 3 so far",
        ": 3 of 7 |######          | 2 s",
        ": 4 of 7 |#########       | 3 s",
    ]
    now[0] += 2.0
    assert display.text().endswith("| 5 s")
    display(BuildStage(4, 4, "g"))
    assert terminal.getvalue().endswith("\r") and "4 of 7" in terminal.getvalue()
    display(BuildStage(0, 2))  # another model
    assert ": 0 of 2" in display.text()
    display.close()


def test_lines_elsewhere(
    now: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[str] = []
    display = Kernels(elsewhere=lines.append)
    for second in range(15):
        display(BuildStage(second, 15, "k"))
        now[0] += 1.0
    display(BuildStage(15, 15, "k"))
    assert [line.split(": ")[1].split(" |")[0] for line in lines] == ["2 of 15", "12 of 15"]
    assert capsys.readouterr().err == ""


def building_kernels() -> None:
    for done in range(3):
        building.tell(BuildStage(done, 2, "k"))


def test_python_shows_it_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with show_progress(None):
        building_kernels()
    assert "first use only: 1 of 2" in terminal.getvalue()
    assert not building.is_told()


def test_an_interrupt_ends_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread may be about to draw: nothing comes after what is written next."""
    terminal = terminal_of(monkeypatch)
    monkeypatch.setattr(progress, "TICK", 0.0)
    display, ticks, tick = Kernels(), [], Kernels._tick

    def ticked(self: Kernels, ends: threading.Event) -> None:
        ticks.append(threading.current_thread())
        tick(self, ends)

    monkeypatch.setattr(Kernels, "_tick", ticked)
    with building.send_progress(display), pytest.raises(KeyboardInterrupt), building.building():
        building.tell(BuildStage(1, 4, "k"))
        raise KeyboardInterrupt
    terminal.write("> ")
    ticks[0].join(SECONDS)
    assert not ticks[0].is_alive()
    assert "1 of 4" in terminal.getvalue() and terminal.getvalue().endswith("\r> ")
    display.close()


@pytest.mark.parametrize("given", [False, lambda done, total, what: None])
def test_python_can_be_told_not_to(given: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with show_progress(given):
        building_kernels()
    assert terminal.getvalue() == ""


def test_who_is_told_already_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    stages: list[BuildStage] = []
    with building.send_progress(stages.append), show_progress(None):
        building_kernels()
    assert len(stages) == 3 and terminal.getvalue() == ""


def test_nothing_is_shown_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress(None):
        assert not building.is_told()
        building_kernels()
    assert capsys.readouterr().err == ""


def test_where_there_is_no_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed):
        monkeypatch.setattr("sys.stderr", stream)
        assert not progress.on_terminal()
        progress.LINE.draw("nobody sees it")
        progress.LINE.wipe()


def test_without_a_terminal() -> None:
    """No line and no warning."""
    code = "import sys, llama_py; llama_py.load().context(32).decode([1])"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=SECONDS
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_building_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(building, "perf_counter", lambda: now[0])
    before, start = building.seconds(), building.clock()
    now[0] += 1.0
    with building.building():
        now[0] += 10.0
        with building.building():
            now[0] += 20.0
    assert building.seconds() - before == 30.0
    assert building.clock() - start == 1.0
