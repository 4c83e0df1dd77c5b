"""What two ranks take to pass bytes: seconds of a message one way, and of two at once, one each
way, as the parts of a sum are.

    mpiexec -n 2 python -m links.exchange BYTES ...     # prints two numbers for each size
"""

from __future__ import annotations

import sys
import time
from statistics import median

import numpy as np

from ggml_mpi.worker import serve
from ggml_mpi.world import World, world

TIMES = 30


def passed(here: World, size: int) -> tuple[float, float]:
    """Seconds, medians, of so many bytes to the other rank, and of as many each way."""
    own, into = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    other, one_way, both = 1 - here.rank, [], []
    for _ in range(TIMES):
        start = time.perf_counter()
        if here.rank:
            here.receive(other, into)
            here.send(other, own)
        else:
            here.send(other, own)
            here.receive(other, into)
        one_way.append((time.perf_counter() - start) / 2)
        here.wait(here.receiving(other, into), here.sending(other, own))  # so both begin at once
        start = time.perf_counter()
        here.wait(here.receiving(other, into), here.sending(other, own))
        both.append(time.perf_counter() - start)
    return median(one_way), median(both)


def main() -> int:
    found = [passed(world(), int(size)) for size in sys.argv[1:]]
    if world().rank:
        serve()  # until the first one ends
    else:
        for one_way, both in found:
            print(one_way, both)
    return 0


if __name__ == "__main__":
    sys.exit(main())
