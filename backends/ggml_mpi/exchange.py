"""The sum of several ranks' tensors: each sends its part to all others, and adds those it got.

All add in the same order, so all have the same sum, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ggml_mpi.world import World
from ggml_py.backend import Buffer, Bytes, CompileOptions, Device, HostBuffer, Program
from ggml_py.errors import BackendError
from ggml_py.ops.collective import ADD
from ggml_py.tensor import Tensor


class Meetings:
    """Exchanges of one rank, with memory to receive the parts of the largest exchange."""

    def __init__(self, world: World, device: Device) -> None:
        self.world, self.device = world, device
        self._buffers: dict[int, Buffer] = {}

    def exchange(
        self, parts: Mapping[int, Tensor], ranks: Sequence[int | None], receivers: Sequence[int]
    ) -> Program:
        """Return the program that sums parts of several ranks.

        parts       this rank's parts, by position: several if devices share its memory
        ranks       the ranks of all parts, None for a missing part
        receivers   positions of parts that are not added, but get the sum
        """
        others = {i: r for i, r in enumerate(ranks) if r is not None and i not in parts}
        part = next(iter(parts.values()))
        src = [parts.get(i) for i in range(len(ranks))]
        for i in others.keys() - set(receivers):
            copy = Tensor(part.type, part.ne, name=part.name)
            copy.buffer = self._buffer(i, part.nbytes)
            src[i] = copy
        last = [t for t in src if t is not None][-1]
        bits = sum(1 << i for i in receivers)
        n_have = sum(t is not None for t in src)
        node = Tensor(
            part.type, part.ne, "REDUCE", tuple(src), (ADD, len(src), n_have, 0, bits), part.name
        )
        node.buffer, node.offset, node.flags = last.buffer, last.offset, part.flags
        # if only this rank has a part, it is already the sum
        alone = n_have == 1
        adding = None if alone else self.device.compile([node], CompileOptions())
        gives = [_bytes(parts[i]) for i in sorted(parts) if i not in receivers]
        to = list(dict.fromkeys(others.values()))
        coming = [(r, _bytes(src[i])) for i, r in others.items() if i not in receivers]
        return Exchange(self.world, gives, to, coming, adding)

    def _buffer(self, i: int, size: int) -> Buffer:
        found = self._buffers.get(i)
        if found is None or found.size < size:
            found = self._buffers[i] = self.device.alloc(size)
        return found


class Exchange:
    """own: bytes of each part that go to the ranks `to`. coming: (rank, memory for its bytes)."""

    def __init__(
        self,
        world: World,
        own: Sequence[Bytes],
        to: Sequence[int],
        coming: Sequence[tuple[int, Bytes]],
        adding: Program | None,
    ) -> None:
        self.world, self.own, self.to, self.coming = world, own, to, coming
        self.adding = adding

    def run(self) -> None:
        world = self.world
        coming = [r for rank, into in self.coming for r in world.receiving(rank, into)]
        leaving = [r for to in self.to for own in self.own for r in world.sending(to, own)]
        world.wait(coming, leaving)
        if self.adding is not None:
            self.adding.run()


class StaggeredExchange:
    """An exchange of a part computed in pieces; each piece is sent while the next is computed.

    pieces  a program, and the end of its bytes
    """

    def __init__(self, exchange: Exchange, pieces: Sequence[tuple[Program, int]]) -> None:
        self.exchange = exchange
        starts = [0, *(end for _, end in pieces)]
        self.pieces = [
            (program, slice(start, end))
            for start, (program, end) in zip(starts, pieces, strict=False)
        ]

    def run(self, made: Callable[[], object] | None = None) -> None:
        """Send all pieces despite failures, as other ranks wait for them; then raise the failure.

        made  function to call once all pieces are computed
        """
        world = self.exchange.world
        try:
            problem = self._exchange_pieces(world, made)
        except Exception as e:
            world.give_up(e)
        if problem is not None:
            raise problem
        if self.exchange.adding is not None:
            self.exchange.adding.run()

    def _exchange_pieces(self, world: World, made: Callable[[], object] | None) -> Exception | None:
        problem: Exception | None = None
        coming, leaving = [], []
        for _, part in self.pieces:
            for rank, into in self.exchange.coming:
                coming += world.receiving(rank, into[part])
        for program, part in self.pieces:
            found = catch_failure(program.run)
            if found is not None:
                problem, world.failed = problem or found, True
            for to in self.exchange.to:
                for own in self.exchange.own:
                    leaving += world.sending(to, own[part])
            world.make_progress(leaving)
        if made is not None:
            made()
        world.wait(coming, leaving)
        return problem


def catch_failure(step: Callable[[], object]) -> Exception | None:
    """Run a step and return the exception that it raised, or None."""
    try:
        step()
    except Exception as e:
        return e
    return None


def _bytes(t: Tensor | None) -> Bytes:
    assert t is not None
    if not isinstance(t.buffer, HostBuffer):
        raise BackendError(f"{t} is not in host memory, so it cannot be sent to other ranks")
    found = t.buffer.view(t.offset, t.nbytes)
    assert isinstance(found, np.ndarray)
    return found
