"""A test run shows what it does: kernels, names of failures, a summary after an interrupt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ggml_cpu import compile
from ggml_cpu.store import STORE
from ggml_py.machine import building
from ggml_py.machine.building import BuildStage
from tests.support import reporting
from tests.support.commands import ROOT, heed_interrupts
from tests.support.limits import SECONDS
from tests.support.reporting import MANY, CompileProgress, RunReporter

TESTS = """
import os, time
from pathlib import Path

def test_good():
    pass

def test_bad():
    assert 1 == 2, "not equal"

def test_slow():
    Path("begun").touch()
    while not Path("end").exists():
        time.sleep(0.05)
"""
CONFTEST = "from tests.support.reporting import pytest_configure\n"


class Terminal:
    """What pytest's terminal reporter does with lines."""

    isatty = False

    def __init__(self) -> None:
        self.lines = list[str]()

    def write_line(self, text: str) -> None:
        self.lines.append(text)

    def flush(self) -> None: ...


def test_kernels_are_counted_from_the_first_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now, terminal = [100.0], Terminal()
    display = CompileProgress(terminal, lambda: now[0])
    for done in range(3):
        display(BuildStage(done, 2, f"kernel{done}" if done else ""))
        now[0] += 2.0
        display.write()
    assert terminal.lines == [
        "compiling kernels: 0 of 2 after 0 s",
        "compiling kernels: 0 of 2 after 2 s",
        "compiling kernels: 1 of 2 after 4 s, last kernel1",
        "compiled 2 kernels in 4 s",
    ]
    monkeypatch.setattr(reporting, "EVERY", 0.0)
    display.ends.set()
    display.repeat()


def test_missing_kernels_are_compiled_with_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def compiled(kernels: Any) -> None:
        asked.extend(k.name for k in kernels)
        building.tell(BuildStage(0, len(asked)))

    terminal = Terminal()
    monkeypatch.setattr(STORE, "read", lambda kernels: {k: b"" for k in kernels[3:]})
    monkeypatch.setattr(compile, "compile_kernels", compiled)
    reporting.compile_kernels(terminal)
    assert len(asked) == 3 and terminal.lines[0].startswith("compiling kernels: 0 of 3")


SOURCES = pytest.Config.ArgsSource
NONE: dict[str, Any] = {"collectonly": False, "keyword": "", "verbose": 0}


@pytest.mark.parametrize(
    ("source", "options", "n_tests", "expected"),
    [
        (SOURCES.TESTPATHS, {}, 5, "start"),
        (SOURCES.TESTPATHS, {"keyword": "x"}, 5, ""),
        (SOURCES.ARGS, {}, MANY, "collected"),
        (SOURCES.ARGS, {}, MANY - 1, ""),
        (SOURCES.TESTPATHS, {"collectonly": True}, MANY, ""),
    ],
)
@pytest.mark.parametrize("xdist", [False, True])
def test_kernels_are_compiled_once_before_many_tests(
    source: Any, options: dict[str, Any], n_tests: int, expected: str, xdist: bool
) -> None:
    when: list[str] = []
    plugins = SimpleNamespace(get_plugin=lambda name: Terminal())
    config: Any = SimpleNamespace(
        option=SimpleNamespace(**{**NONE, **options}), args_source=source, pluginmanager=plugins
    )
    run = RunReporter(config, lambda reporter: when.append(stage))
    stage = "start"
    run.pytest_sessionstart()
    stage = "collected"
    for _ in range(2):  # workers
        if xdist:
            run.pytest_xdist_node_collection_finished(["x"] * n_tests)
        else:
            session: Any = SimpleNamespace(items=["x"] * n_tests)
            run.pytest_collection_finish(session)
    assert when == ([expected] if expected else [])


def test_collected_tests_are_counted_now_and_then() -> None:
    now, terminal = [0.0], Terminal()
    plugins = SimpleNamespace(get_plugin=lambda name: terminal)
    config: Any = SimpleNamespace(option=SimpleNamespace(**NONE), pluginmanager=plugins)
    run = RunReporter(config, lambda reporter: None, lambda: now[0])
    item = object.__new__(pytest.Function)
    report: Any = SimpleNamespace(result=[item, item, object()])
    for now[0] in (1.0, 6.0, 7.0, 12.0):
        run.pytest_collectreport(report)
    assert terminal.lines == ["collecting: 4 tests", "collecting: 8 tests"]


@pytest.mark.skipif(sys.platform == "win32", reason="sends signals")
@pytest.mark.parametrize("how", [signal.SIGTERM, None])
def test_failures_are_named_at_once_and_after_an_interrupt(
    tmp_path: Path, how: signal.Signals | None
) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    how_to_run = ("-n", "1", "-p", "no:cacheprovider", "--rootdir", ".")
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", *how_to_run, "test_some.py"],
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        preexec_fn=heed_interrupts,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "-rfE"},
    )
    assert run.stdout is not None
    named = next(line for line in run.stdout if line.startswith("FAILED"))
    assert named == "FAILED test_some.py::test_bad - AssertionError: not equal\n"
    assert run.poll() is None  # test_slow runs, or is about to
    if how is None:
        (tmp_path / "end").touch()
    else:
        run.send_signal(how)
    rest = run.communicate(timeout=SECONDS)[0]
    (tmp_path / "end").touch()
    assert run.returncode == (1 if how is None else 2)
    assert "short test summary info" in rest and "FAILED test_some.py::test_bad" in rest
