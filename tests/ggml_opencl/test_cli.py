"""The command line on OpenCL devices: the same text, however the demo model is split."""

from __future__ import annotations

import re
from typing import Any

import pytest

from llama_py_tools.bench import bench
from llama_py_tools.generate import cli

# As long as there is no tie: the CPU rounds activations to 8 bits, OpenCL does not.
GENERATE = ["-p", "ROMEO:", "-n", "3", "--temp", "0", "-c", "256"]


@pytest.mark.parametrize(
    "options",
    [
        "-dev opencl",
        "-dev opencl -ngl 1",
        "-dev opencl -ot exps=cpu -nkvo",
        "-dev opencl0,opencl0,cpu -ts 1,1 -ub 2",
        "-dev opencl -ngl 2 --check cpu",
        "-dev opencl -ctk q8_0 -ctv q8_0",
    ],
)
def test_text(options: str, device: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cache = options.split()[2:] if "-ctk" in options else []
    assert cli.main([*GENERATE, *cache]) == 0
    expected = capsys.readouterr().out
    assert cli.main([*GENERATE, *options.split()]) == 0
    assert capsys.readouterr().out == expected


def test_devices_are_listed(device: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--list-devices"]) == 0
    assert f"opencl0: {device.description} (" in capsys.readouterr().out


@pytest.mark.usefixtures("device", "small_limits")
def test_a_roofline_of_each_device(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a prompt that fills the memory: it is read anew for each."""
    assert bench.main(["--roofline", "-dev", "opencl0", "-p", "256", "-n", "0"]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"^(\w+): [\d.]+ ms in kernels", out, re.M) == ["opencl0", "cpu"]
