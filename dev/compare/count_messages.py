#!/usr/bin/env python3
"""Count the MPI messages and bytes of each rank for one token of a tiny model.

    mpiexec -n 2 python -m dev.compare.count_messages graph llama-dense
    mpiexec -n 4 python -m dev.compare.count_messages --orders tp=2,pp=2 llama-dense

With --orders, each action is a separate message; by default, a run is one message. Needs a
checkout, and `pip install '.[mpi]'`.
"""

from __future__ import annotations

import sys

from ggml_mpi.world import world

N_TOKENS = 4
Counts = list[tuple[int, int]]


def main() -> int:
    if world().rank:
        from ggml_mpi.worker import serve

        serve()
        return 0
    from ggml_mpi.plan import RankPlan
    from ggml_py.plan import Plan

    words = [word for word in sys.argv[1:] if word != "--orders"]
    if len(words) < len(sys.argv) - 1:
        RankPlan.run = Plan.run  # type: ignore[method-assign]
    for name in words[1:]:
        found = _of_a_token(name, words[0])
        each = ", ".join(f"{n:g} ({size:g} B)" for n, size in found)
        print(f"{name}: {sum(n for n, _ in found):g} messages, by rank {each}", flush=True)
    return 0


def _of_a_token(name: str, how: str) -> list[tuple[float, float]]:
    from dev.compare.compare_ranks import placement
    from llama_py.context import Context
    from tests.support.live_models import made, model_of
    from tests.support.split_models import EXACT, IDS, KEYS

    ctx = Context(model_of(*made(name, **KEYS.get(name, {})), placement(how)), **EXACT)
    for i in range(4):  # the last decodes use the graph of one token
        ctx.decode(IDS[i : i + 1])
    before, alone = _sent(), _sent()
    for i in range(N_TOKENS):
        ctx.decode(IDS[4 + i : 5 + i])
    after = _sent()
    return [
        tuple((c - b - (b - a)) / N_TOKENS for a, b, c in zip(*rank, strict=True))  # type: ignore[misc]
        for rank in zip(before, alone, after, strict=True)
    ]


def _sent() -> Counts:
    """Return the messages and bytes that each rank has sent, including this request."""
    from ggml_mpi.orders import ReportSent

    here = world()
    others: Counts = [here.ask(rank, ReportSent()) for rank in range(1, here.size)]
    return [(here.sent.n, here.sent.n_bytes), *others]


if __name__ == "__main__":
    sys.exit(main())
