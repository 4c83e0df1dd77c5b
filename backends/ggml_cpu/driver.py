"""The native side of the executor: how threads run a program together, and how they wait."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel

# The control block, int64 words; words that different threads write are on different cache lines.
GENERATION = 0  # runs started so far
PROGRAM, STEPS, TIMES, QUIT = 16, 17, 18, 19
ARRIVED = 32  # threads at the barrier
PASSED = 48  # barriers passed so far
ASLEEP = 56  # threads that sleep, at a barrier or for the next run
TIMEOUT = 20  # seconds, ns: of a sleep
SPIN = 23  # ns that a thread spins before it sleeps
CROWDED = 22  # whether there are more threads than cores: they pass them on to each other
SEEN = 64  # + 16 * ith: the generation thread ith ran last
WORDS_PER_THREAD = 16

# A thread that waits spins, which is quickest where the others have cores of their own; for longer
# than they may differ over a large product. After that a core is shared, and it sleeps. Who slept
# goes on when the others have come; who yields, when a neighbour's turn has ended. It does not spin
# less the next time: who sleeps comes late, and the others would sleep at the next barrier for it.
SPIN_NS = 100_000  # of threads with cores of their own
PAUSES = 64  # between two looks at the clock
IDLE_NS = 20_000_000  # without work for this long, a worker goes to sleep in Python

# An entry of a program, int64 words. Thread ith gets the block at BLOCK + ith * STRIDE.
KERNEL, BLOCK, STRIDE, HOW, ENTRY_WORDS = 0, 1, 2, 3, 4
MEET, OWN = 1, 2  # HOW: a barrier follows; every thread runs all of it, for itself


@fn
def spin_while(control, word, value):
    """Wait until the word of the control block has another value, but not for long."""
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
    """Give the core away while the word of the control block has this value; or less long."""
    v.atomic_add(control + 8 * ASLEEP, 1)
    v.sleep_while(control + 8 * word, value, control + 8 * TIMEOUT)
    v.atomic_add(control + 8 * ASLEEP, -1)


@fn
def go_on(control, word):
    """Change the word, so that whoever waits for that goes on."""
    v.atomic_add(control + 8 * word, 1)
    if v.atomic_load(control + 8 * ASLEEP) != 0:
        v.wake(control + 8 * word)


@fn
def barrier(control, nth):
    """Wait until all threads are here."""
    passed = v.atomic_load(control + 8 * PASSED)
    if v.atomic_add(control + 8 * ARRIVED, 1) == nth - 1:
        v.atomic_store(control + 8 * ARRIVED, 0)
        go_on(control, PASSED)
        return
    spin_while(control, PASSED, passed)
    while v.atomic_load(control + 8 * PASSED) == passed:
        if v.ld_i64(control + 8 * CROWDED) != 0:
            v.sched_yield()
        else:
            sleep_while(control, PASSED, passed)


@fn
def run_steps(control, ith, nth):
    """One thread's part of the program in the control block."""
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
    if times != 0 and ith == 0:  # of other threads it might be too late
        v.st_i64(mine + 16 * n, v.nanoseconds())


@kernel(name="executor_pass")
def nothing(p, ith, nth):
    """A step that takes no time: what is left is the barrier after it."""


@kernel(name="executor_launch")
def launch(control, ith, nth):
    """Thread 0: start a run and take part in it; returns when every step is done."""
    go_on(control, GENERATION)
    run_steps(control, 0, nth)


@kernel(name="executor_work")
def work(control, ith, nth):
    """Other threads: take part in runs until told to quit, or idle for IDLE_NS."""
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
