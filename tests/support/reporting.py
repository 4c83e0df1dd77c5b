"""Output of a test run: kernels while they are compiled, and failures when they happen.

With xdist all this is done by the controller, before it distributes tests.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

import pytest

from ggml_py.machine import building
from ggml_py.machine.building import BuildStage

MANY = 1000  # tests; a few of them need a few kernels only
EVERY = 5.0  # seconds between two lines


class CompileProgress:
    """Display of kernels that are compiled, on pytest's terminal: a line now and then."""

    def __init__(self, reporter: Any, clock: Callable[[], float] = monotonic) -> None:
        self.reporter, self.clock = reporter, clock
        self.start = clock()
        self.stage = BuildStage(0, 0)
        self.ends = threading.Event()

    def __call__(self, stage: BuildStage) -> None:
        first = not self.stage.total
        if stage.stopped or not stage.total:
            return
        self.stage = stage
        if first:
            self.write()
        if stage.done == stage.total:
            seconds = self.clock() - self.start
            self.reporter.write_line(f"compiled {stage.total} kernels in {seconds:.0f} s")
            self.reporter.flush()

    def write(self) -> None:
        s = self.stage
        if s.done < s.total:
            name = f", last {s.name}" if s.name else ""
            seconds = self.clock() - self.start
            text = f"compiling kernels: {s.done} of {s.total} after {seconds:.0f} s{name}"
            self.reporter.write_line(text)
            self.reporter.flush()

    def repeat(self) -> None:
        """Write how far it is until `ends` is set: the first kernels take long."""
        while not self.ends.wait(EVERY):
            self.write()


def compile_kernels(reporter: Any) -> None:
    """Compile all kernels that are not cached: in parallel, instead of one by one in tests."""
    import ggml_cpu.repack  # noqa: F401  (declares kernels)
    from ggml_cpu.compile import compile_kernels
    from ggml_cpu.fused import fusions
    from ggml_cpu.store import STORE
    from ggml_cpu.table import every_kernel

    fusions()
    kernels = [k for k in every_kernel() if k.module.startswith("ggml_cpu.")]
    cached = STORE.read(kernels)
    display = CompileProgress(reporter)
    repeats = threading.Thread(target=display.repeat, daemon=True)
    with building.send_progress(display), building.building():
        repeats.start()
        try:
            compile_kernels([k for k in kernels if k not in cached])
        finally:
            display.ends.set()
            repeats.join()


class RunReporter:
    """Hooks of the process that has the terminal."""

    def __init__(
        self,
        config: pytest.Config,
        compile: Callable[[Any], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.config, self.compile = config, compile
        self.compiled = config.option.collectonly
        self.collected, self.clock = 0, clock
        self.next_line = clock() + EVERY

    @property
    def reporter(self) -> Any:
        """The terminal's plugin, which is registered last; None if it is turned off."""
        return self.config.pluginmanager.get_plugin("terminalreporter")

    def _compile_once(self) -> None:
        if not self.compiled and self.reporter is not None:
            self.compiled = True
            self.compile(self.reporter)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        """Compile before tests are collected if all of them will run."""
        how = self.config.option
        partial = how.keyword or getattr(how, "lf", False) or getattr(how, "stepwise", False)
        if self.config.args_source is pytest.Config.ArgsSource.TESTPATHS and not partial:
            self._compile_once()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write how many tests are collected, now and then; pytest does so on a terminal only."""
        self.collected += sum(isinstance(one, pytest.Item) for one in report.result)
        reporter = self.reporter
        if reporter is not None and not reporter.isatty and self.clock() >= self.next_line:
            self.next_line = self.clock() + EVERY
            reporter.write_line(f"collecting: {self.collected} tests")
            reporter.flush()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if len(session.items) >= MANY:
            self._compile_once()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        if len(ids) >= MANY:
            self._compile_once()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the name of a test when it fails; with -v pytest itself does."""
        if report.failed and self.reporter is not None and self.config.option.verbose <= 0:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = crash.message.splitlines()[0] if crash and crash.message else report.when
            self.reporter.write(f"\nFAILED {report.nodeid} - {why}\n", red=True)  # after its letter
            self.reporter.flush()


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return
    config.pluginmanager.register(RunReporter(config, compile_kernels), "run-reporter")
    if getattr(config.option, "numprocesses", None):
        with suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGTERM, _interrupt)  # ends with a summary, like Ctrl-C


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
