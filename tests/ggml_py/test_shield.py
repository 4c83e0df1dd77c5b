"""Ctrl-C in shielded blocks: it is noted, and raised at their end or where they look for it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

import ggml_ref
from ggml_py import ops
from ggml_py.backend import registry
from ggml_py.graph import Graph
from ggml_py.machine.shield import Seal, Shield, let_through, raise_noted
from ggml_py.plan import Plan
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import Tensor
from ggml_ref.backend import RefProgram


@pytest.fixture(autouse=True)
def _own_handler() -> Iterator[None]:
    """Python's own handler before and after a test."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_it_comes_after_the_outermost_block_once() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), Shield():
        with Shield():
            press()
            done.append(1)
        press()
        done.append(2)
    assert done == [1, 2]
    with Shield():
        raise_noted()


def test_it_comes_afterwards_if_another_thread_gets_the_signal() -> None:
    over, done = threading.Event(), []
    other = threading.Thread(target=over.wait)
    other.start()
    came, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell)
    try:
        with pytest.raises(KeyboardInterrupt), Shield():
            assert other.ident is not None
            signal.pthread_kill(other.ident, signal.SIGINT)
            assert os.read(came, 1)  # that thread has got it
            done.append(1)
    finally:
        signal.set_wakeup_fd(-1)
        os.close(came)
        os.close(tell)
        over.set()
        other.join()
    assert done


@pytest.mark.parametrize("inner", [press, lambda: None])
def test_it_is_let_through_within_any_number_of_blocks(inner: Callable[[], None]) -> None:
    """Also if it came before."""
    done = []
    with Shield(), Shield():
        if inner is not press:
            press()
        with pytest.raises(KeyboardInterrupt):
            let_through(lambda: (inner(), done.append(1)))
        assert let_through(lambda: 5) == 5
        raise_noted()
    assert not done


def test_it_is_raised_where_the_main_thread_looks() -> None:
    found: list[BaseException] = []

    def look() -> None:
        try:
            raise_noted()
        except KeyboardInterrupt as e:
            found.append(e)

    with Shield():
        press()
        other = threading.Thread(target=look)
        other.start()
        other.join()
        assert not found
        with pytest.raises(KeyboardInterrupt):
            raise_noted()


@pytest.mark.parametrize("outer", [Shield, Seal])
def test_a_seal_lets_nothing_through(outer: type[Shield]) -> None:
    """Other ranks wait for what is done in it."""
    done = []
    with pytest.raises(KeyboardInterrupt), outer():
        with Seal():
            press()
            raise_noted()
            let_through(press)
            done.append(1)
        if outer is Seal:
            raise_noted()
            done.append(2)
        raise_noted()
        done.append(3)
    assert done == ([1, 2, 3] if outer is Seal else [1])


def test_other_handlers_are_left_alone() -> None:
    came = []
    before = signal.signal(signal.SIGINT, lambda *_: came.append(1))
    try:
        with Shield():
            press()
            assert came
            raise_noted()
    finally:
        signal.signal(signal.SIGINT, before)


def chain(n: int, watch: Callable[[Tensor], None] | None = None) -> Plan:
    """A plan of n nodes, each of the one before."""
    assert ggml_ref
    device, graph, t = registry.device("ref"), Graph(), Tensor(ne=(4,))
    for i in range(n):
        t = ops.scale(t, 2.0).set_name(f"node {i}")
    graph.build_forward_expand(t)
    return Scheduler([device], watch=watch).plan(graph)


def test_a_program_ends_at_the_node_at_which_it_comes() -> None:
    plan, done = chain(3), list[str]()
    program = plan.splits[0].program
    assert isinstance(program, RefProgram)

    def step(node: Tensor) -> None:
        done.append(node.name)
        if node.name == "node 1":
            press()

    program.steps[:] = [(step, node) for _, node in program.steps]
    with pytest.raises(KeyboardInterrupt), Shield():
        plan.run()
    assert done == ["node 0", "node 1"]


def test_a_plan_ends_at_the_split_at_which_it_comes() -> None:
    ran = list[int]()

    class Program:
        def run(self) -> None:
            ran.append(1)
            press()

    whole = chain(1)
    split = whole.splits[0]
    twice = [type(split)(split.device, [], [], [], Program()) for _ in range(2)]
    with pytest.raises(KeyboardInterrupt), Shield():
        Plan(whole.graph, twice).run()
    assert ran == [1]


def test_it_interrupts_whoever_watches() -> None:
    seen = list[str]()

    def watch(node: Tensor) -> None:
        press()
        seen.append(node.name)

    with Shield(), pytest.raises(KeyboardInterrupt):
        chain(2, watch).run()
    assert not seen
