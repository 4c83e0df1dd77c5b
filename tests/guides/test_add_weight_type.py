"""The guide in backends/ggml_cpu/quants/README.md: its files, and only these, add a type."""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import subprocess
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.commands import SCRIPTS, clean_environment
from tests.support.installed import devices_or_skip
from tests.support.limits import SECONDS

GUIDE = Path(__file__).parents[2] / "backends" / "ggml_cpu" / "quants" / "README.md"
PACKAGES = ("ggml_py", "ggml_ref", "ggml_cpu", "ggml_opencl", "llama_py_tools")
NAME = "t4_0"
OPS = ("MUL_MAT", "GET_ROWS", "CPY")


def step(text: str, number: int) -> tuple[str, str]:
    """The file that a step of the guide is about, and its code."""
    part = text.split(f"\n{number}. ")[1]
    path, code = re.search(r"`([\w/.]+)`.*?```\w+\n(.*?)\n   ```", part, re.S).groups()
    return path.removeprefix("backends/"), dedent(code) + "\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages, with the type of the guide."""
    folder = tmp_path_factory.mktemp("site")
    for package in PACKAGES:
        found = find_spec(package)
        assert found is not None and found.origin is not None
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(found.origin).parent, folder / package, ignore=ignored)
    text = GUIDE.read_text()
    table, row = step(text, 1)
    before = (folder / table).read_text()
    (folder / table).write_text(before.replace("_TABLE = (\n", f"_TABLE = (\n    {row}"))
    for number in (2, 3, 4):
        path, code = step(text, number)
        assert not (folder / path).exists()
        (folder / path).write_text(code)
    return folder


def run(site: Path, *args: str) -> list[dict[str, str]]:
    """The rows that test-backend-ops prints about cases of the type."""
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = clean_environment() | {"PYTHONPATH": os.pathsep.join(paths)}
    command = [str(SCRIPTS / "test-backend-ops"), *args, "-p", NAME, "--output", "csv"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return list(csv.DictReader(io.StringIO(done.stdout)))


@pytest.mark.parametrize("backend", ["ref", "cpu", "opencl"])
def test_it_is_in_the_cases_and_passes(site: Path, backend: str) -> None:
    devices_or_skip(backend)
    rows = run(site, "-b", backend, "-o", ",".join(OPS))
    passed = Counter(row["op_name"] for row in rows if row["supported"] == "1")
    assert set(passed) == set(OPS)
    assert all(row["error_message"] == "" for row in rows if row["supported"] == "1")


def test_every_backend_takes_it(site: Path) -> None:
    for backend in ("ref", "cpu", "opencl"):
        rows = run(site, "support", "-b", backend, "-o", "MUL_MAT,MUL_MAT_ID,GET_ROWS")
        taken = {row["op_name"]: row["supported"] for row in rows}
        assert taken == dict.fromkeys(("MUL_MAT", "MUL_MAT_ID", "GET_ROWS"), "1"), backend
