"""Before the first token all kernels are there, compiled in one go; after it none is compiled.

Kernels are not really compiled anew: a store that forgets everything stands for an empty cache, and
takes what is asked for from the real one.
"""

from __future__ import annotations

import gc
import io
from collections.abc import Iterable, Iterator, Sequence

import pytest

import llama_py
from ggml_cpu import logits, objcache
from ggml_cpu.compile import Following, Progress
from ggml_cpu.kernel import Kernel
from ggml_cpu.objcache import LoadedKernels
from ggml_cpu.store import STORE
from ggml_py.machine import building
from ggml_py.machine.building import BuildStage
from llama_py import Context, GenerateParams
from llama_py.context.warmup import compile_all_kernels, compile_kernels, sizes, warm_up
from llama_py.graph.params import GraphParams
from llama_py.graph.result import GraphResult
from llama_py.params import SamplingParams
from llama_py.sampler import Sampler, masked
from tests.serving.engines import ask_all, engine, request


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


PROMPT = "ROMEO:\nI am"


class Cold:
    """As if nothing had been compiled before this.

    batches   names of the kernels that were compiled, of those compiled together
    following  of those that were said to come next
    """

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.following: list[str] = []
        self.kept: set[str] = set()

    def has(self, kernels: Iterable[Kernel]) -> bool:
        return all(k.name in self.kept for k in kernels)

    def read(self, kernels: Iterable[Kernel]) -> dict[Kernel, bytes]:
        return real_read([k for k in kernels if k.name in self.kept])

    def compile(
        self,
        kernels: Sequence[Kernel],
        progress: Progress | None = None,
        whole: bool = True,
        following: Following = tuple,
    ) -> dict[Kernel, bytes]:
        self.following += [k.name for k in following()]
        self.batches.append([k.name for k in kernels])
        self.kept.update(self.batches[-1])
        found = real_read(kernels)
        found |= real_compile([k for k in kernels if k not in found])
        for done in range(len(kernels) + 1):
            building.tell(BuildStage(done, len(kernels) if whole else 0))
        return found


_LIBRARIES: list[LoadedKernels] = []  # threads of the device may be in their code to the end
real_read, real_compile = STORE.read, objcache.compile_kernels


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> Cold:
    cold = Cold()
    _LIBRARIES.append(LoadedKernels())
    monkeypatch.setattr(objcache, "_LIBRARY", _LIBRARIES[-1])
    monkeypatch.setattr(STORE, "read", cold.read)
    monkeypatch.setattr(STORE, "has", cold.has)
    masked.mask.cache_clear()
    logits._load_kernel.cache_clear()
    monkeypatch.setattr(objcache, "compile_kernels", cold.compile)
    return cold


@pytest.fixture
def ctx(cold: Cold) -> Iterator[Context]:
    with llama_py.load() as model, model.context(256, n_ubatch=16) as ctx:
        yield ctx


@pytest.mark.parametrize("n_prompt", [2, 35])
def test_nothing_is_compiled_after_the_first_token(cold: Cold, ctx: Context, n_prompt: int) -> None:
    """35 tokens: two whole ubatches and one of three."""
    pieces = llama_py.stream(ctx, [5] * n_prompt, max_tokens=40)
    next(pieces)
    before = len(cold.batches)
    assert before
    for _ in pieces:
        pass
    assert cold.batches[before:] == []


@pytest.mark.parametrize("n_prompt", [3, 200, 1030])
def test_nor_in_a_long_context(cold: Cold, n_prompt: int) -> None:
    """Attention over few cells and over many has kernels of its own."""
    with llama_py.load() as model, model.context(2048) as ctx:
        compile_kernels(ctx, n_prompt)
        before = len(cold.batches)
        for _ in llama_py.stream(ctx, [5] * n_prompt, max_tokens=3):
            pass
        assert before and cold.batches[before:] == []


def test_all_are_compiled_together(cold: Cold, ctx: Context) -> None:
    """But for what weights are laid out with, and what runs that, which come before."""
    before = set().union(*cold.batches)
    assert {n for n in before if not n.startswith("executor_")} == {"repack_q8_0"}
    cold.batches.clear()
    for _ in llama_py.stream(ctx, [5] * 35, max_tokens=3):
        pass
    assert [len(batch) > 20 for batch in cold.batches] == [True]


def test_products_are_begun_while_weights_are_laid_out(cold: Cold, ctx: Context) -> None:
    assert sorted(cold.following) == ["mul_mat_id_q8_0_panels", "mul_mat_q8_0_panels"]
    before = len(cold.batches)
    compile_kernels(ctx, 35)
    assert set(cold.following) <= set(cold.batches[before])


def test_drafts(cold: Cold, ctx: Context) -> None:
    """Text that repeats itself is drafted: batches of several tokens are checked."""
    how = GenerateParams(max_tokens=30, spec_type="ngram-simple", spec_ngram_simple_size_n=2)
    pieces = llama_py.stream(ctx, [5, 6, 7] * 4, **vars(how))
    next(pieces)
    before = len(cold.batches)
    for _ in pieces:
        pass
    assert cold.batches[before:] == []


def test_a_chat_compiles_nothing_later(cold: Cold, ctx: Context) -> None:
    """Kernels for the next token are cached by a completion before; those of turns are not."""
    for _ in llama_py.stream(ctx, PROMPT, max_tokens=2):
        pass
    model = ctx.model
    with model.context(600) as chat:
        assert not chat.runner.lacks_next()
        before = len(cold.batches)
        compile_all_kernels(chat)
        assert cold.batches[before:]
        before = len(cold.batches)
        for n in (*range(1, 20), 31, 33, 64, 100, 128, 129, 256, 300, 511):
            chat.clear()
            for _ in llama_py.stream(chat, [5] * n, max_tokens=3):
                pass
        for how in (SamplingParams(temp=1, grammar='root ::= "I"'), SamplingParams(mirostat=2)):
            sampler = Sampler(how, chat.n_vocab, model.tokenizer)
            for _ in llama_py.stream(chat, [5], max_tokens=2, sampler=sampler):
                pass
        assert cold.batches[before:] == []


def test_a_later_chat_builds_one_graph(
    cold: Cold, ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_all_kernels(ctx)
    built: list[GraphParams] = []
    graph, before = ctx.model.architecture.graph, len(cold.batches)

    def count(params: GraphParams) -> GraphResult:
        built.append(params)
        return graph(params)

    monkeypatch.setattr(ctx.model.architecture, "graph", count)
    compile_all_kernels(ctx)
    assert (len(built), cold.batches[before:]) == (1, [])
    cold.kept.remove("mul_mat_q8_0_panels")
    compile_all_kernels(ctx)
    assert len(built) > 10


@pytest.mark.parametrize("unified", [False, True])
def test_a_server_compiles_nothing_later(cold: Cold, unified: bool) -> None:
    with llama_py.load() as model:
        made = engine(model, n_seq_max=3, kv_unified=unified, warmup=True)
        with made:
            before = len(cold.batches)
            for n in (1, 9, 70):
                ask_all(made, [request([5] * n, n=4) for _ in range(3)])
        assert before and cold.batches[before:] == []


def test_what_is_there_costs_no_graph(cold: Cold, ctx: Context) -> None:
    compile_kernels(ctx, 35)
    graphs = []
    ctx.model.architecture.graph = graphs.append  # type: ignore[assignment, method-assign]
    compile_kernels(ctx, 35)
    assert graphs == []


def test_a_context_of_known_kernels_is_ready(cold: Cold, ctx: Context) -> None:
    ctx.prepare(sizes(ctx))
    with ctx.model.context(256) as other:
        assert not other.runner.lacks_next()


def test_compiling_is_not_prompt_time(
    cold: Cold, ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(building, "perf_counter", lambda: now[0])

    def slow(kernels: Sequence[Kernel], *how: object) -> dict[Kernel, bytes]:
        now[0] += 100.0
        return cold.compile(kernels)

    monkeypatch.setattr(objcache, "compile_kernels", slow)
    before = building.seconds()
    last = [*llama_py.stream(ctx, PROMPT, max_tokens=2)][-1]
    assert building.seconds() - before >= 100.0
    assert last.prompt_seconds == last.gen_seconds == 0.0


def test_warming_up_leaves_nothing(ctx: Context) -> None:
    ids = ctx.model.tokenize(PROMPT)
    fresh = ctx.decode(ids).copy()
    ctx.clear()
    warm_up(ctx, shifts=True)
    assert ctx.memory.seq_pos_max(0) == -1
    assert (ctx.decode(ids) == fresh).all()


def test_python_counts_all_on_a_terminal(cold: Cold, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of weights and of the executor, too."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with llama_py.load() as model, model.context(64) as ctx:
        for _ in llama_py.stream(ctx, PROMPT, max_tokens=2):
            pass
    assert f" of {sum(map(len, cold.batches))} |" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r")


def test_a_start_looks_for_garbage_when_it_is_over() -> None:
    """Not among the thousands of objects that it makes, which all stay."""
    looks: list[str] = []

    def look(phase: str, _: dict[str, int]) -> None:
        looks.append(phase)

    before = gc.get_threshold()
    gc.callbacks.append(look)
    try:
        gc.set_threshold(50)
        looks.clear()
        with llama_py.load() as model, model.context(256):
            gc.set_threshold(*before)
    finally:
        gc.callbacks.remove(look)
        gc.set_threshold(*before)
    assert looks.count("start") < 10, looks.count("start")
