"""The native side of the executor: threads run a program together, spin and sleep at barriers."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel

# Control block, int64 words. Words that different threads write are on separate cache lines.
GENERATION = 0  # number of runs started
PROGRAM, STEPS, TIMES, QUIT = 16, 17, 18, 19
ARRIVED = 32  # threads at the barrier
PASSED = 48  # number of barriers passed
ASLEEP = 56  # threads asleep, at a barrier or until the next run
TIMEOUT = 20  # two words, seconds and ns: maximum time of one sleep
SPIN = 23  # ns that a thread spins before it sleeps
CROWDED = 22  # 1 if there are more threads than cores: waiting threads call sched_yield
SEEN = 64  # + 16 * ith: last generation that thread ith ran
WORDS_PER_THREAD = 16

# Waiting threads spin, the fastest way if every thread has a core, and for longer than threads
# differ on a large matmul. A longer wait means that a thread shares its core, so the waiting thread
# sleeps. A futex wakes it when the barrier opens; sched_yield returns only when the other process's
# time slice ends. Do not shorten the next spin: a woken thread arrives late at the next barrier, so
# the others would then sleep as well.
SPIN_NS = 100_000  # default for at most one thread per core
PAUSES = 64  # pause instructions between two clock reads
IDLE_NS = 20_000_000  # a worker idle for this long sleeps in Python

# Program entry, int64 words. Thread ith gets the parameter block at BLOCK + ith * STRIDE.
KERNEL, BLOCK, STRIDE, HOW, ENTRY_WORDS = 0, 1, 2, 3, 4
MEET, OWN = 1, 2  # flags of HOW: a barrier follows; each thread runs the whole kernel (nth = 1)


@fn
def spin_while(control, word, value):
    """Spin until a word of the control block differs from `value`, or about SPIN ns have passed."""
    until = 0
    spins = 0
    while v.atomic_load(control + 8 * word) == value:
        v.pause()
        spins += 1
        if spins % PAUSES == 0:
            now = v.nanoseconds()
            if until == 0:
                until = now + v.ld_i64(control + 8 * SPIN)
            if now >= until:
                return


@fn
def sleep_while(control, word, value):
    """Sleep while a word of the control block equals `value`, up to TIMEOUT; may return early."""
    v.atomic_add(control + 8 * ASLEEP, 1)
    v.sleep_while(control + 8 * word, value, control + 8 * TIMEOUT)
    v.atomic_add(control + 8 * ASLEEP, -1)


@fn
def increment_and_wake(control, word):
    """Increment a word of the control block and wake the threads that wait on this word."""
    v.atomic_add(control + 8 * word, 1)
    if v.atomic_load(control + 8 * ASLEEP) != 0:
        v.wake(control + 8 * word)


@fn
def barrier(control, nth):
    """Wait until all `nth` threads have arrived."""
    passed = v.atomic_load(control + 8 * PASSED)
    if v.atomic_add(control + 8 * ARRIVED, 1) == nth - 1:
        v.atomic_store(control + 8 * ARRIVED, 0)
        increment_and_wake(control, PASSED)
        return
    spin_while(control, PASSED, passed)
    while v.atomic_load(control + 8 * PASSED) == passed:
        if v.ld_i64(control + 8 * CROWDED) != 0:
            v.sched_yield()
        else:
            sleep_while(control, PASSED, passed)


@fn
def run_steps(control, ith, nth):
    """Run one thread's part of the program in the control block, and record times if wanted."""
    step = v.ld_i64(control + 8 * PROGRAM)
    n = v.ld_i64(control + 8 * STEPS)
    times = v.ld_i64(control + 8 * TIMES)
    mine = times + 16 * ith * (n + 1)
    for i in range(n):
        if times != 0:
            v.st_i64(mine + 16 * i, v.nanoseconds())
        how = v.ld_i64(step + 8 * HOW)
        block = v.ld_i64(step + 8 * BLOCK) + ith * v.ld_i64(step + 8 * STRIDE)
        if how & OWN:
            v.call_kernel(v.ld_i64(step + 8 * KERNEL), block, 0, 1)
        else:
            v.call_kernel(v.ld_i64(step + 8 * KERNEL), block, ith, nth)
        if times != 0:
            v.st_i64(mine + 16 * i + 8, v.nanoseconds())
        if nth > 1 and how & MEET:
            barrier(control, nth)
        step += 8 * ENTRY_WORDS
    if times != 0 and ith == 0:  # other threads may write after the caller returns
        v.st_i64(mine + 16 * n, v.nanoseconds())


@kernel(name="executor_pass")
def empty_pass(p, ith, nth):
    """Do no work, to measure the barrier after the step."""


@kernel(name="executor_launch")
def launch(control, ith, nth):
    """Start a run as thread 0 and run its part; return when every step is finished."""
    increment_and_wake(control, GENERATION)
    run_steps(control, 0, nth)


@kernel(name="executor_work")
def work(control, ith, nth):
    """Run parts of runs as worker thread `ith`, until QUIT is set or it was idle for IDLE_NS."""
    seen = control + 8 * (SEEN + WORDS_PER_THREAD * ith)
    idle_since = 0
    while True:
        generation = v.atomic_load(control + 8 * GENERATION)
        if generation == v.ld_i64(seen) and idle_since == 0:
            spin_while(control, GENERATION, generation)
            generation = v.atomic_load(control + 8 * GENERATION)
        if generation != v.ld_i64(seen):
            v.st_i64(seen, generation)
            if v.ld_i64(control + 8 * QUIT) != 0:
                return
            run_steps(control, ith, nth)
            idle_since = 0
        else:
            sleep_while(control, GENERATION, generation)
            now = v.nanoseconds()
            if idle_since == 0:
                idle_since = now
            elif now - idle_since > IDLE_NS:
                return
