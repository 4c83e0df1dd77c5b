"""What the script for an emulated ARM machine writes before it starts anything."""

from __future__ import annotations

import binascii
import json
import os
import subprocess
from pathlib import Path

import pytest

from dev.make import arm64
from ggml_cpu.children import _CHILD
from ggml_cpu.driver import empty_pass
from ggml_cpu.fingerprints import file_name
from ggml_cpu.kernel import REGISTRY


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


@pytest.mark.skipif(os.name != "posix", reason="a shell script")
def test_kernels_may_be_compiled_outside_of_the_emulator(tmp_path: Path) -> None:
    """By this Python, as that CPU: what it answers is code for ARM."""
    there = tmp_path / "root"
    for name in ("proc/x", "usr/bin/python3"):
        (there / name).parent.mkdir(parents=True)
    (tmp_path / "env/lib/python3.11/site-packages/pip").mkdir(parents=True)
    python = arm64.environment(tmp_path, there, "cortex-a76", "neon-dotprod")
    kernel = REGISTRY.kernels[empty_pass.name]
    job = {"module": kernel.module, "source": "", "kernel": kernel.name, "file": file_name(kernel)}
    with subprocess.Popen(
        [str(python), "-c", _CHILD, "[]"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{json.dumps(job)}\n")
        process.stdin.flush()  # and left open: the process ends with it
        failure, code = json.loads(process.stdout.readline())
    assert failure == ""
    assert int.from_bytes(binascii.a2b_base64(code)[18:20], "little") == 183  # e_machine: AArch64
