"""The commands where the system lacks what only some systems have.

Modules and functions are taken away before the command starts; what a system call would answer
elsewhere is put in its place where the project asks for it.
"""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from llama_py.support import whole_file
from llama_py_tools.command import streams
from llama_py_tools.test_backend_ops import pool
from tests.support.commands import DEMO, clean_environment
from tests.support.limits import SECONDS

MODULES = ("fcntl", "resource", "readline", "termios", "pwd", "grp", "select")
FUNCTIONS = {
    "os": (
        "sched_getaffinity", "sched_setaffinity", "fork", "forkpty", "register_at_fork", "getuid",
        "geteuid", "posix_fadvise", "posix_fallocate", "posix_spawn", "pread", "preadv", "sendfile",
        "getpgid", "killpg", "setsid", "sysconf", "uname", "getloadavg", "mkfifo", "O_DIRECTORY",
        "O_CLOEXEC", "O_NOFOLLOW", "memfd_create", "eventfd", "wait4",
    ),
    "mmap": ("MADV_HUGEPAGE", "MADV_WILLNEED", "MAP_ANONYMOUS", "MAP_PRIVATE", "MAP_POPULATE"),
    "signal": ("SIGPIPE", "SIGKILL", "SIGALRM", "SIGHUP", "SIGCHLD", "SIGUSR1", "pthread_sigmask"),
    "time": ("tzset", "clock_gettime_ns", "pthread_getcpuclockid"),
}  # fmt: skip
# Imported first, since they are other people's, who ask for what there is: only what is ours may
# not count on it.
THEIRS = (
    "subprocess",
    "tempfile",
    "selectors",
    "platform",
    "numpy",
    "llvmlite.binding",
    "jinja2",
    "platformdirs.unix",
    "psutil",
)
TAKE_AWAY = """
import importlib, sys
for name in {theirs!r}:
    importlib.import_module(name)
for name in {modules!r}:
    sys.modules[name] = None
for module, names in {functions!r}.items():
    found = importlib.import_module(module)
    for name in names:
        if hasattr(found, name):
            delattr(found, name)
import ggml_py.machine.host, pathlib
for name in ("CPUS", "CGROUPS", "OWN_CGROUP", "MEMINFO", "CPUINFO"):
    setattr(ggml_py.machine.host, name, pathlib.Path("nowhere"))
amx = ggml_py.machine.host.allows_amx()  # or all kernels would be compiled, for a lesser CPU
ggml_py.machine.host.allows_amx = lambda: amx
ggml_py.machine.host.SYSTEM = {system!r}
from llama_py_tools.command import streams
streams.SYSTEM = {system!r}
from llama_py_tools.start import cli
sys.argv[0] = "llama-py-cli"
sys.exit(cli())
"""


def bare(system: str, *args: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command without all that; sysctl knows nothing."""
    code = TAKE_AWAY.format(theirs=THEIRS, modules=MODULES, functions=FUNCTIONS, system=system)
    if system == "darwin":
        code = code.replace(
            "ggml_py.machine.host.SYSTEM",
            "ggml_py.machine.host._sysctl = lambda _: b''\nggml_py.machine.host.SYSTEM",
            1,
        )
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
        stdin=subprocess.DEVNULL,
        env=clean_environment() | environment,
    )


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_a_first_token(system: str, tmp_path: Path) -> None:
    """From a path with a space and letters that no Western code page has; stdout in that one."""
    folder = tmp_path / "moj модел 模型"
    folder.mkdir()
    model = folder / "démo.gguf"
    model.write_bytes(DEMO.read_bytes())
    done = bare(
        system,
        "-m",
        model,
        "-no-cnv",
        "-p",
        "ROMEO — 愛:",
        "-n",
        "1",
        "-c",
        "256",
        "--temp",
        "0",
        PYTHONIOENCODING="cp1252",
        PYTHONUTF8="0",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ROMEO — 愛:")
    assert "generated 1 tokens" in done.stderr


def test_the_machine_is_described() -> None:
    done = bare("win32", "--list-devices")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("host: ")


def test_kernels_are_compiled_in_a_folder_with_any_name(tmp_path: Path) -> None:
    """By a process of its own, which is not forked."""
    code = (
        "from ggml_cpu.objcache import load_kernels; from ggml_cpu.driver import empty_pass;"
        "print(load_kernels([empty_pass])[empty_pass.name] > 0)"
    )
    folder = tmp_path / "кэш mit Platz"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=clean_environment() | {"LLAMA_PY_CACHE": str(folder), "PYTHONUTF8": "0"},
    )
    assert done.stdout == "True\n", done.stderr
    assert list(folder.glob("cpu/*/*.o"))


def test_a_reader_that_left(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = OSError(errno.EINVAL, "Invalid argument")
    assert streams.reader_left(BrokenPipeError()) and not streams.reader_left(gone)
    monkeypatch.setattr(streams, "SYSTEM", "win32")
    assert streams.reader_left(gone) and not streams.reader_left(ValueError())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Console:
    """Of Windows: handles are 64 bits wide; `obeys` as it answers to a new mode."""

    def __init__(self, obeys: bool) -> None:
        self.obeys, self.mode = obeys, 3

    def GetStdHandle(self, which: int) -> int:
        assert which == -11
        return 2**40

    def GetConsoleMode(self, handle: Any, mode: Any) -> int:
        assert handle.value == 2**40
        mode._obj.value = self.mode
        return 1

    def SetConsoleMode(self, handle: Any, mode: int) -> int:
        self.mode = mode
        return int(self.obeys)


@pytest.mark.parametrize("obeys", [True, False])
def test_colours_of_a_console(monkeypatch: pytest.MonkeyPatch, obeys: bool) -> None:
    console = Console(obeys)
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(streams, "SYSTEM", "win32")
    monkeypatch.setattr(streams, "_console", lambda: console)
    assert not streams.in_colour(io.StringIO())
    assert streams.in_colour(Terminal()) == obeys
    assert console.mode == 7
    monkeypatch.setenv("NO_COLOR", "1")
    assert not streams.in_colour(Terminal())


def test_how_a_process_died() -> None:
    """Windows has codes for it, some systems signals without a name."""
    assert pool._exit_reason(0xC0000005) == f"exit code {0xC0000005}"
    assert pool._exit_reason(-999) == "exit code -999"
    assert pool._exit_reason(-15) == "signal SIGTERM"


def test_a_folder_that_cannot_be_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows, which opens none, and some file systems, which sync none."""
    opened = os.open

    def refuse(path: Any, *args: Any) -> int:
        if Path(path).is_dir():
            raise PermissionError(errno.EACCES, "a folder", str(path))
        return opened(path, *args)

    monkeypatch.setattr(whole_file.os, "open", refuse)
    assert whole_file.replace_file(tmp_path / "x", [b"abc"]) == 3
    assert (tmp_path / "x").read_bytes() == b"abc"
