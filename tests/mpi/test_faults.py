"""What goes wrong in a run: heard before its result is used, and an end for all within a time."""

from __future__ import annotations

import re
import subprocess
from contextlib import ExitStack

import pytest

from tests.mpi.failing import COUNT, WRONG
from tests.mpi.launching import ended, on_ranks, started
from tests.support.limits import SECONDS

PROGRAM = ("-m", "tests.mpi.failing")


@pytest.mark.parametrize(("n", "how"), [(2, "graph"), (3, "graph"), (3, "layer")])
def test_a_step_that_fails_is_told_by_its_run_and_no_other(n: int, how: str) -> None:
    """Wherever it is: the output of shared layers is on rank 0, that of whole ones on the last."""
    done = on_ranks(n, *PROGRAM, "every_run", how)
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(n):
        for run in (0, COUNT // 2, COUNT - 1):
            assert f"{how}: rank {rank}, run {run}, step 1 of " in done.stdout, done.stdout


def test_a_piece_of_a_product_that_fails_is_told_too() -> None:
    how = "every_run", "graph", "160"
    done = on_ranks(2, *PROGRAM, *how, LLAMA_PY_MPI_PIECES="2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rank 0, run 2, step 8 of 15: " in done.stdout, done.stdout  # a piece
    assert "rank 1, run 2, step 6 of 11: " in done.stdout, done.stdout


def test_a_program_without_a_fault_ends() -> None:
    done = on_ranks(4, *PROGRAM, "ends", LLAMA_PY_MPI_TIMEOUT=str(SECONDS))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("what", "rank", "line"),
    [
        (("never_told",), 1, WRONG),
        (("waited_for",), 1, WRONG),
        (("at_first", "first"), 0, WRONG),
        (("at_first", "last"), 0, WRONG),
        (("unreadable",), 1, ""),
    ],
)
def test_all_end_with_one_line_that_names_the_rank(
    what: tuple[str, ...], rank: int, line: str
) -> None:
    done = on_ranks(2, *PROGRAM, *what, LLAMA_PY_MPI_TIMEOUT=str(SECONDS))
    check_end(done, rank, line)


def check_end(done: subprocess.CompletedProcess[str], rank: int, line: str) -> None:
    errors = re.findall(r"^error: .*$", done.stderr, re.M)
    assert done.returncode != 0 and len(errors) == 1, done.stderr
    assert re.match(rf"error: rank {rank} (\(|on )", errors[0]), done.stderr
    assert errors[0].endswith(line) and "Traceback" not in done.stderr, done.stderr


def test_a_step_that_does_not_end_ends_all() -> None:
    """Both programs at a time: they wait for the limit. A busy rank may be silent for seconds."""
    programs = ("does_not_end", "left_half_done")
    with ExitStack() as stack:
        both = [
            stack.enter_context(started(2, *PROGRAM, what, LLAMA_PY_MPI_TIMEOUT="20"))
            for what in programs
        ]
        for done in map(ended, both):
            check_end(done, 1, "has not finished its step for 20 s; all ranks end")
