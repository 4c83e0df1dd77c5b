"""The workflow for GitHub: what it calls is here, and it shares nothing that it should not."""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ggml_py.ops.registry import OPS
from llama_py_tools.test_backend_ops.main import parse

ROOT = Path(__file__).parents[2]
FILE = ROOT / ".github" / "workflows" / "ci.yml"
TEXT = FILE.read_text("utf-8")
SCRIPTS_OF_CI = (".ci/run", ".ci/quick", ".ci/parity")
JOBS: dict[str, Any] = yaml.safe_load(TEXT)["jobs"]
SCRIPTS = re.findall(r'^([\w-]+) = "llama_py_tools', (ROOT / "pyproject.toml").read_text(), re.M)


def steps() -> Iterator[dict[str, Any]]:
    for job in JOBS.values():
        yield from job["steps"]


def commands(script: str) -> list[list[str]]:
    """The words of each command of a shell script."""
    lines = script.replace("\\\n", " ").splitlines()
    return list(filter(None, (shlex.split(line, comments=True) for line in lines)))


def test_it_calls_what_is_here() -> None:
    called = [words for step in steps() if "run" in step for words in commands(step["run"])]
    assert called
    for program, *words in called:
        if program == "python":
            assert words[:3] == ["-m", "pip", "install"]
            assert set(re.findall(r"[\w./]+\.py", " ".join(words))) <= {".ci/oldest_numba.py"}
        else:
            assert (ROOT / program).stat().st_mode & 0o111 and program in SCRIPTS_OF_CI
    extras = set(re.findall(r"\.\[([\w,]+)\]", " ".join(map(" ".join, called))))
    assert extras == {"test", "test,parity"}


def test_the_quick_selection_is_here() -> None:
    called = {words[0]: words[1:] for words in commands((ROOT / ".ci/quick").read_text("utf-8"))}
    assert {name for name in called if name not in ("set", "cd", "pytest")} <= {*SCRIPTS}
    tests = [word for word in called["pytest"] if not word.startswith("-")]
    assert len(tests) > 5 and all((ROOT / path).exists() for path in tests)
    options = parse(called["test-backend-ops"])
    assert options.ops is not None and {*options.ops.split(",")} <= OPS.keys()
    assert options.backend == "cpu"


def test_every_system_and_both_ends_of_numba() -> None:
    matrix = JOBS["quick"]["strategy"]["matrix"]
    kinds = {re.sub(r"[\d.]+", "", os) for os in matrix["os"]}
    assert kinds == {"ubuntu-", "ubuntu--arm", "macos-", "macos--intel", "windows-"}
    numbas = {*matrix["numba"], *(more["numba"] for more in matrix["include"])}
    assert numbas == {"oldest", "newest"}
    choices = [step["if"] for step in JOBS["quick"]["steps"] if "if" in step]
    assert choices == [f"matrix.numba == '{which}'" for which in ("newest", "oldest")]


def test_the_oldest_numba_is_that_of_the_project() -> None:
    requirement = runpy.run_path(str(ROOT / ".ci" / "oldest_numba.py"))["requirement"]
    assert re.fullmatch(r"numba==\d+\.\d+\.\*", requirement())
    assert requirement('dependencies = [\n    "numba>=0.61,<0.69",\n') == "numba==0.61.*"
    with pytest.raises(SystemExit, match="no dependency"):
        requirement('"numba"')


def test_nothing_is_secret_shared_or_moving() -> None:
    assert "\t" not in TEXT and "secrets." not in TEXT
    for step in steps():
        if "uses" in step:
            assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", step["uses"]), step
            assert not step["uses"].startswith("actions/cache")
    assert TEXT.count("persist-credentials: false") == TEXT.count("actions/checkout@")
