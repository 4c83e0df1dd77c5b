"""llama-py-bench: tokens per second of prompts and of generation, measured as llama-bench does.

Every flag takes several values (`-p 128,512`, `-t 1-4`, `-ub 64-512*2`, or the flag again); all
combinations are run. Random tokens; neither tokenizing nor sampling is in the time.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from llama_py_tools import session
from llama_py_tools.options import CommonOptions, add, collect, on_off_auto, option, truth
from llama_py_tools.progress import Progress

if TYPE_CHECKING:
    import numpy as np

    from llama_py import Context, Model
    from llama_py_tools.bench_output import Result

FORMATS = ("md", "csv", "json", "jsonl", "sql")


def int_ranges(text: str) -> tuple[int, ...]:
    """`1,2`, `1-4`, `1-9+2` and `64-512*2`, as llama-bench has them."""
    return tuple(n for part in text.split(",") for n in _range(part))


def _range(part: str) -> Iterator[int]:
    found = re.fullmatch(r"(-?\d+)(?:-(\d+)(?:([+*])(\d+))?)?", part)
    if not found:
        raise ValueError(f"expected numbers like 1,2 or 1-4 or 64-512*2; got {part!r}")
    n, last = int(found[1]), int(found[2] or found[1])
    step = int(found[4] or 1)
    while n <= last:
        yield n
        following = n * step if found[3] == "*" else n + step
        if following <= n:
            raise ValueError(f"{part!r} does not grow")
        n = following


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def switches(text: str) -> tuple[bool, ...]:
    return tuple(truth(word) for word in text.split(","))


def flash_attns(text: str) -> tuple[str, ...]:
    return tuple(on_off_auto(word) for word in text.split(","))


def pair(text: str) -> tuple[tuple[int, int], ...]:
    found = re.fullmatch(r"(\d+),(\d+)", text)
    if not found:
        raise ValueError(f"expected two numbers like 512,128; got {text!r}")
    return ((int(found[1]), int(found[2])),)


def format_name(text: str) -> str:
    if text not in FORMATS:
        raise ValueError(f"expected {', '.join(FORMATS)}; got {text!r}")
    return text


def _several(default: Any, flags: str, help: str, **more: Any) -> Any:
    return option((default,), flags, help, extend=True, **{"parse": int_ranges, **more})


@dataclass(frozen=True)
class BenchOptions:
    """What is measured. A tuple has the values to try."""

    model: tuple[str, ...] = _several(
        "", "-m --model", "GGUF files (default: the bundled demo model)", parse=words,
        metavar="FILE",
    )  # fmt: skip
    n_prompt: tuple[int, ...] = _several(512, "-p --n-prompt", "prompt tokens (0: no such test)")
    n_gen: tuple[int, ...] = _several(128, "-n --n-gen", "generated tokens (0: no such test)")
    pg: tuple[tuple[int, int], ...] = option(
        (), "-pg", "a prompt, then generation, in one time", parse=pair, extend=True, metavar="P,N"
    )
    n_depth: tuple[int, ...] = _several(0, "-d --n-depth", "tokens in the memory before the test")
    n_batch: tuple[int, ...] = _several(2048, "-b --batch-size", "tokens a batch", env="BATCH")
    n_ubatch: tuple[int, ...] = _several(
        512, "-ub --ubatch-size", "tokens computed at once", env="UBATCH"
    )
    type_k: tuple[str, ...] = _several(
        "f16", "-ctk --cache-type-k", "type of the K cache", parse=words, metavar="TYPE"
    )
    type_v: tuple[str, ...] = _several(
        "f16", "-ctv --cache-type-v", "type of the V cache", parse=words, metavar="TYPE"
    )
    threads: tuple[int, ...] = _several(0, "-t --threads", "threads (0: one per core)")
    n_gpu_layers: tuple[int, ...] = _several(
        -1, "-ngl --n-gpu-layers", "layers to keep on a GPU (-1: as many as fit)"
    )
    flash_attn: tuple[str, ...] = _several(
        "auto", "-fa --flash-attn", "fused attention", parse=flash_attns, metavar="on|off|auto"
    )
    delta_net: tuple[str, ...] = _several(
        "auto", "--delta-net", "how gated delta nets are computed", parse=words,
        metavar="auto|fused|autoregressive|chunked|blocks",
    )  # fmt: skip
    device: tuple[str, ...] = _several(
        "cpu", "-dev --device", "devices, one after the other; those of one model as a/b",
        parse=words, metavar="NAME",
    )  # fmt: skip
    no_repack: tuple[bool, ...] = _several(
        False, "-nr --no-repack", "leave weights as the file has them", parse=switches,
        metavar="0|1",
    )  # fmt: skip
    repetitions: int = option(5, "-r --repetitions", "runs of each test")
    output: str = option(
        "md", "-o --output", "what is written", parse=format_name, metavar="|".join(FORMATS)
    )
    warmup: bool = option(True, "--warmup", "run each test once before", off="--no-warmup")
    progress: bool = option(False, "--progress", "tell on stderr what is being run")


@dataclass(frozen=True)
class Test:
    """One line of the table: a model in a context, and how many tokens of each kind."""

    model: str
    n_gpu_layers: int
    device: str
    no_repack: bool
    n_batch: int
    n_ubatch: int
    type_k: str
    type_v: str
    flash_attn: str
    delta_net: str
    threads: int
    n_depth: int
    n_prompt: int
    n_gen: int

    @property
    def weights(self) -> tuple[str, int, str, bool]:
        """Tests that agree in these share a loaded model."""
        return self.model, self.n_gpu_layers, self.device, self.no_repack


def combinations(o: BenchOptions) -> list[Test]:
    """All combinations; the model varies slowest, so that each is loaded once."""
    kinds = [(n, 0) for n in o.n_prompt if n > 0] + [(0, n) for n in o.n_gen if n > 0]
    kinds += [pg for pg in o.pg if sum(pg) > 0]
    threads = [n if n > 0 else _cores() for n in o.threads]
    values: Iterator[Any] = product(
        o.model, o.n_gpu_layers, o.device, o.no_repack, o.n_batch, o.n_ubatch, o.type_k, o.type_v,
        o.flash_attn, o.delta_net, threads, o.n_depth, kinds,
    )  # fmt: skip
    return [Test(*how, *kind) for *how, kind in values]


def _cores() -> int:
    from ggml_cpu.backend import default_threads

    return default_threads()


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="llama-py-bench", usage="%(prog)s [-m FILE] [-p N] [-n N] [options]",
        description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add(p, CommonOptions, "general")
    add(p, BenchOptions, "tests")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """0 done, 1 error, 2 wrong usage, 130 interrupted."""
    p = parser()
    args = p.parse_args(argv)
    if collect(BenchOptions, args).repetitions < 1:
        p.error("-r must be at least 1")
    return session.run(_command, args)


def _command(args: argparse.Namespace) -> None:
    from llama_py_tools.bench_output import printer

    options = collect(BenchOptions, args)
    out = printer(options)
    out.header()
    try:
        for result in run_tests(options):
            out.row(result)
    finally:
        out.footer()


def run_tests(options: BenchOptions) -> Iterator[Result]:
    """Measure every test; a model stays loaded while the next test wants it too."""
    from llama_py_tools.bench_output import result

    model: Model | None = None
    loaded: tuple[object, ...] = ()
    todo = combinations(options)
    for i, test in enumerate(todo):
        if test.weights != loaded or model is None:
            model, loaded = None, test.weights
            model = session.load(
                test.model, test.device, test.threads, not test.no_repack,
                n_gpu_layers=test.n_gpu_layers,
            )  # fmt: skip
        ctx = model.context(
            test.n_prompt + test.n_gen + test.n_depth, n_batch=test.n_batch,
            n_ubatch=test.n_ubatch, flash_attn=test.flash_attn, type_k=test.type_k,
            type_v=test.type_v, delta_net=test.delta_net, n_threads=test.threads,
            progress=Progress("compiling kernels"),
        )  # fmt: skip
        says = f"benchmark {i + 1}/{len(todo)}" if options.progress else ""
        samples = Measure(ctx, model, test, says).samples(options.repetitions, options.warmup)
        yield result(test, model, ctx, samples)


class Measure:
    """Runs one test on a context."""

    def __init__(self, ctx: Context, model: Model, test: Test, says: str) -> None:
        import numpy as np

        self.ctx, self.test, self.says = ctx, test, says
        self.rng: np.random.Generator = np.random.default_rng(0)
        tokenizer = model.tokenizer
        self.first = tokenizer.bos if tokenizer.add_bos else None
        self.at_depth = b""

    def samples(self, repetitions: int, warmup: bool) -> list[int]:
        """Nanoseconds of each run."""
        if warmup:
            self.tell("warmup")
            self.clear()
            self.prompt(self.test.n_prompt)
            self.generate(min(self.test.n_gen, 2))  # the second token has a graph of its own
        return [self.once(i, repetitions) for i in range(repetitions)]

    def once(self, i: int, repetitions: int) -> int:
        self.go_to_depth()
        self.tell(f"run {i + 1}/{repetitions}")
        start = perf_counter_ns()
        self.prompt(self.test.n_prompt)
        self.generate(self.test.n_gen)
        return perf_counter_ns() - start

    def tell(self, what: str) -> None:
        if self.says:
            session.tell(f"{self.says}: {what}")

    def clear(self) -> None:
        self.ctx.memory.clear(False)

    def go_to_depth(self) -> None:
        """An empty memory, or one with n_depth tokens: computed once, then restored."""
        from llama_py import state

        self.clear()
        if self.at_depth:
            state.load(self.ctx, self.at_depth, 0)
        elif self.test.n_depth:
            self.tell(f"depth {self.test.n_depth}")
            self.prompt(self.test.n_depth)
            self.at_depth = state.save(self.ctx, 0)

    def prompt(self, n: int) -> None:
        """n random tokens in batches (llama-bench.cpp:test_prompt)."""
        tokens = self.random(n)
        for start in range(0, n, self.test.n_batch):
            self.ctx.decode(tokens[start : start + self.test.n_batch])

    def generate(self, n: int) -> None:
        """n random tokens one by one, each with its logits (llama-bench.cpp:test_gen)."""
        for token in self.random(n):
            self.ctx.decode([token])

    def random(self, n: int) -> list[int]:
        tokens: list[int] = self.rng.integers(0, self.ctx.n_vocab, n).tolist()
        if tokens and self.first is not None:
            tokens[0] = self.first
        return tokens
