"""compare_targets.py: what it reads out of what other programs print."""

from __future__ import annotations

import json

import pytest

import compare_targets as tool

CODE = "\tvpmaddubsw\t%ymm1, %ymm2, %ymm3\n\tvpmaddubsw\t%xmm1, %xmm2, %xmm3\n\tvpdpbusdx\t%zmm1"
OURS = [{"op_params": "type_a=q4_K,m=4096,n=512,k=4096", "time_us": 1e6}]
THEIRS = """\
  MUL_MAT(type_a=q4_K,type_b=f32,m=4096,n=1,k=14336,bs=[1,1]):      852 runs -  2000.00 us/run - \
117.44 MFLOP/run -  58.72 GFLOPS
  MUL_MAT(type_a=q4_K,type_b=f32,m=4096,n=512,k=14336,bs=[1,1]):      3 runs - 60130.00 us/run - \
 60.13 GFLOP/run -   1.00 TFLOPS
"""


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(tool, "run", lambda command, name="": text)


def test_right(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "  3/4 tests passed\n  Backend cpu: FAIL\n")
    assert (tool.right("avx2", "ADD"), tool.right("avx2", "none")) == ("3/4", "-")
    answer(monkeypatch, "error: no")
    assert tool.right("avx2", "ADD") == "failed"


def test_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, CODE)
    assert tool.instructions("avx2", "q4_K") == "vpmaddubsw ymm"


def test_speeds(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, THEIRS)
    assert tool.theirs("x", "q4_K") == pytest.approx({1: 58.72e9, 512: 1e12})
    monkeypatch.setattr(tool, "ours", lambda name, kind: {1: 2e9, 512: 3e9})
    assert tool.speeds("avx2", "q4_K", "x", 2) == ["0.6", "3.0", "16.5", "1000.0"]
    monkeypatch.undo()
    answer(monkeypatch, json.dumps(OURS))
    assert tool.ours("avx2", "q4_K") == pytest.approx({512: 2.0 * 4096 * 4096 * 512})
