"""Commands on several ranks of this machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.commands import ROOT, clean_environment
from tests.support.limits import SECONDS

TIMEOUT = SECONDS


def launcher() -> str:
    """mpiexec of this environment; the test is skipped where there is none."""
    pytest.importorskip("mpi4py", reason="needs mpi4py")
    found = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip("needs mpiexec: pip install '.[mpi]'")
    return found


def on_ranks(n: int, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A command on n ranks, run to its end."""
    with started(n, *command, **env) as process:
        return ended(process)


def ended(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """What a command was that has been started, at its end."""
    try:
        out, err = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        end(process)
        out, err = process.communicate()
        raise AssertionError(f"{process.args} does not end; it said\n{out}{err}") from None
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def end(process: subprocess.Popen[str]) -> None:
    """A launcher, and all that it has started: these do not end with it."""
    all_ = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    for one in all_:
        with suppress(psutil.Error):
            one.kill()
    psutil.wait_procs(all_[:-1], timeout=SECONDS)


def started(n: int, *command: str, **env: str) -> subprocess.Popen[str]:
    how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        [launcher(), "-n", str(n), sys.executable, *command],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        env={**clean_environment(), **env},
        **how,
    )
