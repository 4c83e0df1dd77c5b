"""Test and time the CPU backend for each CPU of `ggml_cpu/targets.py` that this machine supports.

    python -m dev.compare.compare_targets -o MUL_MAT,MUL_MAT_ID
    python -m dev.compare.compare_targets -o none --speed --ggml llama.cpp

A row lists the passed cases of test-backend-ops and the SIMD instructions of matmul kernels. `-o`
selects the tested ops (default: all). `--speed` adds GB/s of weights for batch size 1 and GFLOP/s
for batch size 512 (medians of `--turns`); it needs an idle machine. `--ggml` is a llama.cpp source
tree. Its ggml is built once for the same CPU features (cmake, in `--builds`), and timed in the same
process, interleaved. A cell without a result has a "-".
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ggml_cpu import target
from ggml_cpu.targets import NAMED

INSTRUCTIONS = (
    "pmaddubsw",
    "pmaddwd",
    "vpmaddubsw",
    "vpmaddwd",
    "vpdpbusd",
    "vpdpwssd",
    "vdpbf16ps",
    "tdpbsud",
    "tdpbssd",
    "tdpbf16ps",
    "sdot",
    "smmla",
    "bfdot",
    "bfmmla",
)
KERNELS = ("mul_mat_{}_panel", "mul_mat_{}_panels")
CODE = """
import sys
from ggml_cpu.codegen import assembly
from ggml_cpu.kernel import REGISTRY
import ggml_cpu.kernels.matrix.mul_mat
for name in sys.argv[1:]:
    print(assembly(REGISTRY.kernels[name]))
"""
# Options of ggml's build, and the CPU feature (targets.py) that each option needs.
OPTIONS = {
    "GGML_SSE42": "sse4.2",
    "GGML_AVX": "avx",
    "GGML_AVX2": "avx2",
    "GGML_FMA": "fma",
    "GGML_F16C": "f16c",
    "GGML_BMI2": "bmi2",
    "GGML_AVX_VNNI": "avxvnni",
    "GGML_AVX512": "avx512bw",
    "GGML_AVX512_VNNI": "avx512vnni",
    "GGML_AVX512_BF16": "avx512bf16",
    "GGML_AMX_TILE": "amx-tile",
    "GGML_AMX_INT8": "amx-int8",
    "GGML_AMX_BF16": "amx-bf16",
}
Times = dict[int, tuple[float, float]]  # our and the peer's seconds, by batch size


def run(command: Sequence[str], name: str = "", more: Mapping[str, str] | None = None) -> str:
    """Run a command with the kernels of CPU `name`; return its output, for any exit code."""
    as_cpu = {"LLAMA_PY_CPU": name} if name else {}
    told = f"LLAMA_PY_CPU={name} " if name else ""
    print(f"+ {told}{Path(command[0]).name}", file=sys.stderr, flush=True)
    environment = {**os.environ, **as_cpu, **(more or {})}
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True).stdout


def right(name: str, ops: str) -> str:
    """Return the numbers of passed and of all cases, such as `1538/1538`."""
    if ops == "none":
        return "-"
    chosen = ["-o", ops] if ops else []
    text = run(["test-backend-ops", "-b", "cpu", *chosen], name)
    found = re.findall(r"(\d+/\d+) tests passed", text)
    return found[-1] if found else "failed"


def instructions(name: str, kind: str) -> str:
    """Return INSTRUCTIONS in matmuls of a type, with their widest registers: `vpdpbusd ymm`."""
    kernels = [k.format(kind) for k in KERNELS]
    lines = run([sys.executable, "-c", CODE, *kernels], name).splitlines()
    found = []
    for word in INSTRUCTIONS:
        uses = [line for line in lines if re.search(rf"\t{word}\t", line)]
        widths = [w for w in ("zmm", "ymm", "xmm") if any(f"%{w}" in line for line in uses)]
        if uses:
            found.append(" ".join((word, *widths[:1])))
    return ", ".join(found) or "-"


def build(name: str, source: Path, builds: Path) -> Path | None:
    """Build ggml for a CPU and return a folder; return None if the build fails.

    The folder has a package like llama-cpp-python's, with libggml only.
    """
    package = builds / name / "peer" / "llama_cpp"
    if package.is_dir():
        return package.parent
    work, has = builds / name / "build", NAMED[name].features
    switches = [f"-D{o}={'ON' if f in has else 'OFF'}" for o, f in OPTIONS.items()]
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    for command in (
        [
            "cmake",
            "-S",
            str(source),
            "-B",
            str(work),
            "-DCMAKE_BUILD_TYPE=Release",
            *generator,
            "-DGGML_NATIVE=OFF",
            "-DLLAMA_BUILD_TESTS=OFF",
            "-DLLAMA_BUILD_TOOLS=OFF",
            "-DLLAMA_BUILD_EXAMPLES=OFF",
            "-DLLAMA_BUILD_COMMON=OFF",
            *switches,
        ],
        ["cmake", "--build", str(work), "--target", "ggml-cpu", "--parallel"],
    ):
        print(f"+ {' '.join(command)}", file=sys.stderr, flush=True)
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
            return None
    (package / "lib").mkdir(parents=True)
    for file in (f for f in work.rglob("*ggml*") if {".so", ".dylib", ".dll"} & {*f.suffixes}):
        shutil.copy(file, package / "lib")
    (package / "__init__.py").touch()
    return package.parent


def timed(name: str, kind: str, peer: Path | None) -> Times:
    """Return times of matmuls with 4096 x 4096 weights; `peer` is a folder from `build`."""
    command = ["test-backend-ops", "perf", "-b", "cpu", "-o", "MUL_MAT", "-p", f"type_a={kind},"]
    more = {}
    if peer is not None:
        command += ["--against", "ggml"]
        more["PYTHONPATH"] = os.pathsep.join([str(peer), os.environ.get("PYTHONPATH", "")])
    try:
        cases = json.loads(run([*command, "--output", "json"], name, more))
    except ValueError:  # the command printed its error
        return {}
    found = {}
    for case in cases:
        columns = int(re.search(r"n=(\d+)", case["op_params"])[1])  # type: ignore[index]
        found[columns] = (case["time_us"] / 1e6, case.get("against_time_us", 0.0) / 1e6)
    return found


def speeds(name: str, kind: str, peer: Path | None, turns: int) -> list[str]:
    """Return GB/s for batch size 1 and GFLOP/s for 512: ours, and the peer's if present."""
    from ggml_py.types import BY_NAME

    samples = [timed(name, kind, peer) for _ in range(turns)]
    weights = 4096 * 4096
    amounts = {1: weights * BY_NAME[kind].type_size / BY_NAME[kind].block_size, 512: 1024 * weights}
    cells = []
    for side in range(1 if peer is None else 2):
        for n, amount in amounts.items():
            found = [turn[n][side] for turn in samples if n in turn and turn[n][side]]
            cells.append(f"{amount / statistics.median(found) / 1e9:.1f}" if found else "-")
    return cells


def row(name: str, a: argparse.Namespace) -> list[str]:
    """Return the table cells of one CPU."""
    if name not in target.usable(target.host_features()):
        return [name, "not this machine"]
    cells = [name, right(name, a.ops), instructions(name, a.type)]
    if a.speed:
        peer = build(name, a.ggml, a.builds.absolute()) if a.ggml else None
        cells += speeds(name, a.type, peer, a.turns)
    return cells


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("-o", "--ops", default="", help="ops to test (default: all); none: skip tests")
    p.add_argument("--cpus", default="", help="names (default: all that run here)")
    p.add_argument("--type", default="q4_K", help="type of weights (default: %(default)s)")
    p.add_argument("--speed", action="store_true", help="also time matmuls")
    p.add_argument("--turns", type=int, default=3, help="repetitions (default: %(default)s)")
    p.add_argument("--ggml", type=Path, metavar="SOURCE", help="also time llama.cpp's ggml")
    p.add_argument(
        "--builds",
        type=Path,
        default=Path("build-ggml"),
        metavar="DIR",
        help="folder for builds of ggml (default: %(default)s)",
    )
    a = p.parse_args()
    names = a.cpus.split(",") if a.cpus else target.usable(target.host_features())
    head = ["CPU", "right", f"instructions ({a.type})"]
    if a.speed:
        head += ["GB/s, 1 column", "GFLOP/s, 512"]
        head += ["GB/s, ggml", "GFLOP/s, ggml"] if a.ggml else []
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
    for name in names:
        cells = row(name, a)
        print(f"| {' | '.join(cells + ['-'] * (len(head) - len(cells)))} |", flush=True)


if __name__ == "__main__":
    main()
