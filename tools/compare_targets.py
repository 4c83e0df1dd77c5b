"""The CPU backend as each CPU of `ggml_cpu/targets.py` that this machine can be.

    python tools/compare_targets.py -o MUL_MAT,MUL_MAT_ID
    python tools/compare_targets.py --speed --ggml avx2=build-avx2/bin/test-backend-ops

A row has: cases that test-backend-ops finds right, instructions of the products' code, and with
`--speed` GB/s of weights with one column and GFLOP/s with 512 (medians of turns). `--ggml` names
llama.cpp's own test-backend-ops, built for that CPU; it is timed by turns with ours. Without -o all
ops are tested; `-o none` tests none. Speed is for an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ggml_cpu import target

INSTRUCTIONS = (
    "pmaddubsw", "pmaddwd", "vpmaddubsw", "vpmaddwd", "vpdpbusd", "vpdpwssd", "vdpbf16ps",
    "tdpbsud", "tdpbssd", "tdpbf16ps", "sdot", "smmla", "bfdot", "bfmmla",
)  # fmt: skip
KERNELS = ("mul_mat_{}_panel", "mul_mat_{}_panels")
CODE = """
import sys
from ggml_cpu.codegen import assembly
from ggml_cpu.kernel import REGISTRY
import ggml_cpu.kernels.matrix.mul_mat
for name in sys.argv[1:]:
    print(assembly(REGISTRY.kernels[name]))
"""
THEIR_LINE = re.compile(r"n=(1|512),.*?([\d.]+) us/run.*?([\d.]+) ([MGT])FLOP/run")


def run(command: Sequence[str], name: str = "") -> str:
    """What it prints, run as that CPU; its exit code does not count."""
    environment = {**os.environ, "LLAMA_PY_CPU": name} if name else None
    print(
        "+",
        f"LLAMA_PY_CPU={name}" if name else "",
        Path(command[0]).name,
        file=sys.stderr,
        flush=True,
    )
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    return done.stdout


def right(name: str, ops: str) -> str:
    """`1538/1538` cases."""
    if ops == "none":
        return "-"
    chosen = ["-o", ops] if ops else []
    text = run(["test-backend-ops", "-b", "cpu", *chosen], name)
    found = re.findall(r"(\d+/\d+) tests passed", text)
    return found[-1] if found else "failed"


def instructions(name: str, kind: str) -> str:
    """`vpdpbusd ymm`: those of INSTRUCTIONS in products of a type, with the widest registers."""
    kernels = [k.format(kind) for k in KERNELS]
    lines = run([sys.executable, "-c", CODE, *kernels], name).splitlines()
    found = []
    for word in INSTRUCTIONS:
        uses = [line for line in lines if re.search(rf"\t{word}\t", line)]
        widths = [w for w in ("zmm", "ymm", "xmm") if any(f"%{w}" in line for line in uses)]
        if uses:
            found.append(" ".join((word, *widths[:1])))
    return ", ".join(found) or "-"


def ours(name: str, kind: str) -> dict[int, float]:
    """Flops a second by the number of columns."""
    pattern = f"type_a={kind},"
    text = run(
        ["test-backend-ops", "perf", "-b", "cpu", "-o", "MUL_MAT", "-p", pattern,
         "--output", "json"], name,
    )  # fmt: skip
    found = {}
    for case in json.loads(text):
        columns = int(re.search(r"n=(\d+)", case["op_params"])[1])  # type: ignore[index]
        found[columns] = 2.0 * 4096 * 4096 * columns / case["time_us"] * 1e6
    return found


def theirs(program: str, kind: str) -> dict[int, float]:
    pattern = f"type_a={kind},type_b=f32,m=4096,n=(1|512),"
    text = run([program, "perf", "-b", "CPU", "-o", "MUL_MAT", "-p", pattern])
    scale = {"M": 1e6, "G": 1e9, "T": 1e12}
    return {
        int(n): float(flop) * scale[unit] / float(us) * 1e6
        for n, us, flop, unit in THEIR_LINE.findall(text)
    }


def speeds(name: str, kind: str, program: str, turns: int) -> list[str]:
    """GB/s with one column and GFLOP/s with 512: ours, and theirs where there is such a program."""
    from ggml_py.types import BY_NAME

    sides = [partial(ours, name, kind)]
    if program:
        sides.append(partial(theirs, program, kind))
    samples = [[side() for side in sides] for _ in range(turns)]
    bytes_a_flop = BY_NAME[kind].type_size / BY_NAME[kind].block_size / 2
    cells = []
    for i in range(len(sides)):
        for n, unit in ((1, bytes_a_flop), (512, 1.0)):
            found = [turn[i][n] for turn in samples if n in turn[i]]
            cells.append(f"{statistics.median(found) * unit / 1e9:.1f}" if found else "-")
    return cells


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("-o", "--ops", default="", help="ops to test (default: all; none: no op)")
    p.add_argument("--cpus", default="", help="names (default: all that this machine can be)")
    p.add_argument("--type", default="q4_K", help="of the weights looked at (default: %(default)s)")
    p.add_argument("--speed", action="store_true", help="time products, too")
    p.add_argument("--turns", type=int, default=3, help="times to time (default: %(default)s)")
    p.add_argument("--ggml", action="append", default=[], metavar="NAME=PROGRAM")
    a = p.parse_args()
    names = a.cpus.split(",") if a.cpus else target.usable(target.host_features())
    programs = dict(pair.split("=", 1) for pair in a.ggml)
    head = ["CPU", "right", f"instructions ({a.type})"]
    if a.speed:
        head += ["GB/s, 1 column", "GFLOP/s, 512"]
        head += ["GB/s, ggml", "GFLOP/s, ggml"] if programs else []
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
    for name in names:
        row = [name, right(name, a.ops), instructions(name, a.type)]
        if a.speed:
            row += speeds(name, a.type, programs.get(name, ""), a.turns)
        row += ["-"] * (len(head) - len(row))
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
