"""Settings and fixtures of all tests."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from importlib.util import find_spec

import pytest
from hypothesis import HealthCheck, settings

from tests.support.quick import pytest_ignore_collect, pytest_itemcollected  # noqa: F401  (hooks)
from tests.support.reporting import pytest_configure  # noqa: F401  (a hook)

# How long an example takes says nothing on a busy machine.
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("here")

# Beside other workers threads sleep at a barrier instead of spinning first: whom they wait for may
# need their core, and a token of a tiny model took ten times as long.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("LLAMA_PY_SPIN", "0")

# OpenCL kernels compile in a tenth of the time without optimization. tests/ops/test_cases.py has
# them as users have them.
os.environ.setdefault("PYOPENCL_BUILD_OPTIONS", "-cl-opt-disable")

# A shell's background job ignores SIGINT, and Python keeps that; tests of Ctrl-C send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Training has an extra of its own: without it, what it tests is not there.
collect_ignore = [] if find_spec("torch") else ["tools/test_demo_model.py"]


def pytest_report_header() -> list[str]:
    return [f"not collected: {path}, pip install -e '.[train]'" for path in collect_ignore]


def pytest_collection_finish() -> None:
    """Thousands of tests stay to the end: the garbage collector need not look through them."""
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What did not run, counted by the reason."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    if reasons:
        terminalreporter.section("not run")
    for reason, n in reasons.most_common():
        terminalreporter.write_line(f"{n:6} {reason}")


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a device reads and computes is measured with little, which takes no time."""
    from llama_py_tools.bench import roofline

    monkeypatch.setattr(roofline, "STREAM", (256, 64))
    monkeypatch.setattr(roofline, "ARITHMETIC", (256, 64, 16))


@pytest.fixture
def checks_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grammars and arguments are checked in this process; each process would import llguidance or
    jsonschema again."""
    from llama_py.chat import arguments
    from llama_py.grammar import judge, trial

    monkeypatch.setattr(trial, "SMALL", 1 << 20)
    monkeypatch.setattr(trial, "FEW", 1 << 20)
    monkeypatch.setattr(arguments, "problem", judge._problem)
