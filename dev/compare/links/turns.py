"""Process that measures the speed of a prompt or of generation on request.

Several such processes run interleaved, so a slow moment of the machine affects each process.

    [mpiexec -n N] python -m dev.compare.links.turns MODEL N_PROMPT N_GEN THREADS [DEVICE]

For each line `pp` or `tg` on stdin, it prints the seconds of a prompt, or of N_GEN tokens.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from statistics import median, quantiles

TESTS = "pp", "tg"


class Player:
    """Running timing process that has finished its warmup."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        self.said()

    def __enter__(self) -> Player:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def said(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise OSError(f"{self.process.args!r} ended with {self.process.wait()}")
        return line

    def seconds(self, test: str) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{test}\n")
        self.process.stdin.flush()
        return float(self.said())


def taken(players: Mapping[str, Player], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return seconds by test and player, one per round; rounds start with different players."""
    found = {test: {name: list[float]() for name in players} for test in TESTS}
    names = [*players]
    for test in TESTS:
        for i in range(rounds):
            for k in range(len(names)):
                name = names[(i + k) % len(names)]
                found[test][name].append(players[name].seconds(test))
    return found


def rate_kept(own: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """Return the speed of `other` relative to `own`: the median of rounds, and the quartiles."""
    ratios = [a / b for a, b in zip(own, other, strict=True)]
    low, _, high = quantiles(ratios, n=4)
    return median(ratios), low, high


def main() -> int:
    from llama_py_tools.command.ranks import join_ranks

    if (code := join_ranks()) is not None:
        return code
    from llama_py_tools.bench.bench import prepare_tests
    from llama_py_tools.bench.params import BenchParams

    model, *numbers = sys.argv[1:5]
    n_prompt, n_gen, threads = map(int, numbers)
    o = BenchParams(
        model=(model,),
        n_prompt=(n_prompt,),
        n_gen=(n_gen,),
        threads=(threads,),
        **({"device": (sys.argv[5],)} if len(sys.argv) > 5 else {}),
    )
    measures = {}
    for test, _, measure in prepare_tests(o):
        measure.samples(2, True)
        measures["pp" if test.n_prompt else "tg"] = measure
    print("ready", flush=True)
    for line in sys.stdin:
        print(measures[line.strip()].samples(1, False)[0] / 1e9, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
