"""The executor: every step once per thread, in order, whatever happens around it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from ggml_cpu import executor as executors
from ggml_cpu import vocabulary as v
from ggml_cpu.driver import (
    CROWDED,
    ENTRY_WORDS,
    HOW,
    IDLE_NS,
    MEET,
    OWN,
    SPIN,
    SPIN_NS,
    STRIDE,
    TIMEOUT,
)
from ggml_cpu.executor import Executor, in_turn
from ggml_cpu.kernel import kernel
from ggml_cpu.objcache import load_kernels
from ggml_py.machine import host
from tests.support.limits import SECONDS

THREADS = (1, 2, 3, 5)


@pytest.fixture(autouse=True)
def spinning(monkeypatch):
    """As for users, beside other tests too (tests/conftest.py)."""
    monkeypatch.delenv("LLAMA_PY_SPIN", raising=False)


@pytest.mark.parametrize(
    ("given", "ns"),
    [("", SPIN_NS), ("0", 0), (" 2.5 ", 2500), ("-1", 0), ("much", SPIN_NS), ("inf", SPIN_NS)],
)
def test_how_long_threads_spin(monkeypatch, caplog, given, ns):
    monkeypatch.setenv("LLAMA_PY_SPIN", given)
    assert executors.spin_ns() == ns
    assert ("number of microseconds" in caplog.text) == (given in ("much", "inf"))


@kernel()
def count_step(p, ith, nth):
    """Add 1; the total shows how many threads were here."""
    v.atomic_add(p, 1)


@kernel()
def spread(p, ith, nth):
    """dst[i] = 1 + an element of src that another thread wrote one step before."""
    n, src, dst = v.ld_i64(p), v.ld_i64(p + 8), v.ld_i64(p + 16)
    start, stop = v.split(n, ith, nth)
    for i in range(start, stop):
        v.st_i64(dst + 8 * i, v.ld_i64(src + 8 * ((i * 7 + 3) % n)) + 1)


@kernel()
def note_thread(p, ith, nth):
    v.st_i64(p + 8 * ith, nth)


@kernel()
def wait_for_last(p, ith, nth):
    if ith == 0 and nth > 1:
        while v.atomic_load(p) == 0:
            v.sched_yield()


@kernel()
def last_is_here(p, ith, nth):
    if ith == nth - 1:
        v.atomic_store(p, 1)


def address(a: np.ndarray) -> int:
    return int(a.ctypes.data)


def program(*steps: tuple[object, np.ndarray]) -> np.ndarray:
    addresses = load_kernels([k for k, _ in steps])
    return in_turn([(addresses[k.name], address(p)) for k, p in steps])


def run_counts(executor: Executor, steps: int = 100) -> int:
    words = np.zeros(16, np.int64)
    entries = program((count_step, words))
    entries = np.repeat(entries, steps, 0)
    executor.run(address(entries), steps)
    return int(words[0])


@pytest.fixture(params=THREADS)
def executor(request):
    made = Executor(request.param)
    yield made
    made.close()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs sched_setaffinity")
def test_threads_on_cpus_of_their_own(monkeypatch):
    """Each worker for good, the caller while it works."""
    allowed, asked = os.sched_getaffinity(0), []
    set_affinity = host.set_affinity

    def note(cpus):
        asked.append((threading.current_thread().name, sorted(cpus)))
        return set_affinity(allowed)

    monkeypatch.setattr(host, "set_affinity", note)
    made = Executor(3, [[7], [8]])
    assert run_counts(made) == 300
    made.close()
    names = {name: cpus for name, cpus in asked if name.startswith("ggml_cpu-")}
    assert names == {"ggml_cpu-1": [8], "ggml_cpu-2": [7]}
    mine = [cpus for name, cpus in asked if not name.startswith("ggml_cpu-")]
    assert mine == [[7], sorted(allowed)]


def test_thread_numbers(executor):
    words = np.zeros(8, np.int64)
    entries = program((note_thread, words))
    executor.run(address(entries), 1)
    n = executor.n_threads
    assert words.tolist() == [n] * n + [0] * (8 - n)


def test_steps_see_what_earlier_steps_wrote(executor):
    """A chain of permuted copies between two arrays; one thread too early gives wrong numbers."""
    n, steps = 997, 300
    a, b = np.arange(n), np.zeros(n, np.int64)
    want = a.copy()
    for _ in range(steps):
        want = want[(np.arange(n) * 7 + 3) % n] + 1
    there = np.array([n, address(a), address(b)], np.int64)
    back = np.array([n, address(b), address(a)], np.int64)
    entries = np.tile(program((spread, there), (spread, back)), (steps // 2, 1))
    executor.run(address(entries), steps)
    np.testing.assert_array_equal(a, want)


def test_part_of_a_program(executor):
    words = np.zeros(16, np.int64)
    entries = np.repeat(program((count_step, words)), 10, 0)
    executor.run(address(entries) + 8 * ENTRY_WORDS * 4, 3)
    assert words[0] == 3 * executor.n_threads
    executor.run(address(entries), 0)
    assert words[0] == 3 * executor.n_threads


def test_own_steps_run_as_for_one_thread(executor):
    """Each thread runs all of them, on the block that lies its number of strides further."""
    n = executor.n_threads
    words = np.zeros((n, 8), np.int64)
    entries = program((note_thread, words[0]))
    entries[:, HOW], entries[:, STRIDE] = MEET | OWN, 8 * words.shape[1]
    executor.run(address(entries), 1)
    assert words.tolist() == [[1, 0, 0, 0, 0, 0, 0, 0]] * n


def test_threads_do_not_wait_without_a_barrier(executor):
    """The last thread runs through both steps while thread 0 waits for that in the first."""
    words = np.zeros(8, np.int64)
    entries = program((wait_for_last, words), (last_is_here, words))
    entries[0, HOW] = 0
    executor.run(address(entries), 2)
    assert words[0] == 1


def test_profile(executor):
    n = executor.n_threads
    words, ns = np.zeros(16, np.int64), np.full((n, 51, 2), -5, np.int64)
    entries = np.repeat(program((count_step, words)), 50, 0)
    before = time.time_ns()
    executor.run(address(entries), 50, profile=ns)
    assert words[0] == 50 * n
    assert before - 10**6 <= ns[:, 0, 0].min() and ns[0, 50, 0] <= time.time_ns() + 10**6
    steps = ns[:, :50]
    assert (steps[:, :, 0] <= steps[:, :, 1]).all() and (steps[:, 1:, 0] >= steps[:, :-1, 1]).all()
    assert (steps[:, 1:, 0] >= steps[:, :-1].max(axis=(0, 2))).all(), "they met after each step"
    assert ns[0, 50, 0] >= steps.max() and (ns[1:, 50] == -5).all() and ns[0, 50, 1] == -5


def test_a_profile_adds_no_barrier(executor):
    """As in the test before the last."""
    words, ns = np.zeros(8, np.int64), np.zeros((executor.n_threads, 3, 2), np.int64)
    entries = program((wait_for_last, words), (last_is_here, words))
    entries[0, HOW] = 0
    executor.run(address(entries), 2, profile=ns)
    assert words[0] == 1


def test_profile_must_fit(executor):
    with pytest.raises(ValueError, match=rf"array of shape \[{executor.n_threads}, 4, 2\]"):
        executor.run(0, 3, profile=np.zeros((2, 2), np.int64))


def test_wakes_from_sleep(executor):
    assert run_counts(executor) == 100 * executor.n_threads
    time.sleep(3 * IDLE_NS / 1e9)
    pool = executor._pool
    deadline = time.monotonic() + SECONDS
    while pool.asleep < executor.n_threads - 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert pool.asleep == executor.n_threads - 1
    for _ in range(5):
        assert run_counts(executor, 7) == 7 * executor.n_threads


@pytest.mark.skipif(sys.platform != "linux", reason="needs sched_getcpu")
def test_workers_wake_on_other_cpus(monkeypatch):
    """Linux may leave them on the caller's CPU although another is idle."""
    executor, asked, usable = Executor(2), [], os.sched_getaffinity(0)
    if len(usable) < 2:
        pytest.skip("one CPU")
    separate_cpus = host.separate_cpus
    monkeypatch.setattr(
        host, "separate_cpus", lambda ids: asked.append([*ids]) or separate_cpus(ids)
    )
    assert run_counts(executor, 3) == 6
    assert asked == []
    pool, deadline = executor._pool, time.monotonic() + SECONDS
    while not pool.asleep and time.monotonic() < deadline:
        time.sleep(0.01)
    assert run_counts(executor, 3) == 6
    assert asked == [pool.ids] == [[thread.native_id for thread in pool.threads]]
    mine = os.sched_getaffinity(pool.ids[0])
    assert mine < usable and len(mine) == len(usable) - 1
    assert os.sched_getaffinity(0) == usable
    while not pool.asleep and time.monotonic() < deadline:
        time.sleep(0.01)
    executor.close()
    assert os.sched_getaffinity(0) == usable


@pytest.mark.skipif(sys.platform != "linux", reason="needs sched_setaffinity")
def test_a_system_may_forbid_the_choice_of_cpus(monkeypatch):
    def forbid(*_):
        raise PermissionError

    executor, deadline = Executor(2), time.monotonic() + SECONDS
    assert run_counts(executor, 3) == 6
    monkeypatch.setattr(os, "sched_setaffinity", forbid)
    while not executor._pool.asleep and time.monotonic() < deadline:
        time.sleep(0.01)
    assert run_counts(executor, 3) == 6


def test_change_of_threads():
    executor = Executor(2)
    assert run_counts(executor) == 200
    executor.n_threads = 4
    assert run_counts(executor) == 400
    executor.n_threads = 1
    assert run_counts(executor) == 100
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="at least 1"):
            executor.n_threads = wrong
    with pytest.raises(ValueError, match="at least 1"):
        Executor(0)


def test_two_executors():
    one, two = Executor(2), Executor(3)
    for _ in range(20):
        assert run_counts(one, 3) == 6
        assert run_counts(two, 3) == 9
    one.close()
    assert run_counts(two) == 300
    assert run_counts(one) == 200
    one.close()
    two.close()


def test_calls_from_several_threads(executor):
    totals = []

    def caller():
        totals.extend(run_counts(executor, 20) for _ in range(20))

    callers = [threading.Thread(target=caller) for _ in range(4)]
    for c in callers:
        c.start()
    for c in callers:
        c.join()
    assert totals == [20 * executor.n_threads] * 80


def test_dropped_executor_ends_its_threads():
    executor = Executor(3)
    run_counts(executor)
    threads = executor._pool.threads
    assert all(t.is_alive() for t in threads)
    del executor
    gc.collect()
    for t in threads:
        t.join(SECONDS)
    assert not any(t.is_alive() for t in threads)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_fork():
    """In an interpreter without other tests' threads, whose locks a child could find held."""
    done = script(
        "assert run_counts(executor) == 200\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(0 if run_counts(executor) == 200 else 1)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
        "assert run_counts(executor) == 200\n"
    )
    assert done.returncode == 0, done.stderr


def script(body: str) -> subprocess.CompletedProcess[str]:
    """Run Python that has `executor` and `run_counts` of this file at hand."""
    head = (
        "import importlib.util, os, signal, sys, threading, time\n"
        f"spec = importlib.util.spec_from_file_location({__name__!r}, {__file__!r})\n"
        f"here = sys.modules[{__name__!r}] = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(here)\n"
        "run_counts = here.run_counts\n"
        "executor = here.Executor(2)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", head + body], capture_output=True, text=True, timeout=SECONDS
    )


@pytest.mark.parametrize("crowded", [0, 1])
def test_nobody_misses_that_the_others_have_come(crowded):
    """Threads that do not spin, and sleep for ever if nobody wakes them: then this does not end."""
    done = script(
        "made = [here.Executor(n) for n in here.THREADS]\n"
        "for executor in made:\n"
        "    run_counts(executor, 1)\n"
        "    control = executor._pool.control\n"
        f"    control[{CROWDED}], control[{SPIN}], control[{TIMEOUT}] = {crowded}, 0, 10**9\n"
        "    for _ in range(20):\n"
        "        assert run_counts(executor, 200) == 200 * executor.n_threads\n"
        "        time.sleep(0.002)\n"  # workers fall asleep between runs, too
        "os._exit(0)\n"  # workers sleep, and would not see that the executor ends
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("rest", ["", "time.sleep(0.2)", "sys.exit(3)", "raise SystemExit(3)"])
def test_exit_does_not_hang(rest):
    done = script(f"run_counts(executor)\n{rest}\n")
    assert done.returncode == (3 if "3" in rest else 0), done.stderr
    assert done.stderr == ""


def test_interrupts_leave_the_pool_in_order():
    """KeyboardInterrupt at many moments of a long series of runs."""
    done = script(
        "main, seen = threading.main_thread().ident, 0\n"
        "def send(i):\n"
        "    time.sleep(i * 1e-4)\n"
        "    signal.pthread_kill(main, signal.SIGINT)\n"
        "run_counts(executor)\n"
        "for i in range(60):\n"
        "    thread = threading.Thread(target=send, args=(i,))\n"
        "    try:\n"
        "        thread.start()\n"
        "        while True:\n"
        "            assert run_counts(executor, 5) == 10\n"
        "    except KeyboardInterrupt:\n"
        "        seen += 1\n"
        "    thread.join()\n"
        "assert run_counts(executor) == 200\n"
        "print(seen == 60)\n"
    )
    assert done.stdout == "True\n", done.stdout + done.stderr
