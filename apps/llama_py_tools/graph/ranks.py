"""Activity of the ranks of a model over MPI in a run: kernels, messages, and waits."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ggml_py.backend import KernelTime
from llama_py_tools.graph.plan import columns

if TYPE_CHECKING:
    from ggml_mpi.times import Ran, RankTimes
    from ggml_py.plan import Plan
    from ggml_py.tensor import Tensor

PLANS = "ggml_mpi.plan"  # imported only with ranks


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes sent between a rank and others. The rank waits for the others, then sends, receives
    and adds. start, waited (end of waiting), end in nanoseconds of rank 0's clock.

    what  "send to 1", "receive from 0", "sum with 1,2"; "sum in pieces with 1" starts when the last
          piece is computed
    n     messages that this rank sent, with n_bytes in total
    """

    what: str
    n: int
    n_bytes: int
    start: int
    waited: int
    end: int


@dataclass(frozen=True, slots=True)
class OfRank:
    """n, n_bytes: all messages sent by the rank, including start messages to others."""

    rank: int
    n: int
    n_bytes: int
    passed: Sequence[Transfer]


def is_over_ranks(plans: Sequence[Plan]) -> bool:
    """Return True if at least one plan runs over several ranks."""
    module = sys.modules.get(PLANS)
    return module is not None and any(isinstance(plan, module.RankPlan) for plan in plans)


def record_times(plans: Sequence[Plan]) -> AbstractContextManager[list[RankTimes]]:
    """Time plans; see ggml_mpi.times.record_times."""
    from ggml_mpi import times
    from ggml_mpi.plan import RankPlan
    from ggml_mpi.world import world

    return times.record_times(world(), [plan for plan in plans if isinstance(plan, RankPlan)])


def kernels_and_messages(
    times: Sequence[RankTimes], plans: Sequence[Plan]
) -> tuple[dict[str, list[KernelTime]], list[OfRank]]:
    """Return kernels of other ranks by device, with the plans' nodes, and messages between
    all ranks, by rank 0's clock."""
    from ggml_mpi.times import waits

    kernels = {
        f"mpi{rank}": list(_kernels(own, _nodes(plans, f"mpi{rank}")))
        for rank, own in enumerate(times)
        if rank
    }
    ranks = [
        OfRank(rank, own.n, own.n_bytes, _list_transfers(own, waited))
        for rank, (own, waited) in enumerate(zip(times, waits(times), strict=True))
    ]
    return kernels, ranks


Key = tuple[str, str]


def _key(t: Tensor | Ran) -> Key:
    """Return name and op, without the size: each rank has some columns of a split matmul."""
    return t.name, t.op


def _nodes(plans: Sequence[Plan], device: str) -> dict[Key, list[Tensor]]:
    """Return the nodes of a device by their keys."""
    found: dict[Key, list[Tensor]] = {}
    for plan in plans:
        for split in plan.splits:
            for t in split.nodes if split.device.name == device else ():
                found.setdefault(_key(t), []).append(t)
    return found


def own_kernels(
    times: Sequence[KernelTime], plans: Sequence[Plan], device: str
) -> list[KernelTime]:
    """Return this rank's kernels, with their nodes in the plans."""
    found = _match_kernels([t.node for t in times], _nodes(plans, device))
    return [replace(times[i], node=node) for i, node in found]


def _kernels(own: RankTimes, nodes: dict[Key, list[Tensor]]) -> Iterator[KernelTime]:
    for i, node in _match_kernels(own.kernels, nodes):
        ran = own.kernels[i]
        threads = tuple((a - own.ahead, b - own.ahead) for a, b in ran.threads)
        yield KernelTime(node, ran.kernel, ran.start - own.ahead, ran.end - own.ahead, threads)


def _match_kernels(
    ran: Sequence[Tensor | Ran], nodes: dict[Key, list[Tensor]]
) -> Iterator[tuple[int, Tensor]]:
    """Yield the index of a kernel, and its node; kernels that add received parts belong to the
    sum."""
    turn: dict[Key, int] = {}
    last = None
    for i, one in enumerate(ran):
        key = _key(one)
        of = nodes.get(key)
        if not of:
            continue
        if key != last:  # several kernels, or pieces, of a node follow each other
            turn[key] = turn.get(key, -1) + 1
        last = key
        yield i, of[turn[key] % len(of)]


def _list_transfers(own: RankTimes, waits: Sequence[int]) -> list[Transfer]:
    words = {
        "send": "send to",
        "receive": "receive from",
        "sum": "sum with",
        "pieces": "sum in pieces with",
    }
    return [
        Transfer(
            f"{words[m.kind]} {','.join(map(str, m.others))}",
            m.n,
            m.n_bytes,
            m.start - own.ahead,
            waited,
            m.end - own.ahead,
        )
        for m, waited in zip(own.messages, waits, strict=True)
    ]


def messages_text(ranks: Sequence[OfRank]) -> Iterator[str]:
    """Yield a line for each rank, and for each type of its messages."""
    rows = [["  messages", "times", "sent", "bytes", "waiting ms", "passing ms"]]
    for one in ranks:
        rows.append([f"  rank {one.rank}", "", str(one.n), str(one.n_bytes), "", ""])
        for what in dict.fromkeys(p.what for p in one.passed):
            some = [p for p in one.passed if p.what == what]
            waited = sum(p.waited for p in some)
            whole = sum(p.end - p.start for p in some)
            numbers = len(some), sum(p.n for p in some), sum(p.n_bytes for p in some)
            ms = [f"{n / 1e6:.3f}" for n in (waited, whole - waited)]
            rows.append([f"    {what}", *map(str, numbers), *ms])
    yield from columns(rows)


def ranks_as_data(ranks: Sequence[OfRank], start: int) -> list[dict[str, Any]]:
    """Return JSON data. start: start of the run"""
    return [
        {
            "rank": one.rank,
            "messages": one.n,
            "bytes": one.n_bytes,
            "passed": [
                {
                    "what": p.what,
                    "messages": p.n,
                    "bytes": p.n_bytes,
                    "start_us": (p.start - start) / 1e3,
                    "waited_us": p.waited / 1e3,
                    "us": (p.end - p.start) / 1e3,
                }
                for p in one.passed
            ],
        }
        for one in ranks
    ]
