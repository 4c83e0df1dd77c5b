"""What is sent to another rank, without one: steps there and back, run by the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ggml_cpu.backend import CPUDevice
from ggml_cpu.program import CPUProgram
from ggml_mpi import wire
from ggml_mpi.files import Files, sample_digest
from ggml_py.backend import Buffer, CompileOptions, HostBuffer, Work
from ggml_py.errors import BackendError
from ggml_py.tensor import Tensor
from llama_py.context import Context
from llama_py.gguf.file import GGUFFile
from llama_py.gguf.tensor_part import TensorCut
from llama_py.weights.placement import Placement
from tests.support.commands import DEMO
from tests.support.live_models import live, made, model_of, tokens

IDS = tokens(20, seed=1)


class SentCPU(CPUDevice):
    """A CPU whose steps go through bytes before they are compiled; it knows buffers by numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.n_bytes = 0

    def compile(self, nodes: Sequence[Work], options: CompileOptions) -> CPUProgram:
        steps = wire.steps_to_send(nodes, self.fusions)
        buffers: dict[int, Buffer] = {}
        for i, row in enumerate(steps.rows):
            if row.buffer is not None:
                buffers[id(row.buffer)] = row.buffer
                steps.rows[i] = row._replace(buffer=wire.RankMemory(1, id(row.buffer)))
        data = wire.dumps(steps)
        self.n_bytes += len(data)
        there = wire.loads(data, buffers.__getitem__)
        return super().compile(wire.steps_to_run(there, self), options)


@pytest.mark.parametrize(
    "name", ["qwen35moe-moe", "kimi-linear-moe", "rwkv6-fused", "hy_v4-moe", "mamba2-dense"]
)
def test_steps_compute_the_same_after_they_were_sent(name: str) -> None:
    expected = Context(live(name, "cpu"), n_ctx=128).decode(IDS, logits="all")
    device = SentCPU()
    model = model_of(*made(name), Placement((device,)))
    found = Context(model, n_ctx=128).decode(IDS, logits="all")
    np.testing.assert_array_equal(found, expected)
    assert device.n_bytes > 0


def test_memory_of_this_process_is_not_sent() -> None:
    with pytest.raises(BackendError, match="reads memory of this rank"):
        wire.dumps([HostBuffer(np.zeros(4, np.uint8))])


def test_a_part_of_a_file_is_that_of_the_same_file_only(tmp_path: Path) -> None:
    with GGUFFile.open(DEMO) as file:
        info = next(t for t in file.tensors.values() if t.ne[1] > 8 and t.type.block_size > 1)
        size = DEMO.stat().st_size
        for dim, ranges in ((None, ()), (1, ((2, 5), (7, 8))), (0, ((0, info.type.block_size),))):
            cut = TensorCut(Tensor(info.type, info.ne), SentCPU(), info, dim, ranges)
            part = cut.file_part()
            assert part is not None
            digest = sample_digest(part)
            found = Files().read(part, size, digest)
            assert found is not None
            np.testing.assert_array_equal(found, cut.data())
            assert Files().read(part, size + 1, digest) is None
            assert Files().read(part, size, "0" * 64) is None
        middle = min(file.tensors.values(), key=lambda t: abs(t.offset - size // 2))
        part = TensorCut(Tensor(middle.type, middle.ne), SentCPU(), middle, None, ()).file_part()
        assert part is not None and 2**20 < part.offset < size - 2**20
        other = tmp_path / "adapted.gguf"
        data = bytearray(DEMO.read_bytes())
        data[part.offset : part.offset + 8] = bytes(8)  # of one tensor, far from either end
        other.write_bytes(data)
        assert Files().read(replace(part, path=other), size, sample_digest(part)) is None
