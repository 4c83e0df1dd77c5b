"""llama_py/params/README.md: the one field of the guide is an option of every command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

from tests.support.commands import DEMO, SCRIPTS, clean_environment
from tests.support.limits import SECONDS

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "llama_py" / "params" / "README.md"
FILE = "llama_py/params/__init__.py"
COMMANDS = (
    "cli",
    "cli warmup",
    "debug",
    "graph dump",
    "graph read",
    "graph view",
    "graph diff",
    "graph profile",
    "graph placement",
    "graph fit",
    "imatrix",
    "embedding",
    "perplexity",
    "cvector-generator",
    "server",
    "mcp",
)
VARIABLE = "LLAMA_ARG_PAGES"

OPEN = """
import sys

import llama_py
from llama_py_tools.measure import debug
from llama_py_tools.models import session

args = debug.parser().parse_args(["-dev", "null", *sys.argv[2:]])
model = llama_py.load(sys.argv[1], "null")
model.context = lambda **given: print({k: given[k] for k in ("n_pages", "n_batch", "n_ubatch")})
session.open_context(args, model, n_batch=3)
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with the guide's field in ContextParams."""
    folder, ignored = tmp_path_factory.mktemp("tree"), shutil.ignore_patterns("__pycache__")
    apps = ROOT / "apps"
    for source in (ROOT / "llama_py", apps / "llama_py_tools", apps / "llama_py_server"):
        shutil.copytree(source, folder / source.name, ignore=ignored)
    (field,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S)
    before, start, after = (
        (folder / FILE).read_text().partition("\n    n_ctx: int | None = option(")
    )
    (folder / FILE).write_text(f"{before}\n{indent(field, ' ' * 4)}{start[1:]}{after}")
    return folder


def run(tree: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    paths = [str(tree), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = clean_environment() | {"PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "100"}
    return subprocess.run(
        command,
        cwd=tree,
        env=env | variables,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def start(tree: Path, command: str, *args: str, **variables: str) -> tuple[int, str]:
    """A command's exit code, and what it says, words with one space between them."""
    name, *sub = command.split()
    words = ["llama-py", name] if name == "mcp" else [f"llama-py-{name}"]
    done = run(tree, str(SCRIPTS / words[0]), *words[1:], *sub, *args, **variables)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_have_it(tree: Path, command: str) -> None:
    code, told = start(tree, command, "--help", "all")
    assert code == 0
    assert f"-npg, --n-pages N number of pages (default: 7) [{VARIABLE}]" in told
    wrong = "argument -npg/--n-pages: must be an integer in [1, 9], got"
    code, told = start(tree, command, "-npg", "10")
    assert (code, f"{wrong} 10" in told) == (2, True), told
    code, told = start(tree, command, **{VARIABLE: "0"})
    assert (code, f"{wrong} 0" in told) == (2, True), told


@pytest.mark.parametrize(
    ("variables", "flags", "expected"),
    [({}, [], 7), ({VARIABLE: "8"}, [], 8), ({VARIABLE: "8"}, ["-npg", "9"], 9)],
)
def test_contexts_get_it(
    tree: Path, variables: dict[str, str], flags: list[str], expected: int
) -> None:
    done = run(tree, sys.executable, "-c", OPEN, str(DEMO), *flags, **variables)
    given = f"{{'n_pages': {expected}, 'n_batch': 3, 'n_ubatch': 512}}"
    assert done.stdout.strip() == given, done.stderr


def test_python_has_it(tree: Path) -> None:
    code = "from llama_py import ContextParams as P; print(P.__doc__, P().n_pages); P(n_pages=0)"
    done = run(tree, sys.executable, "-c", code)
    assert re.search(r"^n_pages +number of pages\n", done.stdout, re.M), done.stdout
    assert done.stdout.endswith(" 7\n")
    assert "ContextError: n_pages must be an integer in [1, 9], got 0" in done.stderr


def test_the_table_has_it(tree: Path) -> None:
    """By the guide's last command."""
    (command,) = re.findall(r"`(python -m \S+) > docs/options\.md`", GUIDE.read_text())
    done = run(tree, sys.executable, *command.split()[1:])
    lines = done.stdout.splitlines()
    row = f"| `-npg`, `--n-pages` | `{VARIABLE}` | `7` | number of pages |  |"
    at = lines.index(row)  # its commands are above the table, for the whole class
    above = next(line for line in reversed(lines[:at]) if line.startswith("Commands: "))
    assert above == f"Commands: {', '.join(COMMANDS)}"
