"""What the script for an emulated ARM machine writes before it starts anything."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import arm64


@pytest.mark.skipif(os.name != "posix", reason="a shell script")
@pytest.mark.parametrize("cpu", arm64.CPUS)
def test_its_python_starts_the_emulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpu: str
) -> None:
    """As the processes that it starts as itself do."""
    there = tmp_path / "a root"
    for name in ("proc/x", "usr/bin/python3.11"):
        (there / name).parent.mkdir(parents=True)
    (there / "usr/bin/python3.11").touch()
    (there / "usr/bin/python3").symlink_to("python3.11")
    (tmp_path / "env/lib/python3.11/site-packages/pip").mkdir(parents=True)
    python = arm64.environment(tmp_path, there, cpu)
    emulator = tmp_path / "bin/qemu-aarch64-static"
    emulator.parent.mkdir()
    emulator.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    emulator.chmod(0o755)
    monkeypatch.setenv("PATH", str(emulator.parent), prepend=os.pathsep)
    done = subprocess.run([str(python), "-c", "a b"], capture_output=True, text=True, check=True)
    program = str(there / "usr/bin/python3.11")
    named = ["-cpu", cpu, "-L", str(there), "-0", str(python), program]
    assert done.stdout.splitlines() == [*named, "-c", "a b"]
    assert f"home = {there / 'usr/bin'}\n" in (tmp_path / "env/pyvenv.cfg").read_text()
    assert "CPU part\t: 0xd0" in (there / "proc/cpuinfo").read_text()


def test_what_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit):
        arm64.main([str(tmp_path / "x"), "--", "llama-py-cli"])
    assert "debootstrap, dpkg: not found; apt-get install" in capsys.readouterr().err
