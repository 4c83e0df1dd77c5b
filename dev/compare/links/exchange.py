"""What two ranks take to pass bytes: seconds of a message one way, and of two at once, one each
way, as the parts of a sum are.

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
    """Seconds of so many bytes to the other rank, and of as many each way. Of many in a row: where
    one begins late the other waits, and the next time the first does."""
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
    """What ranks have passed before they compute (weights, logits) has TCP send much at once."""
    own, into = (np.zeros(LARGE, np.uint8) for _ in range(2))
    for _ in range(OPENING):
        here.wait(here.receiving(1 - here.rank, into), here.sending(1 - here.rank, own))


def main() -> int:
    open_windows(world())
    found = [passed(world(), int(size)) for size in sys.argv[1:]]
    if world().rank:
        serve()  # until the first one ends
    else:
        for one_way, both in found:
            print(one_way, both)
    return 0


if __name__ == "__main__":
    sys.exit(main())
