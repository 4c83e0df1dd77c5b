"""Commands and scripts of README and docs run offline with the demo model.

not_run.txt lists the other commands by reason. The list may only shrink: lower LIMIT with the list.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import PIL.Image
import pytest

from tests.support.commands import DEMO, ROOT, SCRIPTS, clean_environment, run, tiny_model
from tests.support.eyes import files_of
from tests.support.limits import SECONDS

LIMIT = 66  # entries of not_run.txt
GENERATED = {"options.md", "llama-completion.md", "architectures.md", "ops.md"}
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(p for p in sorted((ROOT / "docs").glob("*.md")) if p.name not in GENERATED),
]
FENCE = re.compile(r"^( *)```(\S*)([^\n]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
FAILS = re.compile(r"llama-py-gguf diff|llama-py-graph diff (a\.json|-m)")  # 1: files differ
# Output that depends on the machine, its files or its cache; only the exit code is compared.
MACHINE = re.compile(
    r"llama-py-cli (--list-devices|cache|warmup)|llama-py list$|ls$|llama-py-graph profile"
    r"|llama-py-bench --roofline"
)
DEVICE = re.compile(r"  Device |version: |$")
VERSE = "ROMEO: But soft, what light through yonder window breaks?\nIt is the east. " * 12


class Command(NamedTuple):
    """A command line, or a Python script by its first line, and the output that is shown."""

    page: str
    text: str
    shown: str = ""
    script: str = ""

    @property
    def name(self) -> str:
        return f"{self.page}: {self.text}"


def commands(page: Path) -> list[Command]:
    """The commands of a page, in their order."""
    name = page.relative_to(ROOT).as_posix()
    found: list[Command] = []
    for _, language, about, body in FENCE.findall(page.read_text("utf-8")):
        if language == "python" and ">>> " not in body and "title=" not in about:
            found.append(Command(name, f"python: {body.splitlines()[0]}", script=body))
        elif language == "console":
            parts = re.split(r"^\$ ", body, flags=re.MULTILINE)
            found += [_command(name, part) for part in parts[1:]]
        elif language in ("", "bash", "sh") and "──" not in body:
            lines = re.sub(r"\\\n *", "", body).splitlines()
            found += [_command(name, line) for line in lines if line.strip()]
    return found


def _command(page: str, text: str) -> Command:
    line, _, shown = text.replace("\\\n", " ").partition("\n")
    while line.count("'") % 2:  # text in quotes goes on
        more, _, shown = shown.partition("\n")
        line += f" {more}"
    line = re.sub(r"\s+# .*$", "", line)  # a comment after a command
    return Command(page, " ".join(line.split()), shown)


ALL = [command for page in PAGES for command in commands(page)]


def _not_run() -> dict[str, str]:
    """Commands that are not run, each with its reason."""
    text = Path(__file__).with_name("not_run.txt").read_text("utf-8")
    found: dict[str, str] = {}
    for part in text.split("\n\n"):
        reason, *names = part.strip().splitlines()
        assert reason.startswith("# "), reason
        for name in names:
            assert name not in found, f"twice: {name}"
            found[name] = reason[2:]
    return found


NOT_RUN = _not_run()
RUN = [command for command in ALL if command.name not in NOT_RUN]


def test_the_list_of_commands_that_are_not_run_gets_shorter() -> None:
    stale = NOT_RUN.keys() - {command.name for command in ALL}
    assert not stale, "remove them from not_run.txt"
    assert len(NOT_RUN) == LIMIT, "run a new command here; lower LIMIT after a removal"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that the commands name."""
    path = tmp_path_factory.mktemp("commands")
    for name in ("model.gguf", "demo.gguf", "x.gguf"):
        shutil.copy(DEMO, path / name)
    tiny_model(path).rename(path / "model-f16.gguf")
    words = ("set", str(path / "model.gguf"), "old.key:u32=1", "--in-place")
    assert run("llama-py-gguf", *words).returncode == 0
    (path / "play.txt").write_text(VERSE)
    (path / "text.txt").write_text(10 * VERSE)
    types = {"q4_k_m.gguf": "Q4_K_M", "demo-q4_k_m.gguf": "Q4_K_M", "q8_0.gguf": "Q8_0"}
    for name, type_ in types.items():
        words = ("quantize", "--allow-requantize", str(DEMO), str(path / name), type_)
        assert run("llama-py-gguf", *words).returncode == 0
    (path / ".config/fish/completions").mkdir(parents=True)
    (path / "joy.txt").write_text("I am glad\nI laugh\nWhat joy\nBe merry\n")
    (path / "grief.txt").write_text("I am sad\nI weep\nWhat woe\nBe sorry\n")
    return path


@pytest.fixture
def folder(files: Path, tmp_path: Path) -> Path:
    """Copies for one page: what one command writes, the next ones read."""
    return shutil.copytree(files, tmp_path / "page")


def _write_vision_model(folder: Path) -> None:
    text, encoder = files_of("gemma3", folder)
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    key = f"tokenizer.chat_template:str={template}"
    done = run("llama-py-gguf", "set", str(text), key, "-o", str(folder / "new.gguf"))
    assert done.returncode == 0, done.stderr
    (folder / "new.gguf").replace(folder / "model.gguf")
    encoder.replace(folder / "mmproj.gguf")
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    for name in ("cat.png", "a.png", "b.png", "dog.jpg"):
        PIL.Image.fromarray(pixels).save(folder / name)


def _write_large_model(folder: Path) -> None:
    words = ("--arch", "qwen35moe", "--size", "397b", "--type", "Q4_K_M", "--hole")
    command = (sys.executable, "-m", "dev.compare.make_bench_model", *words)
    subprocess.run([*command, "--out", str(folder / "m.gguf")], cwd=ROOT, check=True)


def _write_served_models(folder: Path) -> None:
    _write_vision_model(folder)
    (folder / "models").mkdir()
    shutil.copy(DEMO, folder / "models/sea-0.6b.gguf")


# Files of a page beyond those of `files`.
MORE_FILES = {
    "docs/vision.md": _write_vision_model,
    "docs/server.md": _write_served_models,
    "docs/ranks.md": _write_large_model,
}
OPENCL = re.compile(r"-(dev|b) opencl")


SERVES = re.compile(r"llama-py-server (?!.*--(check|help|version))")


class PageServer:
    """The last server that a page has started; it gets the requests that follow."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, ""
        self._command: Command | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder / "server.log"

    def start(self, command: Command) -> None:
        """Start another server at a free port, and wait until it is ready."""
        self.stop()
        self._command = command
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-euc", f"exec {command.text} --port 0"],
                cwd=self._folder, env=_environment(self._folder),
                stdin=subprocess.DEVNULL, stderr=log,
            )  # fmt: skip
        end = time.monotonic() + SECONDS
        while "\nready: " not in (printed := self._log.read_text("utf-8")):
            assert self._process.poll() is None and time.monotonic() < end, printed
            time.sleep(0.05)
        self._port = re.findall(r"^listening on http://.*:(\d+)$", printed, re.MULTILINE)[0]

    def addressed(self, text: str) -> str:
        """The same request to this server."""
        return text.replace("localhost:8080", f"localhost:{self._port}")

    def stop(self) -> None:
        """End the server as a user does; it has printed what the page shows."""
        if self._process is None or self._command is None:
            return
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(SECONDS)
        printed = self._log.read_text("utf-8")
        assert self._process.returncode == 0, printed
        assert not not_printed(self._command.shown, printed), printed
        self._process = None


def _environment(folder: Path) -> dict[str, str]:
    return clean_environment() | {
        "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "LLAMA_PY_MODELS": str(folder),
        "HF_HUB_OFFLINE": "1",
    }


def _run(command: Command, folder: Path) -> subprocess.CompletedProcess[str]:
    env = _environment(folder)
    if "python -m dev." in command.text:
        env["PYTHONPATH"] = str(ROOT)
    words = ["bash", "-euc", "set -o pipefail; " + command.text]
    if command.script:
        start = "import llama_py; model = llama_py.load()\n"
        alone = "import " in command.script
        words = [sys.executable, "-c", command.script if alone else start + command.script]
    return subprocess.run(
        words, cwd=folder, env=env, text=True, capture_output=True, stdin=subprocess.DEVNULL,
        timeout=SECONDS,
    )  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="the commands are for a Unix shell")
@pytest.mark.parametrize("page", dict.fromkeys(command.page for command in RUN))
def test_commands_of_a_page(page: str, folder: Path) -> None:
    """In their order, in one folder. Output that the page shows is in the output."""
    if page in MORE_FILES:
        MORE_FILES[page](folder)
    server = PageServer(folder)
    for command in RUN:
        if command.page != page or (OPENCL.search(command.text) and not find_spec("pyopencl")):
            continue
        if SERVES.match(command.text):
            server.start(command)
            continue
        text, script = map(server.addressed, (command.text, command.script))
        done = _run(command._replace(text=text, script=script), folder)
        fails = command.shown.startswith("error: ") or FAILS.match(command.text)
        assert done.returncode == (1 if fails else 0), (command.text, done.stderr[-2000:])
        if not MACHINE.match(command.text):
            missing = not_printed(command.shown, done.stdout + done.stderr)
            assert not missing, (command.text, missing, done.stdout + done.stderr)
        assert '"error"' not in done.stdout, (command.text, done.stdout)
    server.stop()


def not_printed(shown: str, printed: str) -> list[str]:
    """Shown lines that were not printed; numbers may differ, and "..." is any end of a line."""
    found = "\n".join(["", *map(_masked, printed.splitlines()), ""])
    return [
        line
        for line in shown.splitlines()
        if not DEVICE.match(line) and not _is_in(found, *line.partition("..."))
    ]


def _is_in(found: str, start: str, dots: str, _: str) -> bool:
    return f"\n{_masked(start)}{'' if dots else chr(10)}" in found


def _masked(line: str) -> str:
    """The line with each number as 0 and single spaces."""
    return " ".join(re.sub(r"[-+]?\d[\d.,e+-]*", "0", line).split())


def test_reasons_are_few() -> None:
    assert len(Counter(NOT_RUN.values())) <= 12
