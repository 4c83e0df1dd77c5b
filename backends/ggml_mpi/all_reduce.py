"""REDUCE over ranks, as rank 0 plans and runs it."""

from __future__ import annotations

from ggml_mpi import orders
from ggml_mpi.device import RankBuffer, RankProgram, handles
from ggml_mpi.exchange import Meetings
from ggml_mpi.wire import leaf_to_send
from ggml_mpi.world import World
from ggml_py.backend import Device, Program
from ggml_py.plan.collective import Group
from ggml_py.tensor import Tensor


class AcrossRanks:
    """Has every rank send its part to all others; see `exchange`."""

    def __init__(self, world: World, here: Device) -> None:
        self.world = world
        self.meetings = Meetings(world, here)

    def all_reduce(self, tensor: Tensor, group: Group) -> Program:
        parts = {i: t for i, t in enumerate(tensor.src) if t is not None}
        receivers = [i for i in parts if tensor.param("receivers") >> i & 1]
        ranks = [_rank(parts[i]) if i in parts else None for i in range(len(tensor.src))]
        there: list[RankProgram] = []
        own = {i: part for i, part in parts.items() if not ranks[i]}
        here = self.meetings.exchange(own, ranks, receivers) if own else None
        for i, part in parts.items():
            rank = ranks[i]
            if not rank:
                continue
            handle = next(handles)
            copy = leaf_to_send(part)
            self.world.tell(
                rank,
                orders.Meet(handle=handle, part=copy, position=i, ranks=ranks, receivers=receivers),
            )
            there.append(RankProgram(self.world, rank, handle))
        return RankMeeting(self.world, there, here)


class RankMeeting:
    """A REDUCE as steps: `there` for other ranks, `here` for this one, if it has a part."""

    def __init__(self, world: World, there: list[RankProgram], here: Program | None) -> None:
        self.world, self.there, self.here = world, there, here

    def run(self) -> None:
        with self.world.atomic():
            for program in self.there:
                program.run()
            if self.here is not None:
                self.here.run()
        self.world.check()


def _rank(part: Tensor) -> int:
    return part.buffer.rank if isinstance(part.buffer, RankBuffer) else 0
