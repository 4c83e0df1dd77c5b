"""Programs over ranks in which something goes wrong: `python -m tests.mpi.failing WHAT`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from ggml_mpi import exchange, orders, plan, script
from ggml_mpi.order import Order
from ggml_mpi.world import world

WRONG = "a step that fails"
COUNT = 5  # runs


class Planted:
    """Steps that are counted down to the one that fails; 0: none does."""

    left = 0

    @classmethod
    def passed(cls) -> None:
        cls.left -= 1
        if cls.left == 0:
            raise ValueError(WRONG)


def plant(obey: Callable[..., None]) -> Callable[..., None]:
    """Of runs of programs, which nobody waits for by themselves; Join is another order."""

    @wraps(obey)
    def run(self: Any, here: Any) -> None:
        if type(self) is orders.RunProgram:
            Planted.passed()
        obey(self, here)

    return run


@dataclass(frozen=True, kw_only=True)
class Plant(Order):
    """The step that fails from now on, and how many have passed since the last such order."""

    step: int

    def obey(self, here: Any) -> int:
        before, Planted.left = Planted.left, self.step
        return -before


@dataclass(frozen=True, kw_only=True)
class Wrong(Order):
    """Fails where another rank waits, or where none does."""

    meets: bool

    def obey(self, here: Any) -> None:
        raise ValueError(WRONG)


@dataclass(frozen=True, kw_only=True)
class Sleep(Order):
    def obey(self, here: Any) -> None:
        threading.Event().wait()


def main() -> int:
    orders.RunProgram.obey = plant(orders.RunProgram.obey)  # type: ignore[method-assign]
    if world().rank:
        from ggml_mpi.worker import serve

        serve()
        return 0
    what, *more = sys.argv[1:]
    PROGRAMS[what](*more)
    return 0


def context(how: str) -> Any:
    """A tiny model on all ranks."""
    from llama_py.context import Context
    from llama_py.weights.placement import Placement, arrange_devices, devices_in_use
    from tests.support.live_models import made, model_of
    from tests.support.split_models import EXACT, HEADS

    n = world().size
    found, order = arrange_devices(
        devices_in_use([f"mpi{i}" for i in range(n)]), how, 0, [2.0**i for i in range(n)]
    )
    model = model_of(
        *made("llama-dense", **HEADS), Placement(found, tensor_split=order, split_mode=how)
    )
    return Context(model, **{**EXACT, "n_ubatch": 256})


def every_run(how: str, n_tokens: str = "1") -> None:
    """A model; each rank fails at its first, a middle and its last step of the first, a middle and
    the last run. Every other run is as without."""
    import numpy as np

    from tests.support.split_models import IDS

    n, ctx = world().size, context(how)

    def run(i: int) -> Any:
        ctx.memory.seq_rm(0, i, -1)
        return np.array(ctx.decode((IDS * 3)[i : i + int(n_tokens)]))

    expected = [run(i) for i in range(COUNT)]
    n_steps = steps(lambda: run(COUNT - 1))
    for rank in range(n):
        last = n_steps[rank]
        for i in (0, COUNT // 2, COUNT - 1):
            for step in sorted({1, (last + 1) // 2, last}):
                told = None
                for j in range(COUNT):
                    set_step(rank, step if j == i else 0)
                    try:
                        same = (run(j) == expected[j]).all()
                        assert same, f"run {j} of one with rank {rank}'s {i} wrong is another"
                    except ValueError as e:
                        assert j == i, f"run {j} is told of what was wrong in {i}"
                        told = str(e)
                        run(j)
                assert told and told.startswith(f"rank {rank} (") and WRONG in told, (rank, i, told)
                print(f"{how}: rank {rank}, run {i}, step {step} of {last}: {told}", flush=True)


def steps(run: Callable[[], object]) -> list[int]:
    """How many of a run there are, by rank."""
    set_all(0)
    run()
    return set_all(0)


def set_all(step: int) -> list[int]:
    return [set_step(rank, step) for rank in range(world().size)]


def set_step(rank: int, step: int) -> int:
    if rank:
        return int(world().ask(rank, Plant(step=step)))
    return Plant(step=step).obey(None)


plainly_tried = exchange.catch_failure


def tried(step: Callable[[], object]) -> Exception | None:
    """As of rank 0's own part of a run, and of pieces."""

    def counted() -> None:
        Planted.passed()
        step()

    return plainly_tried(counted)


plan.catch_failure = exchange.catch_failure = tried


def in_pieces() -> None:
    """A prompt whose sums leave in pieces has the logits of one whose do not. Tells how many
    messages rank 0 has sent for each."""
    import os

    from ggml_mpi import pieces
    from tests.support.split_models import IDS

    found, ids = [], (IDS * 4)[:250]
    for n in ("1", "2", "8"):
        os.environ["LLAMA_PY_MPI_PIECES"] = n
        pieces.count_pieces.cache_clear()
        ctx = context("graph")
        ctx.decode(ids, logits="all")
        ctx.clear()
        before = world().sent.n
        found.append(ctx.decode(ids, logits="all"))
        print(n, world().sent.n - before)
    assert all((one == found[0]).all() for one in found)


def ctrl_c() -> None:
    """It comes between programs, and after what the ranks do together."""
    import signal

    from ggml_cpu import program
    from ggml_cpu.executor import Executor
    from tests.support.split_models import IDS

    signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored here
    program.SLICE_SECONDS = 0.0  # this rank looks for it after each node
    ctx = context("graph")
    want, run = ctx.decode(IDS), Executor.run
    ctx.clear()

    def pressed(self: Executor, *args: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        run(self, *args)

    Executor.run = pressed  # type: ignore[method-assign]
    try:
        ctx.decode(IDS)
        print("it did not come")
    except KeyboardInterrupt:
        print("it came")
    Executor.run = run  # type: ignore[method-assign]
    ctx.clear()
    assert (ctx.decode(IDS) == want).all()


def ends() -> None:
    """Nothing goes wrong."""
    world().tell(1, Plant(step=0))


def never_told() -> None:
    """The last thing before the end; rank 0 asks for nothing that comes of it."""
    play(1, Wrong(meets=False))


def waited_for() -> None:
    """What fails in rank 1 is what rank 0 waits for."""
    play(1, Wrong(meets=True))
    world().receive(1, _bytes())


def at_first(when: str) -> None:
    """What fails in rank 0, in a plan, is what rank 1 waits for."""
    import numpy as np

    from ggml_py.backend.registry import devices
    from ggml_py.graph import Graph

    devices("mpi")
    keep(orders.Receive(buffer=devices("mpi")[1].alloc(4), offset=0, size=4, source=0))
    made = plan.RankPlan(world(), Graph(), [])
    made.handles = {1: 1}
    made.parts.given = {1: []}

    def fails() -> None:
        raise ValueError(WRONG)

    def gives() -> None:
        world().send(1, np.zeros(4, np.uint8))

    for i in range(COUNT):
        is_wrong = i == {"first": 0, "last": COUNT - 1}[when]
        made.parts.here = [(fails if is_wrong else gives, True)]
        made.run()


def does_not_end() -> None:
    world().tell(1, Sleep())


def left_half_done() -> None:
    """Rank 1 waits for bytes that do not come."""
    from ggml_mpi.wire import RankMemory

    world().tell(1, orders.Write(buffer=RankMemory(1, 1), offset=0, size=8))  # type: ignore[arg-type]


def unreadable() -> None:
    """Not an order that fails, but the rank."""
    world()._leave(1, b"what no order is")
    world().receive(1, _bytes())


def play(rank: int, *what: Order) -> None:
    keep(*what, rank=rank)
    world().tell(rank, script.Play(handle=1, given=b""))


def keep(*what: Order, rank: int = 1) -> None:
    world().tell(rank, script.Keep(handle=1, orders=what))


def _bytes() -> Any:
    import numpy as np

    return np.zeros(4, np.uint8)


PROGRAMS: dict[str, Callable[..., None]] = {
    f.__name__: f
    for f in (
        every_run,
        in_pieces,
        ctrl_c,
        ends,
        never_told,
        waited_for,
        at_first,
        does_not_end,
        left_half_done,
        unreadable,
    )
}

if __name__ == "__main__":
    sys.exit(main())
