"""backends/README.md: somebody else's backend, found by its entry point, judged by our command."""

from __future__ import annotations

import os
import re
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.support.commands import SCRIPTS, clean_environment
from tests.support.limits import SECONDS

ROOT = Path(__file__).parents[2]
TOY = ROOT / "tests" / "toy_backend"
GROUP = "ggml_py.backends"


def install(source: Path, site: Path) -> None:
    """What `pip install --no-deps --target site source` leaves there, without pip and network."""
    project = ConfigParser()
    project.read(source / "pyproject.toml")
    name, version = (project["project"][key].strip('"') for key in ("name", "version"))
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    points = project[f'project.entry-points."{GROUP}"']
    lines = [f"{key} = {value.strip(chr(34))}" for key, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))
    for path in (source / "ggml_toy").glob("*.py"):
        target = site / "ggml_toy" / path.name
        target.parent.mkdir(exist_ok=True)
        target.write_text(path.read_text())


@pytest.fixture
def site(tmp_path: Path) -> Path:
    install(TOY, tmp_path / "site")
    return tmp_path / "site"


def run(site: Path, name: str, *args: str) -> subprocess.CompletedProcess[str]:
    """A console script with the installed packages in reach."""
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = clean_environment() | {"PYTHONPATH": os.pathsep.join(paths)}
    command = [str(SCRIPTS / name), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=env)


def test_it_is_listed(site: Path) -> None:
    done = run(site, "llama-py-cli", "--list-devices")
    assert "toy: adds numbers" in done.stdout.splitlines(), done


def test_its_op_passes_and_the_others_are_refused_with_a_reason(site: Path) -> None:
    done = run(site, "test-backend-ops", "-b", "toy", "-o", "ADD,MUL,RMS_NORM")
    assert done.returncode == 0, done.stdout + done.stderr
    text = re.sub("\x1b\\[[0-9;]*m", "", done.stdout)
    cases = [line.strip() for line in text.splitlines() if re.match(r" *[A-Z_]+\(", line)]
    passed = [line for line in cases if line.endswith(": OK")]
    refused = [line for line in cases if "not supported" in line]
    assert len(passed) > 10
    assert all(line.startswith("ADD(") for line in passed)
    assert len(passed) + len(refused) == len(cases)
    for line in refused:
        assert ("needs f32; got" if line.startswith("ADD(") else "no kernel for") in line, line
    assert {line.split("(")[0] for line in refused} >= {"MUL", "RMS_NORM"}


def subtract(site: Path) -> None:
    """Make its one op wrong, in a file of another size: compiled modules know their source by that
    and by the second in which it was written."""
    module = site / "ggml_toy" / "__init__.py"
    right = module.read_text()
    wrong = right.replace("a + np.tile(b, times)", "a - 2 * np.tile(b, times)")
    assert wrong != right
    module.write_text(wrong)


def test_a_wrong_result_is_found(site: Path) -> None:
    subtract(site)
    done = run(site, "test-backend-ops", "-b", "toy", "-o", "ADD")
    assert done.returncode == 1, done.stdout
    assert "FAIL" in done.stdout


def test_a_model_runs_on_it_and_the_cpu(site: Path) -> None:
    options = ("-p", "ROMEO:", "-n", "8", "--temp", "0")
    both, cpu = (run(site, "llama-py-cli", "-dev", name, *options) for name in ("toy", "cpu"))
    assert both.returncode == 0, both.stderr
    assert both.stdout == cpu.stdout != ""
    subtract(site)
    assert run(site, "llama-py-cli", "-dev", "toy", *options).stdout != cpu.stdout


def test_a_backend_that_does_not_load_is_named(site: Path) -> None:
    (site / "ggml_toy" / "__init__.py").write_text("raise RuntimeError('no such card')\n")
    done = run(site, "test-backend-ops", "-b", "toy", "-o", "ADD")
    assert (done.returncode, done.stdout) == (1, "")
    assert "'toy' (ggml_toy:devices) failed to load: no such card" in done.stderr


def test_the_guide_has_every_protocol() -> None:
    files = (ROOT / "ggml_py" / "backend").glob("*.py")
    homes = {
        protocol: path.name
        for path in files
        for protocol in re.findall(r"^class (\w+)\(Protocol\):", path.read_text("utf-8"), re.M)
    }
    table = (ROOT / "backends" / "README.md").read_text(encoding="utf-8").split("## Protocols")[1]
    rows = re.findall(r"^\| (`.*?) \| \[(\w+\.py)\]", table.split("\n## ")[0], re.M)
    assert {name: file for row, file in rows for name in re.findall(r"`(\w+)`", row)} == homes
