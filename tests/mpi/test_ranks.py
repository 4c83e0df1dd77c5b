"""Models over ranks: the same logits and texts as of one process, and an end for all."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

import psutil
import pytest

from tests.mpi.launching import TIMEOUT, launcher, on_ranks, started
from tests.support.commands import ROOT, SCRIPTS, clean_environment, run
from tests.support.limits import SECONDS

CLI = str(SCRIPTS / "llama-py-cli")
HANDFUL = ("llama-dense", "qwen35moe-moe", "kimi-linear-moe")
TEXT = ("-p", "ROMEO:", "-n", "12", "--temp", "0", "-no-cnv")


@cache
def text_alone() -> str:
    """What a process without ranks writes."""
    done = run("llama-py-cli", *TEXT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("n", "mode"), [(2, "layer"), (3, "graph"), (2, "host"), (4, "tp=2,pp=2,ep=2")]
)
def test_logits_are_those_of_one_process(n: int, mode: str) -> None:
    done = on_ranks(n, "-m", "dev.compare.compare_ranks", mode, *HANDFUL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"{name}: " in done.stdout for name in HANDFUL)
    assert "not shared" not in done.stdout


def test_a_command_writes_once_what_it_writes_alone() -> None:
    done = on_ranks(2, CLI, *TEXT, "-sm", "graph")
    assert done.returncode == 0, done.stderr
    assert done.stdout == text_alone()
    assert "mpi1" in done.stderr and done.stderr.count("load ") == 1


def test_hosts_start_a_launcher() -> None:
    launcher()
    done = run("llama-py-cli", "--hosts", "localhost:2", *TEXT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == text_alone() and "mpi1" in done.stderr
    done = run("llama-py-cli", "--hosts", "localhost", *TEXT)
    assert (done.returncode, done.stdout) == (0, text_alone()), done.stderr
    done = run("llama-py-cli", "--hosts", "localhost:x", *TEXT)
    assert (done.returncode, done.stderr) == (
        1,
        "error: --hosts localhost:x: expected HOST[:N],...\n",
    )


ALONE = """
import sys
from pathlib import Path
from llama_py_tools.start import bench

sys.argv = ["llama-py-bench", "-p", "8", "-n", "2", "-r", "1", "-o", "jsonl"]
bench()
loaded = [name for name in sys.modules if name.startswith(("mpi4py", "ggml_mpi."))]
maps = Path("/proc/self/maps")
print(loaded, maps.exists() and "libmpi" in maps.read_text())
"""


def test_one_rank_is_a_process_like_any_other() -> None:
    """So it computes as without a launcher: nothing of MPI is loaded, but what asks how many."""
    done = on_ranks(1, "-c", ALONE)
    assert done.returncode == 0, done.stderr
    *lines, found = done.stdout.splitlines()
    assert found == "['ggml_mpi.keeper'] False"
    assert {json.loads(line)["devices"] for line in lines} == {"cpu"}


def test_a_benchmark_is_of_all_ranks_with_the_threads_that_each_has() -> None:
    launcher()
    short = ("-p", "8", "-n", "0", "-r", "1", "-o", "jsonl")
    alone = json.loads(run("llama-py-bench", *short).stdout)
    done = run("llama-py-bench", "--hosts", "localhost:2", *short, "-sm", "layer,graph")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [test["split_mode"] for test in found] == ["layer", "graph"], done.stderr
    for test in found:
        assert test["devices"] == "mpi0/mpi1/cpu"
        assert test["n_threads"] == max(1, alone["n_threads"] // 2)


def test_perplexity_is_told_once() -> None:
    launcher()
    flags = ("-f", str(ROOT / "README.md"), "-c", "64", "--chunks", "2")
    alone = run("llama-py-perplexity", *flags)
    done = run("llama-py-perplexity", "--hosts", "localhost:2", *flags)
    assert (done.returncode, done.stdout) == (0, alone.stdout), done.stderr


def test_drafts_are_taken_back_and_states_kept_over_ranks(tmp_path: Path) -> None:
    draft = ("--spec-type", "draft-mtp")
    cache = ("--prompt-cache", str(tmp_path / "state"))
    assert on_ranks(2, CLI, *TEXT, *draft).stdout == text_alone()
    first = on_ranks(2, CLI, *TEXT, *cache)
    again = on_ranks(2, CLI, *TEXT, *cache)
    assert first.stdout == again.stdout == text_alone(), again.stderr


def test_an_error_is_told_once() -> None:
    done = on_ranks(2, CLI, "-m", "missing.gguf", "-p", "x")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("error: ") == 1 and "missing.gguf" in done.stderr


def test_what_needs_no_model_ends_on_all_ranks() -> None:
    done = on_ranks(3, CLI, "--version")
    assert done.returncode == 0 and done.stdout.count("llama-py ") == 1


def rank_of(process: subprocess.Popen[str], rank: int) -> psutil.Process:
    """One of those that a launcher has started, once it is there: not what keeps it."""
    until = time.monotonic() + TIMEOUT
    while time.monotonic() < until and process.poll() is None:
        children = psutil.Process(process.pid).children(recursive=True)
        found = [child for child in children if _rank(child) == str(rank)]
        if len(found) == 2:  # a parent comes before its children
            return found[1]
        time.sleep(0.05)
    raise AssertionError(f"there is no rank {rank}")


def _rank(child: psutil.Process) -> str | None:
    try:
        return child.environ().get("PMI_RANK") if "python" in child.name() else None
    except psutil.Error:  # which has ended meanwhile
        return None


ENDLESS = ("-p", "ROMEO:", "-n", "1000000", "--context-shift", "-no-cnv", "--ignore-eos")


@pytest.mark.parametrize("rank", [0, 2])
def test_a_killed_rank_ends_all(rank: int) -> None:
    with started(3, CLI, *ENDLESS) as process:
        assert process.stdout is not None
        process.stdout.read(200)  # it is at work
        others = [rank_of(process, i) for i in range(3)]
        others[rank].kill()
        _, err = process.communicate(timeout=TIMEOUT)
        assert process.returncode != 0
        gone, alive = psutil.wait_procs(others, timeout=SECONDS)
        assert not alive, gone
    errors = [line for line in err.splitlines() if "error" in line]
    assert len(errors) == 1 and errors[0].startswith(f"error: rank {rank} on "), err
    assert errors[0].endswith(" was killed by signal 9 (Killed); all ranks end")


def test_a_silent_rank_ends_all_with_its_name() -> None:
    """Both programs at a time: nothing happens until the limit, which is long enough for ranks
    that start on a busy machine.
    """
    with ExitStack() as stack:
        programs = []
        for rank in (0, 1):
            process = stack.enter_context(started(2, CLI, *ENDLESS, LLAMA_PY_MPI_TIMEOUT="20"))
            assert process.stdout is not None
            process.stdout.read(200)
            silent = rank_of(process, rank)
            silent.send_signal(signal.SIGSTOP)
            stack.callback(kill, silent)
            programs.append(process)
        for rank, process in enumerate(programs):
            _, err = process.communicate(timeout=TIMEOUT)
            assert process.returncode != 0
            assert f"error: rank {rank} on " in err and "; all ranks end" in err, err
            assert err.count("error") == 1, err


def kill(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.kill()


OTHERWISE = "import sys, ggml_mpi.about as a; a.code = lambda: 'x'; from llama_py_tools.start"


@pytest.mark.parametrize(
    ("program", "env", "what"),
    [(OTHERWISE, (), "a different code"), ("", ("LLAMA_PY_CPU", "sse2"), "a different CPU")],
)
def test_a_rank_that_would_compute_otherwise_ends_all(
    program: str, env: tuple[str, ...], what: str
) -> None:
    other = ["-c", f"{program} import cli; sys.exit(cli())"] if program else [CLI]
    set_env = ["-env", *env] if env else []
    done = on_ranks(1, CLI, *TEXT, ":", "-n", "1", *set_env, sys.executable, *other, *TEXT)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: rank 1 on ") and what in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def test_other_ranks_alone_know_no_devices() -> None:
    """A program that does not say `serve` in them is told so."""
    program = (
        "from ggml_py.backend.registry import device\n"
        "from ggml_mpi.world import world\n"
        "import sys\n"
        "try:\n    world().rank and device('mpi0')\n"
        "except Exception as e:\n    sys.stdout.write(str(e))\n"
        "world().part()\n"
    )
    done = on_ranks(2, "-c", program)
    assert "rank 1 computes for rank 0; only rank 0 can list the devices" in done.stdout


def test_without_a_launcher_there_are_no_devices() -> None:
    launcher()
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from ggml_py.backend.registry import devices; print(devices('mpi'))",
        ],
        capture_output=True,
        text=True,
        env=clean_environment(),
    )
    assert done.stdout.strip() == "()", done.stderr
