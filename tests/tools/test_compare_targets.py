"""compare_targets.py: what it reads out of what other programs print."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from dev.compare import compare_targets as tool
from ggml_cpu import target
from ggml_cpu.targets import NAMED

CODE = "\tvpmaddubsw\t%ymm1, %ymm2, %ymm3\n\tvpmaddubsw\t%xmm1, %xmm2, %xmm3\n\tvpdpbusdx\t%zmm1"
TIMED = [
    {"op_params": "type_a=q4_K,m=4096,n=1,k=4096", "time_us": 1e6, "against_time_us": 2e6},
    {"op_params": "type_a=q4_K,m=4096,n=512,k=4096", "time_us": 1e6, "against_time_us": 4e6},
]


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(tool, "run", lambda command, name="", more=None: text)


def test_right(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "  3/4 tests passed\n  Backend cpu: FAIL\n")
    assert (tool.right("avx2", "ADD"), tool.right("avx2", "none")) == ("3/4", "-")
    answer(monkeypatch, "error: no")
    assert tool.right("avx2", "ADD") == "failed"


def test_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, CODE)
    assert tool.instructions("avx2", "q4_K") == "vpmaddubsw ymm"


def test_speeds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answer(monkeypatch, json.dumps(TIMED))
    assert tool.timed("avx2", "q4_K", tmp_path) == {1: (1.0, 2.0), 512: (1.0, 4.0)}
    assert tool.speeds("avx2", "q4_K", tmp_path, 2) == ["0.0", "17.2", "0.0", "4.3"]
    assert tool.speeds("avx2", "q4_K", None, 1) == ["0.0", "17.2"]
    answer(monkeypatch, "error: no\n")
    assert tool.speeds("avx2", "q4_K", tmp_path, 2) == ["-"] * 4


def test_a_cpu_that_this_machine_cannot_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = next(name for name, named in NAMED.items() if named.x86 is not target.X86)
    for name in (other, "z80"):
        monkeypatch.setattr("sys.argv", ["x", "--cpus", name, "-o", "none", "--speed"])
        tool.main()
        assert f"| {name} | not this machine | - | - | - |\n" in capsys.readouterr().out


def test_ggml_is_built_for_the_same_features(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        built = tmp_path / "avx512" / "build" / "src" / "libggml-cpu.so.0"
        built.parent.mkdir(parents=True, exist_ok=True)
        built.touch()
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    peer = tool.build("avx512", Path("ggml"), tmp_path)
    assert peer is not None and (peer / "llama_cpp/lib/libggml-cpu.so.0").is_file()
    assert {"-DGGML_NATIVE=OFF", "-DGGML_AVX512=ON", "-DGGML_AVX512_VNNI=OFF"} <= {*asked[0]}
    assert tool.build("avx512", Path("ggml"), tmp_path) == peer and len(asked) == 2
    monkeypatch.setattr(subprocess, "run", lambda c, **_: subprocess.CompletedProcess(c, 1))
    assert tool.build("avx2", Path("ggml"), tmp_path) is None


def test_features_of_options_are_those_of_cpus() -> None:
    assert {*tool.OPTIONS.values()} <= {f for named in NAMED.values() for f in named.features}
