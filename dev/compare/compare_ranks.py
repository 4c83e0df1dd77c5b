#!/usr/bin/env python3
"""Compare tiny models over MPI ranks with one process: the NMSE of all logits for each.

    mpiexec -n 2 python -m dev.compare.compare_ranks layer  # whole layers to each, all models
    mpiexec -n 2 python -m dev.compare.compare_ranks graph NAME ...  # heads and channels shared
    mpiexec -n 4 python -m dev.compare.compare_ranks tp=2,pp=2  # stages of two ranks
    mpiexec -n 2 python -m dev.compare.compare_ranks host NAME ...  # with rank 0's host as one more

Prompts of two ubatches, token by token, and tokens mixed with embeddings; F32 weights and caches.
Ends with 1 if one is beyond 1e-10, or if the most likely tokens are others. Needs a checkout, and
`pip install '.[mpi]'`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ggml_mpi.world import n_started, world
from llama_py.weights.parallel import Parallel

if TYPE_CHECKING:
    from llama_py.weights.placement import Placement

BOUND = 1e-10


def main() -> int:
    if world().rank:
        from ggml_mpi.worker import serve

        serve()
        return 0
    from tests.support.graph_models import CONTINUING

    how, *names = sys.argv[1:]
    worst, wrong = 0.0, 0
    for name in names or CONTINUING:
        found, same, shares = _compared(name, how)
        worst, wrong = max(worst, found), wrong + (not same)
        says = "" if same else " (other tokens)"
        print(f"{name}: {found:.1e}{says}{'' if shares else ' (not shared)'}", flush=True)
    print(f"worst {worst:.1e}, bound {BOUND:.0e}; {wrong} with other tokens")
    return int(worst > BOUND or wrong > 0)


def _compared(name: str, how: str) -> tuple[float, bool, bool]:
    """Return the NMSE, if the most likely tokens are equal, and if a second rank has weights."""
    import numpy as np

    from tests.support.live_models import made, model_of
    from tests.support.split_models import KEYS, run

    weights = made(name, **KEYS.get(name, {}))
    expected = run(model_of(*weights, "cpu")).astype(np.float64)
    model = model_of(*weights, placement(how))
    found = run(model).astype(np.float64)
    error = float(((found - expected) ** 2).mean() / (expected**2).mean())
    return error, bool((found.argmax(1) == expected.argmax(1)).all()), "mpi1" in model.sizes


def placement(how: str) -> Placement:
    """Return equal shares; larger shares for later stages, as tiny models have few layers."""
    from llama_py.weights.placement import Placement, arrange_devices, devices_in_use

    parallel = Parallel.parse(how) if "=" in how else None
    mode, n, size = "graph" if how == "host" else how, n_started(), 1
    if parallel is not None:
        mode, size = "graph" if parallel.size > 1 else "layer", parallel.size
    shares = [2.0 ** (i // size) if parallel else 1.0 for i in range(n)]
    found = devices_in_use([f"mpi{i}" for i in range(n)])
    shares += [1.0] * (how == "host")
    devices, order = arrange_devices(found, mode, 0, shares)
    return Placement(devices, tensor_split=order, split_mode=mode, parallel=parallel)


if __name__ == "__main__":
    sys.exit(main())
