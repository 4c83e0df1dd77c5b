"""llama-py-bench --roofline: a line for each op, and the limits of the device."""

from __future__ import annotations

import re

import pytest

from ggml_py import ops
from ggml_py.backend import CompileOptions, KernelTime, Profiles, registry
from ggml_py.tensor import Tensor
from ggml_py.types import F32
from llama_py_tools.bench import bench, roofline
from llama_py_tools.bench.roofline import Roofline


def test_kernels_of_a_node_count_together() -> None:
    weight, x = Tensor(F32, (100, 50)), Tensor(F32, (100, 1))
    product = ops.mul_mat(weight, x)
    total = ops.add(product, Tensor(F32, (50,)))
    times = [
        KernelTime(product, "rows", 0, 100),
        KernelTime(product, "product", 100, 1000),
        KernelTime(total, "add", 1000, 1200),
        KernelTime(product, "product", 1200, 2000),
    ]
    first, second = roofline.rows(times)
    assert (first.what, first.n_nodes, first.flops) == ("MUL_MAT f32", 2, 2 * 2 * 100 * 50)
    assert first.seconds == pytest.approx(1.8e-6) and first.nbytes == 2 * 4 * (5000 + 100 + 50)
    assert (second.what, second.n_nodes, second.nbytes) == ("ADD f32", 1, 4 * 150)
    most = Roofline(bandwidth=1e10, flops=1e9)
    assert most.seconds(first) == pytest.approx(20e-6)  # arithmetic: 20,000 flops
    assert most.seconds(second) == pytest.approx(60e-9)


@pytest.mark.usefixtures("small_limits")
def test_a_table_for_each_test(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--roofline", "-p", "20", "-n", "3", "-t", "2"]) == 0
    prompt, answer = capsys.readouterr().out.split("tg3\n")
    assert prompt.startswith("pp20\n")
    for text, runs in ((prompt, 1), (answer, 3)):
        assert text.strip().splitlines()[-1].endswith("% |")
        barriers = re.search(r"^cpu: (\d+) barriers in .*, ([\d.]+) per layer", text, re.M)
        assert barriers is not None and int(barriers[1]) > float(barriers[2]) > 1
        nodes = {
            line.split(" | ")[0].strip("| "): int(line.split(" | ")[1])
            for line in text.splitlines()
            if line.startswith("| ") and "nodes" not in line
        }
        assert nodes["FLASH_ATTN_EXT f32"] % runs == 0 and len(nodes) > 10


def test_the_cpu_tells_only_while_it_is_asked() -> None:
    device = registry.device("cpu")
    x = Tensor(F32, (5000,))
    y = ops.scale(x, 2.0)
    for t in (x, y):
        t.buffer = device.alloc(t.nbytes)
    program = device.compile([y], CompileOptions())
    assert isinstance(device, Profiles)
    with device.profiling() as times:
        program.run()
        program.run()
    program.run()
    assert [t.node for t in times] == [y, y]
    assert 0 < times[0].start < times[0].end <= times[1].start < times[1].end
