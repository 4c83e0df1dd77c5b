"""Kernels that touch what is not theirs; run in a process of its own, with and without checks."""

from __future__ import annotations

import json

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.executor import Executor
from ggml_cpu.kernel import kernel
from ggml_cpu.program import CPUProgram
from ggml_cpu.step import Step
from ggml_py import ops
from ggml_py.backend import Bytes, CompileOptions, HostBuffer, aligned_bytes, get_tensor, set_tensor
from ggml_py.errors import BoundsError
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME

TABLE = bytes(range(4))
N = 20
ROOM = 256  # bytes before and after each tensor


@kernel()
def reads_past(p, ith, nth):
    """dst = src0, one element later: of the last vector, one more than there is."""
    for i in range(0, N, v.LANES):
        v.store_n(v.data(p, 0) + 4 * i, v.f32_load_n(v.data(p, 1) + 4 * (i + 1), N - i), N - i)


@kernel()
def writes_before(p, ith, nth):
    for i in range(-1, N):
        v.st_f32(v.data(p, 0) + 4 * i, 1.0)


@kernel()
def writes_after(p, ith, nth):
    for i in range(N + 1):
        v.st_f32(v.data(p, 0) + 4 * i, 1.0)


@kernel()
def writes_its_source(p, ith, nth):
    v.st_f32(v.data(p, 1), 1.0)


@kernel(scratch=lambda node, nth: (64, 32))
def is_right(p, ith, nth):
    """dst = src0 + a constant of a table, by way of all memory that it has."""
    own, indices = v.local(p, ith), v.shared(p)
    for i in range(N):
        v.st_f32(own + 4 * (i % 8), v.ld_f32(v.data(p, 1) + 4 * i))
        v.atomic_add(indices, v.ld_u8(v.table(TABLE) + i % 4))
        v.st_f32(v.data(p, 0) + 4 * i, v.ld_f32(own + 4 * (i % 8)))
    v.store_n(v.data(p, 0) + 4 * N, v.f32(1.0), 0)  # nothing at all


@kernel()
def reads_beyond_a_table(p, ith, nth):
    for i in range(N):
        v.st_f32(v.data(p, 0) + 4 * i, float(v.ld_u8(v.table(TABLE) + i)))


@kernel()
def gathers(p, ith, nth):
    """dst[i] = src0[2 i] of one vector: exact is half as many."""
    found = v.f32_gather(v.data(p, 1), v.i32x16_load(v.data(p, 2)))
    v.store(v.data(p, 0), found)


@kernel()
def writes_two(p, ith, nth):
    """As a fused step does: dst, and src1; the last element of that is one too far."""
    for i in range(N):
        v.st_f32(v.data(p, 0) + 4 * i, v.ld_f32(v.data(p, 1) + 4 * i))
        v.st_f32(v.data(p, 2) + 4 * i, 2.0)


def tensor(*ne: int, type_name: str = "f32") -> Tensor:
    t = Tensor(BY_NAME[type_name], ne)
    return place(t)


def place(t: Tensor) -> Tensor:
    t.buffer, t.offset = HostBuffer(aligned_bytes(t.nbytes + 2 * ROOM)), ROOM
    return t


def around(t: Tensor) -> Bytes:
    """What is in the room that only a wrong kernel could have written to."""
    before, after = (t.buffer.read(at, ROOM) for at in (0, ROOM + t.nbytes))
    return np.concatenate([before, after])


def run(*steps: Step, n_threads: int = 1, times: int = 1) -> str:
    """The message of what was raised."""
    program = CPUProgram(steps, Executor(n_threads), CompileOptions())
    try:
        for _ in range(times):
            program.run()
    except BoundsError as error:
        return str(error)
    return ""


def main() -> None:
    x, y, index = tensor(N), tensor(N - 1), tensor(16, type_name="i32")
    for t in (x, y):
        set_tensor(t, np.full(t.ne[0], 1.5, np.float32))
    set_tensor(index, np.arange(16, dtype=np.int32) * 2)
    x.name, y.name = "x", "y"
    node = place(ops.neg(x))
    node.name = "negative"
    found = {}
    for k in (reads_past, writes_before, writes_its_source, is_right, reads_beyond_a_table):
        found[k.name] = run(Step(k, node, (node, x)))
        found[f"around, after {k.name}"] = float(around(node).max())
        found[f"source, after {k.name}"] = float(get_tensor(x).min())
    found["gathers"] = run(Step(gathers, node, (node, x, index)))
    found["writes_two"] = run(Step(writes_two, node, (node, x, y), writes=(2,)))
    found["its dst"] = get_tensor(node).reshape(-1).tolist()
    one, neighbour = ops.neg(x), tensor(2 * N)
    one.buffer, one.offset = neighbour.buffer, neighbour.offset - one.nbytes
    found["writes_after"] = run(Step(writes_after, one, (one, x)))
    found["its neighbour"] = float(get_tensor(neighbour).max())
    right = Step(is_right, node, (node, x))
    found["often"] = run(right, n_threads=2, times=40)
    found["in between"] = run(right, Step(writes_before, node, (node, x)), right, n_threads=2)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
