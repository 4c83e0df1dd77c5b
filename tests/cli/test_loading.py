"""How a model's file is read: as a whole, locked, checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llama_py
from llama_py.gguf.file import GGUFFile
from llama_py.weights import mlock as locked
from llama_py_tools.command.options import read
from llama_py_tools.command.params import FileParams
from llama_py_tools.generate import cli
from llama_py_tools.models import session
from llama_py_tools.models.check_tensors import check_tensors
from tests.support.commands import DEMO

QUICK = ["-dev", "ref", "-n", "1", "-p", "A"]


@pytest.mark.parametrize(
    ("mode", "mapped", "kept"),
    [
        ("auto", True, False),
        ("none", False, False),
        ("mmap", True, False),
        ("mlock", False, True),
        ("mmap+mlock", True, True),
    ],
)
def test_load_modes(mode: str, mapped: bool, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(llama_py, "load", lambda path, **how: seen.append(how) or FAKE)
    args = cli.parser().parse_args(["-lm", mode])
    assert read(args, FileParams).load_mode == mode
    session.open_model(args)
    assert (seen[0]["use_mmap"], seen[0]["use_mlock"]) == (mapped, kept)


class FAKE:
    devices = ()


def test_flags_of_older_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(llama_py, "load", lambda path, **how: seen.append(how) or FAKE)
    session.open_model(cli.parser().parse_args(["--mlock", "--no-mmap"]))
    assert (seen[0]["use_mmap"], seen[0]["use_mlock"]) == (False, True)


def test_weights_are_locked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(locked, "_lock", lambda *place: asked.append(place) or "")
    with llama_py.load(device="ref", use_mlock=True) as model:
        assert sum(size for _, size in asked) >= sum(model.sizes.values())
        assert caplog.messages == []
        monkeypatch.setattr(locked, "_lock", lambda *_: "Cannot allocate memory")
        assert locked.lock(model._weights.all_tensors) == 0
    assert (
        "mlock: only 0.0 of 5.6 MiB are locked, so the rest may be swapped out: Cannot"
        in caplog.text
    )


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_the_system_does_it() -> None:
    def kb() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmLck:"))

    page = np.zeros(4096 * 4, np.uint8)
    before, address = kb(), int(page.ctypes.data) // 4096 * 4096
    assert locked._lock(address, 4096) == ""
    assert kb() == before + 4


def test_values_that_are_no_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with GGUFFile.open(DEMO) as file:
        seen: list[str] = []
        check_tensors(file, lambda done, total, what: seen.append(what))
        assert seen[:-1] == [*file.tensors]
        names = ("output_norm.weight", "blk.0.attn_qkv.weight")
        at = {name: file.tensors[name].data.__array_interface__["data"][0] for name in names}
        start = min(t.data.__array_interface__["data"][0] for t in file.tensors.values())
        first = min(t.offset for t in file.tensors.values())
        raw = bytearray(DEMO.read_bytes())
        begin = len(raw) - (max(t.offset + t.nbytes for t in file.tensors.values()) - first)
    for name in names:
        place = begin + at[name] - start
        raw[place : place + 4] = b"\x00\xfe\xff\x7f"  # f16: a NaN; f32: a NaN
    path = tmp_path / "bad.gguf"
    path.write_bytes(raw)
    assert cli.main([*QUICK, "-m", str(path), "--check-tensors"]) == 1
    says = capsys.readouterr().err
    assert "not finite: " in says and "output_norm.weight (1 of 256)" in says
    assert "blk.0.attn_qkv.weight (32 of " in says
    assert cli.main([*QUICK, "--check-tensors"]) == 0
