"""Choosing a CPU, and the instructions that products become on each kind (nothing is run)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ggml_cpu import target
from ggml_cpu.targets import NAMED
from ggml_py.errors import BackendError
from tests.support.limits import SECONDS

OWN = target.usable(target.host_features())


def chosen(monkeypatch: pytest.MonkeyPatch, **environment: str) -> tuple[str, dict[str, bool]]:
    for name in ("LLAMA_PY_CPU", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return target._choose_target()


def test_a_lower_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    name, features = chosen(monkeypatch, LLAMA_PY_CPU=OWN[0])
    assert (name, features) == (NAMED[OWN[0]].cpu, dict.fromkeys(NAMED[OWN[0]].features, True))


def test_as_numba_does(monkeypatch: pytest.MonkeyPatch) -> None:
    name, features = chosen(monkeypatch, NUMBA_CPU_NAME="some", NUMBA_CPU_FEATURES="+avx,-avx2")
    assert (name, features) == ("some", {"avx": True, "avx2": False})
    assert chosen(monkeypatch, NUMBA_CPU_NAME="some") == ("some", {})
    assert chosen(monkeypatch, NUMBA_CPU_NAME="host") == chosen(monkeypatch)


@pytest.mark.parametrize("family", [True, False])
def test_what_a_machine_cannot_be(family: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *_, last = (name for name, named in NAMED.items() if named.x86 is family)
    found = dict.fromkeys(NAMED[first].features, True)
    monkeypatch.setattr(target, "X86", family)
    monkeypatch.setattr(target, "host_features", lambda: found)
    lacking = ", ".join(sorted(NAMED[last].features - NAMED[first].features))
    with pytest.raises(
        BackendError, match=f"={last} needs {lacking}, .* lacks; choose .* {first}$"
    ):
        chosen(monkeypatch, LLAMA_PY_CPU=last)
    other = next(name for name, named in NAMED.items() if named.x86 is not family)
    for name in (other, "z80"):
        with pytest.raises(BackendError, match=f"={name} is not a known .* one of {first}$"):
            chosen(monkeypatch, LLAMA_PY_CPU=name)
    assert chosen(monkeypatch, LLAMA_PY_CPU=first)[1] == found


def test_one_line_says_so() -> None:
    other = next(name for name, named in NAMED.items() if named.x86 is not target.X86)
    run = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from llama_py_tools.start import cli; sys.exit(cli())",
            "-p",
            "x",
        ],
        env={**os.environ, "LLAMA_PY_CPU": other},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert (run.returncode, run.stdout) == (1, "")
    assert re.fullmatch(f"error: LLAMA_PY_CPU={other} is not a known .*\n", run.stderr)


def test_the_cpu_in_use_is_told() -> None:
    names = target.usable(target.FEATURES)
    assert re.search(rf" as {re.escape(names[-1])}, \d+-bit vectors$", target.description())


GEMV, GEMM, HALVES = "mul_mat_q4_K_panel", "mul_mat_q8_0_panels", "mul_mat_bf16_rows"
MANY_HALVES, MANY_BLOCKS = "mul_mat_bf16_tiles", "mul_mat_q8_0_panel_pairs"
AMX = r"(?s)^(?=.*\tldtilecfg\t)(?=.*\ttilerelease\n).*\t{}\t"
CALL = r"\tbl\t(?!_ZN8ggml_cpu)"  # of what is no routine of the kernel
# Kernels by CPU, each with what must be in its code, and what must not.
CODE: dict[str, dict[str, tuple[str, str]]] = {
    "sse4.2": {"mul_mat_q8_0_panel": (r"\tpmaddubsw\t.*%xmm", r"%ymm")},
    "avx2": {
        GEMV: (r"\tvpmaddubsw\t.*%ymm", r"vpdpbusd|vpmulld|%zmm"),
        GEMM: (r"\tvpsignb\t.*%ymm", r"vpdpbusd|%zmm"),
    },
    "avx-vnni": {
        GEMV: (r"\t\{vex\}\tvpdpbusd\t.*%ymm", r"vpmaddubsw|%zmm"),
        GEMM: (r"\t\{vex\}\tvpdpbusd\t.*%ymm", r"vpmaddubsw|%zmm"),
    },
    "avx512": {
        GEMV: (r"\tvpmaddubsw\t.*%zmm", r"vpdpbusd|vpmaddubsw\t.*%ymm"),
        GEMM: (r"\tvpmaddubsw\t.*%zmm", r"vpdpbusd|vpmaddubsw\t.*%ymm"),
    },
    "avx512-bf16": {
        GEMM: (r"\tvpdpbusd\t.*%zmm", r"vpmaddubsw|\{vex\}"),
        HALVES: (r"\tvdpbf16ps\t.*%zmm", r"vdpbf16ps\t.*%ymm"),
    },
    "avx512-amx": {
        GEMM: (r"\tvpdpbusd\t.*%zmm", r"tdp"),
        MANY_BLOCKS: (AMX.format("tdpbf16ps"), r"vpdpbusd"),
        MANY_HALVES: (AMX.format("tdpbf16ps"), r"dpbf16ps\t.*%zmm"),
    },
    "neon-dotprod": {
        GEMV: (r"\tsdot\tv", f"smmla|{CALL}"),
        GEMM: (r"\tsdot\tv.*\.4b\[3\]", f"smmla|{CALL}"),
    },
    "neon-bf16": {
        GEMM: (r"\tsmmla\tv", CALL),
        HALVES: (r"\tbfdot\tv", f"{CALL}|bfmmla"),
        MANY_HALVES: (r"\tbfmmla\tv", f"{CALL}|bfdot"),
    },
}


@pytest.mark.parametrize("name", CODE)
def test_code(name: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.foreign", name, *CODE[name]],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert run.returncode == 0, run.stderr
    found = dict(part.split("\n", 1) for part in run.stdout.split("# mul_mat")[1:])
    for kernel, (wanted, unwanted) in CODE[name].items():
        code = found[kernel.removeprefix("mul_mat")]
        assert re.search(wanted, code), f"{kernel} has no {wanted}"
        assert (why := re.search(unwanted, code)) is None, f"{kernel} has {why}"
