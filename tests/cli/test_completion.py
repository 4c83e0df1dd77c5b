"""llama-py-cli as a process: text on stdout, the rest on stderr, exit codes, signals, pipes."""

from __future__ import annotations

import signal
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from llama_py_tools import main
from tests.support.commands import DEMO, SCRIPTS, clean_environment, refused, run, start
from tests.support.gguf_writer import gguf, kv, write
from tests.support.limits import SECONDS

# It must not be done before the test has read what it waits for.
ENDLESS = ("-n", "1000000", "--context-shift", "--ignore-eos", "-no-cnv")
QUICK = ("-dev", "ref", "-c", "256", "--temp", "0")
LONG = "Now is the winter of our discontent. " * 60


def test_text_and_timings() -> None:
    done = run("llama-py-cli", *QUICK, "-n", "6")
    assert done.returncode == 0
    assert done.stdout.startswith("ROMEO:")
    assert done.stdout.endswith("\n")
    blank, load, timings = done.stderr.splitlines()
    assert blank == ""
    assert load.startswith("load ")
    assert "qwen35moe" in load
    assert timings.startswith("prompt 2 tokens, ")
    assert "| generated 6 tokens, " in timings
    assert timings.endswith("| stop: length")


def test_the_same_without_prompt_and_from_a_file(tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("ROMEO:\n")  # the last newline is the editor's
    whole = run("llama-py-cli", *QUICK, "-n", "6").stdout
    from_file = run("llama-py-cli", *QUICK, "-n", "6", "-f", str(prompt), "--no-display-prompt")
    assert "ROMEO:" + from_file.stdout == whole


def test_a_seed_repeats_and_stdin_is_a_prompt() -> None:
    args = [str(SCRIPTS / "llama-py-cli"), "-dev", "ref", "-c", "256", "-n", "8", "-f", "-"]
    texts = [
        subprocess.run(
            [*args, "-s", seed],
            input="JULIET:\\n\xe9",
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=clean_environment(),
            encoding="utf-8",
        ).stdout
        for seed in ("1", "1", "2")
    ]
    assert texts[0].startswith("JULIET:\n\xe9")
    assert texts[0] == texts[1] != texts[2]


def test_no_stdin_and_no_stdout() -> None:
    script = SCRIPTS / "llama-py-cli"
    command = f"exec '{script}' {' '.join(QUICK)} -n 2 <&- >&-"
    done = subprocess.run(
        ["sh", "-c", command],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=clean_environment(),
    )
    assert done.returncode == 0
    assert done.stderr.endswith("stop: length\n")


def test_a_reader_that_leaves_is_no_error() -> None:
    process = start("llama-py-cli", *QUICK, *ENDLESS)
    assert process.stdout is not None
    assert process.stdout.read(8) == "ROMEO: I"
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read()
    assert process.wait(timeout=SECONDS) == 1
    assert "Traceback" not in errors
    assert "error" not in errors


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_told() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [str(SCRIPTS / "llama-py-cli"), *QUICK, "-n", "2"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=SECONDS,
            env=clean_environment(),
        )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1


PRINTED = [
    *(
        (script.name, "--help")
        for script in entry_points(group="console_scripts")
        if script.value.startswith("llama_py")
    ),
    *(("llama-py", word, "--help") for word in main.WORDS),
    ("llama-py-gguf", "show", "--help"),
    ("llama-py-graph", "dump", "--help"),
    ("llama-py-server", "--version"),
    ("llama-py-cli", "--completion", "zsh"),
]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", PRINTED, ids=" ".join)
def test_a_full_disk_fails_help(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = run(*words, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (1, "error: No space left on device\n")


def interrupt(process: subprocess.Popen[str], shown: str) -> str:
    """Ctrl-C once `shown` is on stdout; what is on stderr in the end."""
    assert process.stdout is not None
    assert process.stdout.read(len(shown)) == shown
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert "load " in errors
    return errors.splitlines()[-1]


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c_while_generating() -> None:
    last = interrupt(start("llama-py-cli", "--temp", "0", *ENDLESS), "ROMEO: I")
    assert "generated " in last
    assert last.endswith("stop: interrupted")


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c_in_the_prompt() -> None:
    words = ("-dev", "ref", "-c", "2048", "-b", "32", "-ub", "32", "-p", LONG * 2)
    process = start("llama-py-cli", *words)
    last = interrupt(process, LONG[:40])
    assert "tokens interrupted after" in last
    assert last.endswith("stop: interrupted")


def test_a_prompt_longer_than_the_context() -> None:
    message = refused(run("llama-py-cli", *QUICK, "-p", LONG))
    assert "but the context holds 256" in message


def test_files_that_are_no_models(tmp_path: Path) -> None:
    cut = write(tmp_path, DEMO.read_bytes()[:100_000], "cut.gguf")
    other = write(tmp_path, b"hello", "other.gguf")
    arch = write(tmp_path, gguf([kv("general.architecture", "str", "qwen35mo")]), "arch.gguf")
    expected = {
        cut: "damaged",
        other: "not a GGUF file",
        arch: "nearest: qwen35moe",
        tmp_path: "is a folder",
        tmp_path / "missing.gguf": "No such file",
    }
    for path, says in expected.items():
        assert says in refused(run("llama-py-cli", "-dev", "ref", "-m", str(path), "-p", "x"))


def test_verbose_shows_where() -> None:
    done = run("llama-py-cli", "-v", "-m", "missing.gguf")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: missing.gguf")
