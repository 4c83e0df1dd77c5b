"""Measure messages between two ranks: seconds of a message one way, and of two messages in
opposite directions at once, like the parts of a sum.

    mpiexec -n 2 python -m dev.compare.links.exchange BYTES ...  # prints two numbers for each size
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median

import numpy as np

from ggml_mpi.worker import serve
from ggml_mpi.world import World, world

TIMES, ROUNDS = 20, 5
OPENING, LARGE = 10, 4 << 20  # messages before, and their bytes: TCP sends little at first


def passed(here: World, size: int) -> tuple[float, float]:
    """Return seconds of `size` bytes to the other rank, and in both directions at once. Many rounds
    run in a row: if one rank begins late, the other waits, and vice versa in the next round."""
    own, into = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    other = 1 - here.rank

    def there_and_back() -> None:
        if here.rank:
            here.receive(other, into)
            here.send(other, own)
        else:
            here.send(other, own)
            here.receive(other, into)

    def both() -> None:
        here.wait(here.receiving(other, into), here.sending(other, own))

    return _seconds(there_and_back) / 2, _seconds(both)


def _seconds(step: Callable[[], None]) -> float:
    found = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(TIMES):
            step()
        found.append((time.perf_counter() - start) / TIMES)
    return median(found)


def open_windows(here: World) -> None:
    """Send large messages first: like weights or logits, they open TCP's congestion window."""
    own, into = (np.zeros(LARGE, np.uint8) for _ in range(2))
    for _ in range(OPENING):
        here.wait(here.receiving(1 - here.rank, into), here.sending(1 - here.rank, own))


def main() -> int:
    open_windows(world())
    found = [passed(world(), int(size)) for size in sys.argv[1:]]
    if world().rank:
        serve()  # runs until rank 0 ends
    else:
        for one_way, both in found:
            print(one_way, both)
    return 0


if __name__ == "__main__":
    sys.exit(main())
