"""Cases in several processes: the same answers in the same order, and no death goes unseen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ggml_py.errors import BackendError
from llama_py_tools.test_backend_ops import main
from llama_py_tools.test_backend_ops.pool import DeadJob, in_order
from llama_py_tools.test_backend_ops.run import Outcome, Status
from llama_py_tools.test_backend_ops.task import in_processes
from tests.support.commands import heed_interrupts
from tests.support.limits import SECONDS


@dataclass(frozen=True)
class Squares:
    """Squares of numbers; some wait for the number after them, some kill the process.

    folder  of a file for each that is done, to wait for
    """

    folder: Path = Path()
    slow: tuple[int, ...] = ()
    deadly: tuple[int, ...] = ()

    def __call__(self) -> Callable[[int], int]:
        return self.square

    def square(self, i: int) -> int:
        while i in self.slow and not (self.folder / str(i + 1)).exists():
            time.sleep(0.01)
        if i in self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.slow:
            (self.folder / str(i)).touch()
        return i * i


def never_starts() -> Callable[[int], int]:
    os._exit(3)


def deadly_case() -> Callable[[int], Outcome]:
    def evaluate(i: int) -> Outcome:
        if i == 1:
            os._exit(5)
        return Outcome(Status.OK)

    return evaluate


def test_answers_keep_the_order(tmp_path: Path) -> None:
    assert list(in_order(Squares(tmp_path, slow=(0, 3)), 7, 2)) == [i * i for i in range(7)]


def test_more_processes_than_jobs() -> None:
    assert list(in_order(Squares(), 2, 5)) == [0, 1]


def test_a_death_is_the_answer_of_its_job_only() -> None:
    died = DeadJob("signal SIGKILL")
    assert list(in_order(Squares(deadly=(0, 2)), 4, 2)) == [died, 1, died, 9]


def test_a_process_that_does_not_start_is_an_error() -> None:
    with pytest.raises(BackendError, match="did not start: exit code 3"):
        list(in_order(never_starts, 2, 2))


def test_a_case_that_kills_its_process_has_failed() -> None:
    reasons = [o.reason for o in in_processes(deadly_case, 3, 2)]
    assert reasons == ["", "the process died: exit code 5 ", ""]


CODE = "import sys; from llama_py_tools.test_backend_ops import main; sys.exit(main())"
TOOL = [sys.executable, "-c", CODE, "-b", "ref"]


def console(*args: str) -> list[str]:
    done = subprocess.run([*TOOL, *args], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def test_output_is_that_of_one_process() -> None:
    few = ["-o", "ADD,NEG", "-p", "f32"]
    assert console(*few, "-j", "2")[5:] == console(*few)[5:]  # before: the memory that is free


@pytest.mark.parametrize("args", [["-j", "0"], ["-j", "x"], ["perf", "-j", "2"]])
def test_wrong_usage(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(args)
    assert "-j" in capsys.readouterr().err


def test_ctrl_c_ends_all_processes() -> None:
    """The terminal interrupts the whole process group; only the parent speaks, and leaves."""
    running = subprocess.Popen(
        [*TOOL, "-j", "2"],
        preexec_fn=heed_interrupts,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert running.stdout is not None
    while "OK" not in running.stdout.readline():
        pass
    os.killpg(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=SECONDS)  # to the end of output that all processes share
    assert (running.returncode, err) == (130, "")


def test_a_reader_that_leaves_is_no_crash() -> None:
    running = subprocess.Popen(
        [*TOOL, "-o", "ADD", "-j", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout is not None and running.stderr is not None
    running.stdout.readline()
    running.stdout.close()
    assert running.stderr.read() == ""
    assert running.wait() == 1
