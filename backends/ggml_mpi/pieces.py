"""Sums of matmuls over ranks, sent in pieces of some tokens while the next piece is computed.

A network is slow for a prompt's sums, and the ranks would be idle in that time. The result is
the same: the parts are added in one step, after all pieces have arrived.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from ggml_mpi import orders
from ggml_mpi.all_reduce import RankMeeting
from ggml_mpi.device import RankBuffer, RankProgram
from ggml_mpi.order import Settle
from ggml_mpi.world import World
from ggml_py.backend import CompileOptions, Program
from ggml_py.plan import Split
from ggml_py.plan.assign import is_view
from ggml_py.tensor import Tensor

PIECES = 8  # pieces of a matmul, or fewer
LEAST = 80  # tokens of a piece: other kernels multiply fewer (ggml_cpu), with other last bits
TILE = 16  # tokens; the end of a piece is a multiple
FAST = 2e8  # bytes per second above which pieces cost more than they save
SAMPLE, TIMES = 2**20, 3  # bytes to measure the rate with, and repetitions


@dataclass(frozen=True, slots=True)
class SumPieces:
    """One rank's part of a sum.

    head    the program before the matmul
    each    a program for each piece, and the end of its bytes
    """

    head: Program
    each: Sequence[tuple[Program, int]]

    @property
    def numbers(self) -> list[tuple[int, int]]:
        """The pieces, with handles in place of the other rank's programs."""
        return [(p.handle, end) for p, end in self.each if isinstance(p, RankProgram)]


@cache
def count_pieces(world: World) -> int:
    """Return the pieces of a matmul, 1 for fast links (set by LLAMA_PY_MPI_PIECES)."""
    told = os.environ.get("LLAMA_PY_MPI_PIECES", "")
    if told.isdigit():
        return int(told)
    return PIECES if min(_rate(world, rank) for rank in range(1, world.size)) < FAST else 1


def _rate(world: World, rank: int) -> float:
    """Return bytes per second from a rank to this one, a question's time included."""
    world.ask(rank, Settle())  # waits for all earlier orders
    times = []
    for _ in range(TIMES):
        start = time.perf_counter()
        world.ask(rank, orders.Blank(size=SAMPLE))
        times.append(time.perf_counter() - start)
    return SAMPLE / min(times)


def in_pieces(world: World, splits: Sequence[Split]) -> dict[int, dict[int, tuple[int, SumPieces]]]:
    """Return sums in pieces, by the number of their split: by rank, the number of the split with
    its matmul, and its pieces."""
    found = {}
    for i, split in enumerate(splits):
        if isinstance(split.program, RankMeeting):
            makers = _makers(splits, i)
            n_tokens = min((t.ne[1] for t in makers.values()), default=0)
            if n_tokens >= 2 * LEAST and (n := count_pieces(world)) > 1:
                last = {rank: _last_split(splits, i, rank) for rank in makers}
                found[i] = {
                    rank: (last[rank], _pieces(splits[last[rank]], t, n))
                    for rank, t in makers.items()
                }
    return found


def _makers(splits: Sequence[Split], i: int) -> dict[int, Tensor]:
    """Return each rank's matmul for a sum; empty unless each rank's split ends with it."""
    total = next(t for t in splits[i].nodes if t.op == "REDUCE")
    parts = [_product(t) for t in total.src if t is not None]
    found = {find_rank(t): t for t in parts}
    if total.param("receivers") or len(found) < len(parts):
        return {}
    for rank, t in found.items():
        last = _last_split(splits, i, rank)
        steps: Sequence[Any] = splits[last].steps if last >= 0 else ()
        if len(steps) < 2 or steps[-1] is not t or not _is_plain(t):
            return {}
        since = (source for split in splits[last + 1 : i] for source, _ in split.inputs)
        if any(source.root is t.root for source in since):  # another split reads it earlier
            return {}
    return found


def _product(t: Tensor) -> Tensor:
    """Return the matmul that a part of a sum views, or the part itself."""
    source = t.src[0]
    while is_view(t) and source is not None and t.nbytes == source.nbytes:
        t, source = source, source.src[0]
    return t


def _last_split(splits: Sequence[Split], before: int, rank: int) -> int:
    """Return the number of a rank's last split before another, or -1."""
    for i in range(before - 1, -1, -1):
        program = splits[i].program
        if isinstance(program, RankMeeting):
            return -1
        if (program.rank if isinstance(program, RankProgram) else 0) == rank:
            return i
    return -1


def _is_plain(t: Tensor) -> bool:
    """Return True for a matmul with adjacent columns."""
    if t.op != "MUL_MAT" or None in t.src[:2]:
        return False
    return all(s is not None and s.ne[2] == s.ne[3] == 1 for s in (t, *t.src[:2])) and (
        t.nb[1] == t.ne[0] * t.nb[0]
    )


def _pieces(split: Split, t: Tensor, n: int) -> SumPieces:
    options = CompileOptions(many=True)
    weight, x = t.src[:2]
    assert x is not None
    n_tokens = t.ne[1]
    n = min(n, n_tokens // LEAST)
    ends = [*(i * n_tokens // n // TILE * TILE for i in range(1, n)), n_tokens]
    each = []
    for start, end in pairwise([0, *ends]):
        node = _columns(t, start, end)
        node.op, node.src, node.params = t.op, (weight, _columns(x, start, end)), t.params
        node.flags = t.flags
        each.append((split.device.compile([node], options), end * t.nb[1]))
    return SumPieces(split.device.compile(split.steps[:-1], options), each)


def _columns(t: Tensor, start: int, end: int) -> Tensor:
    """Return some columns of a matrix, in its memory."""
    nb = t.nb[0], t.nb[1], t.nb[1] * (end - start), t.nb[1] * (end - start)
    part = Tensor(t.type, (t.ne[0], end - start), name=t.name, nb=nb)
    part.buffer, part.offset = t.buffer, t.offset + start * t.nb[1]
    return part


def find_rank(t: Tensor) -> int:
    """Return the rank that has the tensor's memory."""
    return t.buffer.rank if isinstance(t.buffer, RankBuffer) else 0
