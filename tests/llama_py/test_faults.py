"""What goes wrong around a context: forks, models and generators that are let go of, no memory."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import numpy as np
import pytest

import llama_py
from ggml_py.errors import ContextError
from ggml_py.plan.device_threads import DeviceThreads
from llama_py import Context
from tests.support.alone import holds_in_fork, run_alone
from tests.support.commands import DEMO, clean_environment
from tests.support.limits import SECONDS
from tests.support.live_models import live, tokens

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")


def decode_in_fork() -> None:
    ctx, text = Context(live("llama-dense", "cpu"), n_ctx=64, n_threads=2), tokens(8)
    want = ctx.decode(text, "all")
    ctx.memory.seq_rm(0, 6)
    assert holds_in_fork(lambda: np.array_equal(ctx.decode(text[6:], "all"), want[6:]))
    assert np.array_equal(ctx.decode(text[6:], "all"), want[6:])


@needs_fork
def test_a_context_goes_on_in_a_forked_process() -> None:
    run_alone(decode_in_fork)


def run_crew_in_fork() -> None:
    crew, done = DeviceThreads(), list[int]()

    def all_do() -> bool:
        done.clear()
        crew.run([lambda: done.append(1)] * 3)
        return len(done) == 3

    assert all_do()
    assert holds_in_fork(all_do)
    assert all_do()


@needs_fork
def test_a_crew_goes_on_in_a_forked_process() -> None:
    run_alone(run_crew_in_fork)


def test_a_model_that_is_let_go_of_during_a_stream() -> None:
    model = llama_py.load()
    want = model.generate("ROMEO:", max_tokens=6, temp=0)
    pieces = model.stream("ROMEO:", max_tokens=6, temp=0)
    text = next(pieces).text
    del model
    gc.collect()
    assert text + "".join(piece.text for piece in pieces) == want


def test_a_context_that_is_closed_during_a_stream() -> None:
    ctx = llama_py.load().context(n_ctx=64)
    pieces = llama_py.stream(ctx, [1, 2, 3], max_tokens=6)
    next(pieces)
    ctx.close()
    with pytest.raises(ContextError, match="closed"):
        list(pieces)


def test_a_generator_that_is_closed_early() -> None:
    ctx = llama_py.load().context(n_ctx=64)
    whole = "".join(p.text for p in llama_py.stream(ctx, [1, 2, 3], max_tokens=6))
    ctx.clear()
    pieces = llama_py.stream(ctx, [1, 2, 3], max_tokens=6)
    next(pieces)
    pieces.close()
    ctx.clear()
    again = "".join(p.text for p in llama_py.stream(ctx, [1, 2, 3], max_tokens=6))
    assert again == whole


LIMITED = """
import resource, sys
import llama_py
from ggml_py.errors import AllocError

model = llama_py.load(sys.argv[1])
ctx = model.context(n_ctx=64, n_threads=2)
ctx.decode([1, 2, 3])
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20),) * 2)
kept = []
for way in (
    lambda: model.context(n_ctx=1 << 20),
    lambda: kept.extend(llama_py.load(sys.argv[1]) for _ in range(100)),
):
    try:
        way()
        print("there was enough")
    except AllocError as e:
        print(e)
kept.clear()
print(ctx.decode([4]).shape)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_memory_that_cannot_be_had() -> None:
    """One line that says how much and what to do; what is there goes on."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(DEMO)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=clean_environment(),
    )
    context, weights, shape = done.stdout.splitlines()
    assert "cannot allocate 512.0 MiB" in context and "use a smaller n_ctx" in context
    assert "MiB cannot be mapped" in weights or "cannot allocate" in weights
    assert shape == "(1, 2048)", done.stderr
