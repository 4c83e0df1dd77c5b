"""--help must be there at once: no array library, backend, tokenizer or template engine."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.commands import SCRIPTS, clean_environment, run
from tests.support.limits import SECONDS

COMMANDS = [
    "llama-py-cli",
    "llama-py-debug",
    "llama-py-gguf",
    "llama-py-graph",
    "llama-py-bench",
    "llama-py-imatrix",
    "llama-py-embedding",
    "llama-py-perplexity",
    "llama-py-cvector-generator",
    "llama-py-server",
]
SLOW = {"numpy", "numba", "llvmlite", "ggml_cpu", "ggml_ref", "tokenizers", "jinja2", "tqdm"}


def imported_by(command: str, *args: str) -> tuple[str, set[str]]:
    """What a command writes, and the modules that it imports, with their packages."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", str(SCRIPTS / command), *args],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=clean_environment(),
    )
    assert done.returncode == 0, done.stderr[-1000:]
    lines = done.stderr.splitlines()
    modules = [line.rpartition("|")[2].strip() for line in lines if line.startswith("import time")]
    assert "argparse" in modules
    return done.stdout, {*modules, *(name.partition(".")[0] for name in modules)}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_imports_nothing_slow(command: str) -> None:
    shown, imported = imported_by(command, "--help")
    assert shown.startswith(f"usage: {command}")
    assert not SLOW & imported


def test_a_run_imports_no_compiler_templates_or_bars() -> None:
    shown, imported = imported_by("llama-py-cli", "-n", "1")
    assert shown.startswith("ROMEO:")
    assert "ggml_cpu" in imported
    assert not {"numba", "jinja2", "tqdm", "ggml_ref"} & imported
    assert not {"llama_py.grammar", "llama_py.hooks", "llguidance"} & imported
    assert not {"email", "socket", "numpy.random"} & imported  # of importlib.metadata and others
    assert (
        not {"llama_py.decoding.drafting", "llama_py.loading.split", "llama_py.chat.stream"}
        & imported
    )
    assert not {"llama_py.memory.compressed", "llama_py.memory.kpool"} & imported


def test_a_chat_imports_its_prompt_on_a_terminal_only() -> None:
    shown, imported = imported_by("llama-py-cli", "-st", "-p", "Hi", "-n", "1")
    assert shown.strip() and "jinja2" in imported and "prompt_toolkit" not in imported


@pytest.mark.parametrize("word", ["cache", "warmup"])
def test_help_of_commands_in_a_word(word: str) -> None:
    shown, imported = imported_by("llama-py-cli", word, "--help")
    assert shown.startswith(f"usage: llama-py-cli {word}")
    assert not SLOW & imported


def test_help_of_a_command_without_a_script() -> None:
    shown, imported = imported_by("llama-py", "mcp", "--help")
    assert shown.startswith("usage: llama-py mcp ") and "--port" not in shown
    assert not (SLOW | {"starlette", "mcp"}) & imported


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_usage_exits_2(command: str) -> None:
    done = run(command, "--no-such-flag")
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr


def test_lists() -> None:
    archs = run("llama-py-cli", "--list-archs")
    assert archs.returncode == 0
    assert "qwen35moe" in archs.stdout.splitlines()
    devices = run("llama-py-cli", "--list-devices")
    assert {line.split(":")[0] for line in devices.stdout.splitlines()} >= {"cpu", "null", "ref"}
