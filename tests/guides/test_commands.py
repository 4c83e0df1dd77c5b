"""Commands and scripts of README and docs run offline, with small models and a hub on this machine.

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
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple

import pytest

from ggml_cpu.target import host_features, usable
from tests.cli.hub_server import hub
from tests.guides.page_files import write_named
from tests.support.commands import DEMO, ROOT, SCRIPTS, clean_environment
from tests.support.limits import SECONDS, has_ipv6

LIMIT = 18  # entries of not_run.txt
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
    r"llama-py-cli (--list-devices|cache$|cache path|warmup)|llama-py list$|ls$"
    r"|llama-py-graph profile|llama-py-bench --roofline"
)
DEVICE = re.compile(r"  Device |  cpu: \w+ \(|version: |$")
# An installation prepares the project's metadata only, so that it needs no network.
PIP = {
    "PIP_DRY_RUN": "1", "PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1",
    "PIP_NO_BUILD_ISOLATION": "0",  # pip's value for: no isolation
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}  # fmt: skip
ENVIRONMENT = {  # of commands with a text
    "python -m dev.": {"PYTHONPATH": str(ROOT)},
    "llama-py-cli cache": {"LLAMA_PY_CACHE": "~/cache"},
    "pip install ": PIP,
    "hosts a,b": {"HYDRA_LAUNCHER": "fork"},  # all machines are this one
}
Done = subprocess.CompletedProcess[str]


class Command(NamedTuple):
    """A command line, or a Python script by its first line, and the output that is shown.

    A script with a file's name as its title is a file for the commands after it.
    """

    page: str
    text: str
    shown: str = ""
    script: str = ""
    file: str = ""

    @property
    def name(self) -> str:
        return f"{self.page}: {self.text}"


def commands(page: Path) -> list[Command]:
    """The commands of a page, in their order."""
    name = page.relative_to(ROOT).as_posix()
    found: list[Command] = []
    for _, language, about, body in FENCE.findall(page.read_text("utf-8")):
        file = about.strip().removeprefix("title=").strip('"')
        if language == "python" and ">>> " not in body and "/" not in file:  # no excerpt
            found.append(Command(name, f"python: {body.splitlines()[0]}", "", body, file))
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


PROJECT = (ROOT / "pyproject.toml").read_text("utf-8")
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
def hub_url() -> Iterator[str]:
    """A hub on this machine: each model that a command names is the demo model."""
    text = "\n".join(command.text for command in RUN)
    names = re.findall(r"\b([\w-]+)/([\w.-]+)-GGUF:(\w+)", text)
    repos = {f"{u}/{m}-GGUF": {f"{m}-{kind}.gguf": DEMO.read_bytes()} for u, m, kind in names}
    with hub(repos, slow="user/sea-GGUF", pause=1) as (url, _):
        yield url


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for one page: files that one command writes, the next ones read."""
    yield tmp_path
    shutil.rmtree(tmp_path)  # up to a gigabyte


OPTIONAL = {  # packages that some commands need
    "pyopencl": re.compile(r"-(dev|b) opencl"),
    "mcp": re.compile(r" --mcp"),
    "mpi4py": re.compile(r"hosts a,b"),
    "llama_cpp": re.compile(r"--against (llama\.cpp|ggml)"),
}
TARGET = re.compile(r"LLAMA_PY_CPU=([\w-]+)")
INSTALLS = re.compile(r"pip install (?:-e )?\"?\.(?:\[([\w,]+)\])?")
SERVES = re.compile(r"llama-py(-server| serve) (?!.*--(check|help|version))")
LISTENS = re.compile(r"curl -N ")  # has no end


class PageServer:
    """The last server that a page has started; it gets the requests that follow."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder, self._environment, self._port = folder, environment, ""
        self._command: Command | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder / "server.log"

    def start(self, command: Command) -> None:
        """Start another server at a free port, and wait until it is ready."""
        self.stop()
        self._command = command
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-euc", f"exec {self.addressed(command.text)} --port 0"],
                cwd=self._folder, env=self._environment,
                stdin=subprocess.DEVNULL, stderr=log,
            )  # fmt: skip
        end = time.monotonic() + SECONDS
        while "\nready: " not in (printed := self._log.read_text("utf-8")):
            assert self._process.poll() is None and time.monotonic() < end, printed
            time.sleep(0.05)
        found = re.search(r"^listening on https?://.*:(\d+)$", printed, re.MULTILINE)
        self._port = found[1] if found else ""

    def addressed(self, text: str) -> str:
        """The same command with this server's port, and with its socket in the page's folder."""
        here = re.sub("localhost:(8080|11434)", f"localhost:{self._port}", text)
        here = here.replace("/run/", "")
        return here if has_ipv6() else here.replace(",::,", ",")

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

    def close(self) -> None:
        """End a server whose page failed."""
        if self._process is not None:
            self._process.kill()


def _can_run(text: str) -> bool:
    """Return True if this environment has the packages of a command, and this CPU the target."""
    needed = [name for name, flag in OPTIONAL.items() if flag.search(text)]
    target = TARGET.search(text)
    of_cpu = target is None or target[1] in usable(host_features())
    return of_cpu and all(map(find_spec, needed))


def _environment(folder: Path, hub_url: str) -> dict[str, str]:
    return clean_environment() | {
        "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "LLAMA_PY_MODELS": str(folder),
        "HF_ENDPOINT": hub_url,
        "HF_HUB_CACHE": str(folder / ".cache/huggingface/hub"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_OFFLINE": "0",
        "NO_PROXY": "127.0.0.1,localhost",
        "OLLAMA_HOST": "127.0.0.1:0",
    }


def _run(command: Command, folder: Path, environment: dict[str, str]) -> Done:
    """Run a command or a script in a folder: to its end, or until it has printed what is shown."""
    words = ["bash", "-euc", f"set -o pipefail; {command.text}"]
    if command.script:
        start = "import llama_py; model = llama_py.load()\n"
        alone = "import " in command.script
        words = [sys.executable, "-c", command.script if alone else start + command.script]
    env = dict(environment)
    for text, more in ENVIRONMENT.items():
        env |= more if text in command.text else {}
    how: dict[str, Any] = {"cwd": folder, "env": env, "stdin": subprocess.DEVNULL, "text": True}
    if LISTENS.match(command.text):
        return _listen(["bash", "-euc", f"exec {command.text}"], command.shown, **how)
    return subprocess.run(words, capture_output=True, timeout=SECONDS, **how)


def _listen(words: list[str], shown: str, **how: Any) -> Done:
    printed = ""
    with subprocess.Popen(words, stdout=subprocess.PIPE, **how) as process:
        assert process.stdout is not None
        timer = Timer(SECONDS, process.kill)
        timer.start()
        for line in process.stdout:
            printed += line
            if not not_printed(shown, printed):
                break
        process.terminate()
        timer.cancel()
    return Done(words, 0, printed, "")


@pytest.mark.skipif(sys.platform == "win32", reason="the commands are for a Unix shell")
@pytest.mark.parametrize("page", dict.fromkeys(command.page for command in RUN))
def test_commands_of_a_page(page: str, folder: Path, hub_url: str) -> None:
    """In their order, in one folder. Output that the page shows is in the output."""
    wanted = [command for command in RUN if command.page == page]
    write_named("\n".join(command.text + command.script for command in wanted), folder)
    environment = _environment(folder, hub_url)
    with closing(PageServer(folder, environment)) as server:
        for command in wanted:
            if not _can_run(command.text):
                continue
            if command.file:
                (folder / command.file).write_text(command.script)
            elif SERVES.match(command.text):
                server.start(command)
            else:
                text, script = map(server.addressed, (command.text, command.script))
                done = _run(command._replace(text=text, script=script), folder, environment)
                _check(command, done)
        server.stop()
    for written in folder.glob("docs/*.md"):  # generated pages
        committed = (ROOT / "docs" / written.name).read_text("utf-8")
        stale = f"run the command of {page} that writes docs/{written.name}"
        assert written.read_text("utf-8") == committed, stale


def _check(command: Command, done: Done) -> None:
    if installs := INSTALLS.match(command.text):  # pip does not check extras without dependencies
        assert all(f"\n{extra} = [" in PROJECT for extra in (installs[1] or "test").split(","))
    fails = "\nerror: " in f"\n{command.shown}" or FAILS.match(command.text)
    assert done.returncode == (1 if fails else 0), (command.text, done.stderr[-2000:])
    printed = f"{done.stdout}\n{done.stderr}"
    if not MACHINE.match(command.text):
        missing = not_printed(command.shown, printed)
        assert not missing, (command.text, missing, printed)
    assert '"error"' not in done.stdout, (command.text, done.stdout)


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
