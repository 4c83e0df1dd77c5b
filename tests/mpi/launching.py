"""Commands on several ranks of this machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ROOT, clean_environment

TIMEOUT = 180


def launcher() -> str:
    """mpiexec of this environment; the test is skipped where there is none."""
    pytest.importorskip("mpi4py", reason="needs mpi4py")
    found = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip("needs mpiexec: pip install 'llama-py[mpi]'")
    return found


def on_ranks(n: int, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A command on n ranks, run to its end."""
    with started(n, *command, **env) as process:
        out, err = process.communicate(timeout=TIMEOUT)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def started(n: int, *command: str, **env: str) -> subprocess.Popen[str]:
    how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        [launcher(), "-n", str(n), sys.executable, *command], cwd=ROOT,
        stdin=subprocess.DEVNULL, env={**clean_environment(), **env}, **how,
    )  # fmt: skip
