"""Barriers stand where a thread needs or disturbs what another one does, and nowhere else."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import pytest

import llama_py
from ggml_cpu.backend import CPUDevice
from ggml_cpu.barriers import phases
from ggml_cpu.driver import OWN
from ggml_cpu.layout import ScratchPlace, StepEntry, StepLayout, StepPlacement
from ggml_cpu.private import ELEMENTS, trace
from ggml_cpu.program import OFTEN, CPUProgram
from ggml_cpu.ranges import Range, RangePieces
from ggml_cpu.step import Step
from ggml_cpu.table import table
from ggml_py import ops
from ggml_py.backend import (
    CompileOptions,
    HostBuffer,
    aligned_bytes,
    get_tensor,
    host_memory,
    set_tensor,
)
from ggml_py.graph import Graph
from ggml_py.machine import host
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import FLAG_OUTPUT, Tensor
from ggml_py.types import F16, F32, I32
from tests.support.devices import given

A, B, C, D = ((i, i + 64) for i in range(1000, 1256, 64))
HALF = (A[0] + 32, A[1])
PRIVATE = (5000, 6000)
P, Q = (5000, 5064), (5064, 5128)


@dataclass
class Access:
    reads: Sequence[Range]
    writes: Sequence[Range]


@pytest.mark.parametrize(
    ("accesses", "want"),
    [
        ([([A], [B]), ([A], [C]), ([A], [D])], [0, 0, 0]),  # nothing shared but what all read
        ([([A], [B]), ([B], [C])], [0, 1]),  # read after write
        ([([A], [B]), ([C], [A])], [0, 1]),  # write after read
        ([([], [A]), ([], [A])], [0, 1]),  # write after write
        ([([], [A]), ([HALF], [B])], [0, 1]),  # of a part
        ([([], [HALF]), ([A], [B])], [0, 1]),  # of more than was written
        ([([HALF], [B]), ([], [A])], [0, 1]),
        ([([], [A]), ([(A[1], A[1] + 8)], [B])], [0, 0]),  # beside it
        ([([], [A]), ([(A[0], A[0])], [B])], [0, 0]),  # nothing of it
        ([([A], [A]), ([A], [A])], [0, 1]),  # in place
        ([([], [A]), ([A], [B]), ([C], [D]), ([D], [C])], [0, 1, 0, 1]),  # two chains
        ([([], [A]), ([A], [B]), ([], [C]), ([C, B], [])], [0, 1, 0, 2]),
        ([([A], [B]), ([], [C]), ([C], [A])], [0, 0, 1]),
        ([([], [A]), ([A], [B]), ([B], [C]), ([], [B])], [0, 1, 2, 3]),  # after the last reader
        ([([], [A]), ([A], [P]), ([P], [Q]), ([Q], [P])], [0, 1, 1, 1]),  # a thread's own
        ([([], [P]), ([P], [A]), ([A, P], [Q])], [0, 0, 1]),
        ([([], [P]), ([], [A]), ([A], [B]), ([B, P], []), ([], [P])], [0, 0, 1, 2, 2]),
    ],
)
def test_phases(accesses: list[tuple[list[Range], list[Range]]], want: list[int]) -> None:
    assert phases([Access(*a) for a in accesses], PRIVATE) == want


def test_phases_of_random_accesses() -> None:
    """Against each pair of entries: in one phase, only if neither disturbs the other."""
    rng = np.random.default_rng(3)

    def some() -> list[Range]:
        starts = rng.integers(0, 40, rng.integers(0, 3)).tolist()
        return [(s, s + int(rng.integers(0, 9))) for s in starts]

    def meet(a: Sequence[Range], b: Sequence[Range]) -> bool:
        return any(max(x[0], y[0]) < min(x[1], y[1]) for x in a for y in b)

    for _ in range(50):
        entries = [Access(some(), some()) for _ in range(20)]
        found = phases(entries)
        for j, late in enumerate(entries):
            before = [-1]
            for i, early in enumerate(entries[:j]):
                touched = meet(early.writes, [*late.reads, *late.writes])
                if touched or meet(early.reads, late.writes):
                    before.append(found[i])
            assert found[j] == 1 + max(before)


def test_pieces() -> None:
    pieces = RangePieces([(10, 20), (15, 30), (40, 50)])
    names = {(10, 20): [10, 15], (15, 16): [15], (0, 11): [10], (29, 41): [20, 30, 40]}
    for r, starts in names.items():
        assert [e for e in pieces.edges[pieces.find_slice(r)] if e != 50] == starts


Build = Callable[..., Tensor]
LARGE = (160, 160)  # more than a thread computes for itself
assert LARGE[0] * LARGE[1] > ELEMENTS


def planned(
    build: Build, n_threads: int, *ne: tuple[int, ...], settle: bool = True
) -> tuple[Tensor, CPUProgram, Callable]:
    """The result of a graph, its program, and what runs it with given values; `settle`: laid out
    for many runs from the first on."""
    device = CPUDevice()
    device.set_threads(n_threads)
    leafs = [given(*shape) for shape in ne]
    y = build(*leafs)
    y.flags |= FLAG_OUTPUT
    graph = Graph()
    graph.build_forward_expand(y)
    plan = Scheduler([device], CompileOptions()).plan(graph)
    (split,) = plan.splits
    program = split.program
    assert isinstance(program, CPUProgram)
    if settle:
        program.settle()

    def run() -> np.ndarray:
        rng = np.random.default_rng(1)
        for t in leafs:
            set_tensor(t, rng.standard_normal(t.ne[::-1]).astype(np.float32))
        program._layout.memory[:] = 0xFF  # scratch and inner values hold NaN
        plan.run()
        return get_tensor(y).copy()

    return y, program, run


def turned(x: Tensor) -> Tensor:
    """Rows that other threads wrote."""
    return ops.cont(ops.transpose(x))


def independent(x: Tensor) -> Tensor:
    """Three functions of x, then their sum."""
    return ops.add(ops.sqr(x), ops.add(ops.neg(x), ops.abs(x)))


def chain(x: Tensor) -> Tensor:
    """Each step reads what all threads wrote one before, in memory that is used again and again."""
    for i in range(40):
        x = ops.scale(turned(x), 0.5 if i % 2 else 2.0)
        if i % 5 == 0:
            x = ops.add(x, ops.sqr(turned(x)))
        if i % 7 == 0:
            x = ops.rms_norm(x, 1e-5)
    return x


def small_between(x: Tensor) -> Tensor:
    """Small values that every thread computes, made of large ones and read by large ones."""
    for _ in range(12):
        row = ops.view_1d(x, x.ne[0], 5 * x.nb[1])
        w = ops.sigmoid(ops.rms_norm(ops.neg(row), 1e-5))
        sorted_w = ops.get_rows(ops.reshape(w, 1, x.ne[0]), ops.argsort(row, "asc"))
        x = ops.mul(turned(x), ops.add(w, ops.reshape(sorted_w, x.ne[0])))
    return x


def written_into(x: Tensor, y: Tensor) -> Tensor:
    """Parts of a value are overwritten in place, then all of it is read."""
    x, small = ops.neg(x), ops.sqr(y)
    for i in range(6):
        row = ops.scale(small, 1.0 + i)
        x = ops.set_(x, row, *x.nb[1:], offset=i * x.nb[1], inplace=True)
        small = ops.neg(ops.view_1d(x, x.ne[0], i * x.nb[1]))
    return ops.add(x, small)


PROGRAMS: dict[str, tuple[Build, tuple[tuple[int, ...], ...]]] = {
    "independent": (independent, (LARGE,)),
    "chain": (chain, (LARGE,)),
    "small between": (small_between, (LARGE,)),
    "written into": (written_into, (LARGE, LARGE[:1])),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_number_of_threads_gives_the_same(name: str) -> None:
    build, shapes = PROGRAMS[name]
    _, _, run = planned(build, 1, *shapes)
    want = run()
    assert np.isfinite(want).all()
    for n_threads in (2, 3, 4, 5):
        _, _, run = planned(build, n_threads, *shapes)
        for _ in range(20):
            np.testing.assert_array_equal(run(), want)


def own_steps(program: CPUProgram) -> list[int]:
    """Steps that each thread runs alone."""
    return [i for i, e in zip(program._step_of_entry, program._entries, strict=True) if e[3] & OWN]


def counted(name: str, n_threads: int = 4) -> tuple[int, int]:
    """Barriers, and steps."""
    build, shapes = PROGRAMS[name]
    _, program, _ = planned(build, n_threads, *shapes)
    return program.n_barriers, len(program.labels)


def test_barriers_of_programs() -> None:
    assert counted("independent") == (3, 5)
    assert counted("chain", 1)[0] == 0
    n_barriers, n_steps = counted("small between")
    assert n_steps > 12 * 6 and n_barriers <= 12 * 2 + 4
    assert counted("chain")[0] == counted("chain")[1]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_laid_out_for_many_runs_after_some(name: str) -> None:
    """What it computes stays the same, and each step is told of."""
    build, shapes = PROGRAMS[name]
    _, settled, _ = planned(build, 3, *shapes)
    _, program, run = planned(build, 3, *shapes, settle=False)
    want, before = run(), (program.n_barriers, sorted(k for _, k in program.labels))
    assert before[0] == len(program.labels) >= settled.n_barriers
    for _ in range(OFTEN):
        np.testing.assert_array_equal(run(), want)
    assert program.n_barriers == settled.n_barriers
    assert {k for _, k in program.labels} == set(before[1])


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_holds_few_objects(name: str) -> None:
    """Each garbage collection scans the programs of all graphs, while nothing else runs."""
    build, shapes = PROGRAMS[name]
    _, program, _ = planned(build, 3, *shapes)
    held, todo = set[int](), [*vars(program._layout).values()]
    while todo:
        one = todo.pop()
        if isinstance(one, StepEntry | StepPlacement | ScratchPlace):
            raise AssertionError(f"{one} is held")
        if isinstance(one, list | dict | tuple) and id(one) not in held:
            held.add(id(one))
            todo += one.values() if isinstance(one, dict) else one


def test_results_and_what_is_there_in_the_end_are_not_private() -> None:
    """Whoever reads them does so where their tensors are."""
    seen: list[Tensor] = []

    def build(x: Tensor) -> Tensor:
        seen.append(ops.neg(x))
        seen[0].flags |= FLAG_OUTPUT
        return ops.sqr(ops.add(seen[0], ops.sigmoid(ops.sigmoid(x))))

    y, program, run = planned(build, 3, (50, 2))
    result = run()
    own = [program.steps[i].node for i in own_steps(program)]
    assert own and seen[0] not in own and y not in own
    x = -get_tensor(seen[0])
    np.testing.assert_allclose(result, (1 / (1 + np.exp(-1 / (1 + np.exp(-x)))) - x) ** 2, 1e-5)


def weights(*ne: int) -> Tensor:
    t = Tensor(F32, ne)
    t.buffer = HostBuffer(aligned_bytes(t.nbytes))
    set_tensor(t, np.random.default_rng(2).standard_normal(ne[::-1]).astype(np.float32))
    return t


def test_products_of_the_same_columns_share_their_preparation() -> None:
    """They are independent; what is prepared is prepared again once the columns have changed."""

    def build(x: Tensor) -> Tensor:
        w = [weights(96, 300) for _ in range(3)]
        total = ops.mul_mat(w[0], x)
        for t in w[1:]:
            total = ops.add(total, ops.mul_mat(t, x))
        return total

    _, program, _ = planned(build, 2, (96, 70))
    kernels = [kernel for _, kernel in program.labels]
    assert sum(k.startswith("tiles") for k in kernels) == 1
    assert program.n_barriers == 4  # columns, products, two sums


def test_scratch_of_few_runs_is_used_again_at_once() -> None:
    """All threads wait after each kernel then; columns stay until their last product."""

    def build(x: Tensor) -> Tensor:
        w = [weights(96, 96) for _ in range(6)]
        for t in w[1:]:
            x = ops.mul_mat(t, x)
        return ops.add(ops.mul_mat(w[0], x), ops.mul_mat(w[1], x))

    _, program, run = planned(build, 2, (96, 70))
    few, often = (StepLayout(program.steps, 2, how) for how in (False, True))
    sizes = [p.scratch.nbytes for p in few.placed if p.scratch is not None]
    assert len(sizes) == 7
    own = max((p.local.nbytes for p in few.placed if p.local is not None), default=0)
    assert few.memory.nbytes - own < 2 * min(sizes) <= 2 * max(sizes) <= often.local - often.common
    assert [p.prepare for p in few.placed if p.scratch is not None] == [True] * 6 + [False]
    first = run()
    program._lay_out(False)
    np.testing.assert_array_equal(run(), first)


def test_scratch_of_threads_is_where_that_of_others_was() -> None:
    """Rotations need much for all threads together, a product much for each."""

    def build(x: Tensor, y: Tensor) -> Tensor:
        at = Tensor(I32, (4000,))
        at.buffer = HostBuffer(aligned_bytes(at.nbytes))
        rotated = ops.rope_ext(x, at, None, 64, 0, 4096, 1e4, 1.0, 0.0, 1.0, 32.0, 1.0)
        return ops.add(ops.view(rotated, (64, 96), (256,), 0), ops.mul_mat(weights(128, 64), y))

    _, program, run = planned(build, 2, (64, 1, 4000), (128, 96))
    layout = StepLayout(program.steps, 2, often=False)
    needs = [s.kernel.scratch(s.node, 2) for s in program.steps]
    shared, own = (max(n) for n in zip(*needs, strict=True))
    assert max(a + 2 * b for a, b in needs) <= layout.memory.nbytes < shared + 2 * own
    first = run()
    program._lay_out(False)
    np.testing.assert_array_equal(run(), first)


@pytest.mark.skipif(host.SYSTEM != "linux", reason="needs Linux, where pages can be given back")
def test_scratch_of_many_tokens_is_given_back() -> None:
    def build(x: Tensor) -> Tensor:
        return ops.mul_mat(weights(1024, 32), x)

    _, program, run = planned(build, 2, (1024, 1500), settle=False)
    first, memory = run(), program._layout.memory
    assert memory.nbytes > host_memory.LARGE
    assert not memory[: memory.nbytes // mmap.PAGESIZE * mmap.PAGESIZE].any()
    np.testing.assert_array_equal(run(), first)


def test_a_step_of_every_thread_has_the_scratch_of_one_that_runs_alone() -> None:
    """Attention of two key heads: one thread has both at a time, of two each has one."""

    def build(q: Tensor, k: Tensor) -> Tensor:
        q, k = ops.neg(q), ops.cast(k, F16)
        return ops.sqr(ops.sigmoid(ops.flash_attn_ext(q, k, k, None, 1.0)))

    _, program, _ = planned(build, 2, (32, 1, 4, 1), (32, 12, 2, 1))
    layout = program._layout
    (attention,) = [s for s in program.steps if s.node.op == "FLASH_ATTN_EXT"]
    assert program.steps.index(attention) in own_steps(program)
    alone, shared = (attention.kernel.scratch(attention.node, n)[1] for n in (1, 2))
    assert layout.local_bytes >= alone > shared


def test_columns_that_were_overwritten_are_prepared_again() -> None:
    found: list[Tensor] = []

    def build(x: Tensor, row: Tensor) -> Tensor:
        w, x = weights(96, 300), ops.neg(x)
        changed = ops.set_(x, row, *x.nb[1:], offset=0, inplace=True)
        found.extend(ops.mul_mat(w, t) for t in (x, changed, x))
        for y in found:
            y.flags |= FLAG_OUTPUT
        return ops.add(ops.add(found[0], found[1]), found[2])

    for n_threads in (1, 2):
        found.clear()
        _, _, run = planned(build, n_threads, (96, 70), (96,))
        run()
        before, after, again = map(get_tensor, found)
        np.testing.assert_array_equal(after, again)
        assert (before[..., 0, :] != after[..., 0, :]).all()


def placed(first: int, n: int, op: str = "NEG") -> Tensor:
    """A tensor of n numbers, from number `first` of MEMORY on."""
    t = Tensor(F32, (n,), op)
    t.buffer, t.offset = MEMORY, 4 * first
    return t


def step(to: Tensor, *src: Tensor, writes: tuple[int, ...] = ()) -> Step:
    """One whose node lies there."""
    node = Tensor(F32, to.ne, "NEG", src, view_src=to.view_src)
    node.buffer, node.offset = to.buffer, to.offset
    return Step(table().get(ops.neg(Tensor(F32, (4,)))), node, (node, *src), writes=writes)


MEMORY = HostBuffer(aligned_bytes(4096))
X, Y, XY, TO, OTHER = (placed(*r) for r in ((0, 4), (4, 4), (0, 8), (16, 4), (32, 8)))
OVER = [step(XY, OTHER), step(TO, OTHER)]  # nothing of the values before is left
WINDOW = placed(0, 2)
WINDOW.view_src = X


@pytest.mark.parametrize(
    ("steps", "inner"),
    [
        ([step(X, Y), step(TO, X)], [True, True]),
        ([step(X, Y), step(Y, X), step(TO, XY)], [False, False, True]),  # read as one
        ([step(X, Y), step(TO, XY)], [False, True]),
        ([step(X, OTHER), step(WINDOW, OTHER), step(TO, X)], [False, False, True]),
        ([step(X, OTHER), step(TO, OTHER, X, writes=(2,))], [False, True]),
        ([step(X, OTHER), step(X, OTHER)], [True, True]),
    ],
)
def test_inner_values(steps: list[Step], inner: list[bool]) -> None:
    found = trace([*steps, *OVER], 2)
    assert found.inner == [*inner, False, False]
    assert found.own == [i and not s.writes for i, s in zip(found.inner, steps + OVER, strict=True)]
    assert not any(trace([*steps, *OVER], 1).inner)


def test_what_a_step_writes_besides_its_result() -> None:
    """Those who read it come after, and so do those who write there."""
    steps = [step(X, OTHER, Y, writes=(2,)), step(TO, Y), step(Y, OTHER)]
    assert phases(StepLayout(steps, 2).entries) == [0, 1, 2]


def demo_logits(n_threads: int, n_runs: int) -> list[np.ndarray]:
    model = llama_py.load(str(files("llama_py.data") / "demo.gguf"))
    ctx = model.context(n_ctx=256, n_threads=n_threads)
    prompt = ctx.decode([7 * i % 2000 for i in range(1, 30)], logits="all").copy()
    return [prompt, *(ctx.decode([11 + i]).copy() for i in range(n_runs))]


def test_a_model_is_the_same_with_more_threads_than_cores() -> None:
    """Attention, delta nets, caches, experts: many tokens, bit by bit."""
    want = demo_logits(1, 60)
    for n_threads in (2, 4):
        for a, b in zip(demo_logits(n_threads, 60), want, strict=True):
            np.testing.assert_array_equal(a, b)


def test_profiled_steps_wait_for_each_other() -> None:
    """Times are those of steps; results stay as they are."""
    device = CPUDevice()
    device.set_threads(3)
    x = given(*LARGE)
    y = chain(x)
    graph = Graph()
    graph.build_forward_expand(y)
    plan = Scheduler([device], CompileOptions()).plan(graph)
    values = np.random.default_rng(1).standard_normal(LARGE).astype(np.float32)
    set_tensor(x, values)
    plan.run()
    want = get_tensor(y).copy()
    set_tensor(x, values)
    with device.profiling() as times:
        plan.run()
    np.testing.assert_array_equal(get_tensor(y), want)
    (split,) = plan.splits
    assert [t.node for t in times] == [node for node, _ in split.program.labels]
