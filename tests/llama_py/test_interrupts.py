"""Ctrl-C at any line of `decode`: no hang, and the context then gives the right logits.

A seeded sample of lines; `dev/torture/interrupts.py` takes all of them.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from itertools import islice
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from dev.torture.interrupts import Lines, Story, bombarded, broken
from ggml_cpu.driver import empty_pass
from ggml_cpu.executor import Executor, in_turn
from ggml_cpu.objcache import load_kernels
from ggml_py.errors import BackendError, ContextError
from ggml_py.plan import Plan
from ggml_py.plan.device_threads import DeviceThreads, _Errand
from llama_py.batch import Batch
from llama_py.context import Context
from tests.support.limits import SECONDS
from tests.support.live_models import live, nmse, tokens

# keys and values, with a window, states beside them, states alone
MODELS = ["llama-dense", "gemma3-dense", "qwen35moe-moe", "mamba-dense"]


def story(name: str, **options: Any) -> Story:
    ctx = Context(live(name, "cpu"), n_ctx=64, n_ubatch=4, n_threads=2)
    text = tokens(12)
    found = Story(ctx, [text[:10], text[10:11], text[11:]], **options)
    found.read()
    return found


def some(told: Story, at: int, n: int) -> list[int]:
    """Lines of a piece: most of them of what keeps the books."""
    files = told.lines(at)
    books = [i for i, file in enumerate(files) if "/memory/" in file or "executor" in file]
    rng = random.Random(len(files))
    return [*rng.sample(books, min(n, len(books))), *rng.sample(range(len(files)), n // 3)]


@pytest.mark.parametrize("name", MODELS)
def test_a_decode_goes_on_after_an_interrupt(name: str) -> None:
    told = story(name)
    for at in (0, 1):
        assert not list(broken(told, at, some(told, at, 18)))


@pytest.mark.parametrize("n_seqs", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_tokens_that_follow_tokens(name: str, n_seqs: int) -> None:
    """They go a way of their own (llama_py/context/next_token.py)."""
    how = {"n_seq_max": n_seqs, "kv_unified": True, "n_threads": 2}
    ctx, ids = Context(live(name, "cpu"), n_ctx=64 * n_seqs, **how), tokens(8)
    together = [(s,) for s in range(n_seqs)]

    def step(i: int) -> Any:
        return ctx.decode(Batch([ids[i]] * n_seqs, seq_ids=together), "all")

    want = [step(i) for i in range(8)][6]
    n, lines, where = 0, 0, "begin"
    while where:
        ctx.clear()
        for i in range(5):
            step(i)
        before = ctx.n_followed
        assert before
        with Lines(n) as told:
            step(5)
        n, where = n + (5 if n_seqs == 1 else 13), told.where
        assert where or ctx.n_followed > before
        for s in range(n_seqs):
            for i in range(ctx.memory.seq_pos_max(s) + 1, 6):
                ctx.decode([ids[i]], seq_id=s)
        assert nmse(want, step(6)) < 1e-9, where
        lines += 1
    assert lines > 10


def test_an_interrupt_while_graphs_are_built() -> None:
    told = story("qwen35moe-moe", fresh=True)
    assert not list(broken(told, 0, some(told, 0, 6)))


def test_an_interrupt_while_keys_are_rotated() -> None:
    """Where some may be and others not, the sequence is gone."""

    def move(ctx: Context, at: int) -> None:
        if at == 1:
            ctx.memory.seq_rm(0, 0, 2)
            ctx.memory.seq_add(0, 2, -1, -2)

    told = story("llama-dense", before=move)
    files = told.lines(1)
    turning = [i for i, file in enumerate(files) if "executor" in file or "k_shift" in file]
    assert not list(broken(told, 1, turning[-40::2]))


def test_sequences_whose_keys_a_device_did_not_rotate_are_gone(monkeypatch: Any) -> None:
    ctx, text = Context(live("llama-dense", "cpu"), n_ctx=64, n_seq_max=2), tokens(8)
    want = ctx.decode(text)
    ctx.decode(text, seq_id=1)
    ctx.memory.seq_rm(0, 0, 2)
    ctx.memory.seq_add(0, 2, -1, -2)

    def fail(*_: Any) -> None:
        raise BackendError("failed")

    with monkeypatch.context() as patch, pytest.raises(BackendError):
        patch.setattr(Plan, "run", fail)
        ctx.decode([1])
    assert [ctx.memory.seq_pos_max(s) for s in (0, 1)] == [-1, 7]
    np.testing.assert_array_equal(ctx.decode(text), want)


def test_an_interrupt_in_what_is_called_back_comes_at_once() -> None:
    """It may wait for a user, or loop."""
    ctx, text = Context(live("llama-dense", "cpu"), n_ctx=64), tokens(3)
    want, seen = [ctx.decode([id]) for id in text], list[int]()

    def press(*_: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        seen.append(1)

    ctx.clear()
    for id, rows in zip(text, want, strict=True):
        ctx.on_graph = press
        with pytest.raises(KeyboardInterrupt):
            ctx.decode([id])
        ctx.on_graph = None
        np.testing.assert_array_equal(ctx.decode([id]), rows)
    assert not seen


def test_a_window_that_forgets() -> None:
    """What was overwritten is gone as well, though its cells are not the ubatch's."""
    ctx = Context(live("gemma3-dense", "cpu"), n_ctx=64, n_ubatch=4, n_threads=2)
    text = tokens(40)
    told = Story(ctx, [text[:30], text[30:36], text[36:]])
    told.read()
    assert not list(broken(told, 1, some(told, 1, 24)))


def test_a_second_interrupt_while_the_first_is_dealt_with(monkeypatch: Any) -> None:
    told = story("llama-dense")
    want = told.ctx.clear() or np.concatenate(told.read())
    forget, n, where = type(told.ctx.memory).discard, 0, "begin"
    while where:
        told.ctx.clear()
        lines = Lines(n)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(told.ctx, "_run_graph", interrupted)
            patch.setattr(type(told.ctx.memory), "discard", at_each_line(lines, forget))
            told.ctx.decode(told.pieces[0], "all")
        n, where = n + 1, lines.where
        assert np.array_equal(np.concatenate(told.read()), want), where
    assert n > 20


def interrupted(*args: Any) -> None:
    """Takes the place of the computation of a ubatch that has its place in memory."""
    raise KeyboardInterrupt


def at_each_line(lines: Lines, function: Callable[..., Any]) -> Callable[..., Any]:
    def traced(*args: Any) -> Any:
        with lines:
            return function(*args)

    return traced


@pytest.mark.parametrize(
    ("name", "n_threads"), [*((name, 1) for name in (*MODELS, "deepseek4-moe")), (MODELS[0], 2)]
)
def test_signals_at_random_times(name: str, n_threads: int) -> None:
    ctx = Context(live(name, "cpu"), n_ctx=64, n_ubatch=4, n_threads=n_threads)
    text = tokens(9)
    told = Story(ctx, [text[:6], text[6:7], text[7:8], text[8:]])
    told.read()
    assert all(is_right for is_right, _ in islice(bombarded(told), 20))


def test_threads_of_a_device_run_after_an_interrupt_at_any_line() -> None:
    """No lock stays held."""
    executor, kernel = Executor(2), load_kernels([empty_pass])[empty_pass.name]
    program = in_turn([(kernel, 0)])
    how = int(program.ctypes.data), len(program)
    executor.run(*how)
    with Lines() as lines:
        executor.run(*how)
    for n in range(len(lines.files)):
        with Lines(n):
            executor.run(*how)
        pool = executor._pool
        assert pool is not None
        for lock in (pool.running, pool.wake):
            assert lock.acquire(timeout=SECONDS)
            lock.release()
        executor.run(*how)


def test_what_devices_do_at_the_same_time_is_waited_for() -> None:
    """The crew, at each of its lines."""
    crew, done = DeviceThreads(), list[int]()
    tasks = [lambda: None, lambda: done.append(1)]
    with Lines() as lines:
        crew.run(tasks)
    for n in range(len(lines.files)):
        done.clear()
        with Lines(n):
            crew.run(tasks)
        crew.run(tasks)
        assert done


@pytest.mark.parametrize("n", [2, 3])
def test_what_is_not_begun_is_taken_back(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted between two that are told, the crew is left with nothing to do.

    What has begun ends once the crew waits for it, or once it says that it has ended. A queue is
    no Python: an interrupt does not leave it locked.
    """
    crew, done, go_on = DeviceThreads(), list[int](), SimpleQueue[None]()

    def slow() -> None:
        go_on.get(timeout=SECONDS)
        done.append(1)

    def release() -> None:
        for _ in range(n):
            go_on.put(None)

    def wait(errand: Any, wait: Any = _Errand.wait) -> None:
        release()
        wait(errand)

    monkeypatch.setattr(_Errand, "wait", wait)
    with Lines() as lines:
        crew.run([lambda: None] * n)
    for at in range(len(lines.files)):
        go_on = SimpleQueue()
        with Lines(at):
            crew.run([lambda: None, *[slow] * (n - 1)])
        told = len(done)
        release()
        crew.run([lambda: None] * n)  # behind what was left
        assert len(done) == told


CHANGES: dict[str, Callable[[Context], Any]] = {
    "rm": lambda ctx: ctx.memory.seq_rm(0),
    "rm the end": lambda ctx: ctx.memory.seq_rm(0, 5),
    "rm all": lambda ctx: ctx.memory.seq_rm(-1),
    "cp": lambda ctx: ctx.memory.seq_cp(0, 2),
    "keep": lambda ctx: ctx.memory.seq_keep(1),
    "take": lambda ctx: ctx.memory.seq_copy_prefix(0, 1, 4),
    "add": lambda ctx: ctx.memory.seq_add(0, 0, -1, 3),
    "div": lambda ctx: ctx.memory.seq_div(0, 0, -1, 2),
    "clear": lambda ctx: ctx.clear(),
}
FORMS = [
    ("llama-dense", {"kv_unified": False}),
    ("llama-dense", {"kv_unified": True}),
    ("qwen35moe-moe", {"n_rs_seq": 4}),
    ("mamba-dense", {}),
]


@pytest.mark.parametrize(("name", "options"), FORMS)
@pytest.mark.parametrize("change", CHANGES)
def test_sequences_change_entirely_or_not_at_all(
    name: str, options: dict[str, Any], change: str
) -> None:
    ctx = Context(live(name, "cpu"), n_ctx=96, n_seq_max=3, n_ubatch=16, n_threads=1, **options)
    text = tokens(20)
    ctx.decode(text[:8], "none")
    ctx.decode(text[8:14], "none", seq_id=1)
    ctx.decode(text[14:], "none", seq_id=2)
    before = ctx.save_state()
    try:
        CHANGES[change](ctx)
    except ContextError:
        assert ctx.save_state() == before
        return
    after, n = ctx.save_state(), 0
    while True:
        ctx.load_state(before)
        with Lines(n) as lines:
            CHANGES[change](ctx)
        assert ctx.save_state() in (before, after), lines.where
        if not lines.where:
            break
        n += 1 + (change == "take") * 10
    assert n > 10


def test_a_state_is_read_entirely_or_not_at_all() -> None:
    ctx = Context(live("qwen35moe-moe", "cpu"), n_ctx=64, n_seq_max=2, n_threads=1)
    states = []
    for text in (tokens(6), tokens(9)[6:]):
        ctx.clear()
        ctx.decode(text, "none")
        states.append(ctx.save_state(0))
    n = 0
    while True:
        ctx.load_state(states[0], 0)
        with Lines(n) as lines:
            ctx.load_state(states[1], 0)
        assert ctx.save_state(0) in states, lines.where
        if not lines.where:
            break
        n += 7
