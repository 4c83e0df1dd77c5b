"""llama-py-bench: measure tokens per second of prompts and of generation, like llama-bench.

Flags take several values (`-p 128,512`, `-t 1-4`, `-ub 64-512*2`, or a repeated flag); the command
runs all combinations. Tokens are random; the time excludes tokenizing and sampling.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ggml_py.machine.building import clock
from llama_py.params import ModelParams
from llama_py.params.texts import device_names, shares
from llama_py_tools.bench.output import BenchResult, printer, result
from llama_py_tools.bench.params import BenchParams, Test, combinations
from llama_py_tools.command.options import OptionParser, read
from llama_py_tools.command.params import CommonParams, FileParams, FormParams
from llama_py_tools.command.ranks import HostsParams
from llama_py_tools.models import session

if TYPE_CHECKING:
    import numpy as np

    from llama_py import Context, Model


COMMON = (
    "-m -p -n -pg -d -r -b -ub -t -fa -ctk -ctv -dev -ngl -sm -ts -o --roofline --predict"
    " --progress -v",
)
EPILOG = """examples:
  %(prog)s -m model.gguf                         # 512 prompt tokens, 128 generated tokens
  %(prog)s -m model.gguf -t 1,2,4 -p 0 -n 64     # generation with different numbers of threads
  %(prog)s -m a.gguf,b.gguf -d 0,4096 -o json    # two models, empty and long contexts
"""


def parser() -> OptionParser:
    usage = "%(prog)s [-m FILE] [-p N] [-n N] [options]"
    p = OptionParser("llama-py-bench", COMMON, usage=usage, description=__doc__, epilog=EPILOG)
    p.add(CommonParams, BenchParams, HostsParams)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code (docs/commands.md)."""
    return session.run(_command, parser().parse_args(argv))


def _command(args: argparse.Namespace) -> None:
    from llama_py.blocks.known_forms import check

    options = read(args, BenchParams)
    for form in options.delta_net:
        check(FormParams(delta_net=form).forms)
    if options.predict:
        for text in predict_tests(options):
            print(text, flush=True)
        return
    if options.roofline:
        for text in run_rooflines(options):
            print(text, flush=True)
        return
    out = printer(options)
    out.header()
    try:
        for result in run_tests(options):
            out.row(result)
    finally:
        out.footer()


def run_tests(options: BenchParams) -> Iterator[BenchResult]:
    """Run every test and yield its result."""
    for test, model, measure in prepare_tests(options):
        samples = measure.samples(options.repetitions, options.warmup)
        yield result(test, model, measure.ctx, samples)


def run_rooflines(options: BenchParams) -> Iterator[str]:
    """Yield tables of the time of one run of each test."""
    from llama_py_tools.bench import roofline

    for test, model, measure in prepare_tests(options):
        measure.samples(1, options.warmup)  # kernels are compiled, and memory is touched
        table = roofline.measure(model, measure.go_to_depth, measure.run)
        yield "\n\n".join(s for s in (test.name, roofline.waits(measure.ctx), table) if s)


def predict_tests(options: BenchParams) -> Iterator[str]:
    """Yield a table of predictions for several machines; ModelError for invalid options."""
    from ggml_py.errors import ModelError
    from llama_py_tools.bench.predict import command

    try:
        command.counts(options.predict)
        command.link(options.link)
        if options.speed:
            command.speed(options.speed)
    except ValueError as e:
        raise ModelError(f"--predict, --link or --speed: {e}") from None
    path = session.model_path(FileParams(model=options.model[0]))
    rows = command.rows(options, path, run_tests)
    yield from command.table(rows, max(options.n_prompt[0], 1))


def prepare_tests(options: BenchParams) -> Iterator[tuple[Test, Model, Measure]]:
    """Yield every test; the model is reused while the next test has the same weights."""
    from llama_py.context.warmup import compile_kernels

    model: Model | None = None
    loaded: tuple[object, ...] = ()
    todo = combinations(options)
    for i, test in enumerate(todo):
        if test.weights != loaded or model is None:
            model, loaded = None, test.weights
            file = FileParams(model=test.model, repack=not test.no_repack)
            how = ModelParams(
                device=device_names(test.device),
                n_gpu_layers=test.n_gpu_layers,
                split_mode=test.split_mode,
                parallel=test.parallel,
                tensor_split=shares(test.tensor_split) if test.tensor_split else (),
            )
            model = session.load(file, how, test.threads)
        new = partial(
            model.context,
            test.n_prompt + test.n_gen + test.n_depth,
            n_batch=test.n_batch,
            n_ubatch=test.n_ubatch,
            flash_attn=test.flash_attn,
            type_k=test.type_k,
            type_v=test.type_v,
            forms=FormParams(delta_net=test.delta_net).forms,
            n_threads=test.threads,
        )
        says = f"benchmark {i + 1}/{len(todo)}" if options.progress else ""
        measure = Measure(new, model, test, says)
        compile_kernels(measure.ctx, max(test.n_prompt, test.n_depth))
        yield test, model, measure


class Measure:
    """Runs one test on a context, or with `test.new_context` each run on a separate one.

    new  creates a context
    """

    def __init__(self, new: Callable[[], Context], model: Model, test: Test, says: str) -> None:
        import numpy as np

        self.new, self.test, self.says = new, test, says
        self.ctx = new()
        self.rng: np.random.Generator = np.random.default_rng(0)
        tokenizer = model.tokenizer
        self.first = tokenizer.bos if tokenizer.add_bos else None
        self.at_depth = b""

    def samples(self, repetitions: int, warmup: bool) -> list[int]:
        """Return the nanoseconds of each run."""
        if warmup:
            self.tell("warmup")
            self.clear()
            self.prompt(self.test.n_prompt)
            self.generate(min(self.test.n_gen, 2))  # the second token has a separate graph
        return [self.run_once(i, repetitions) for i in range(repetitions)]

    def run_once(self, i: int, repetitions: int) -> int:
        created = 0.0
        if self.test.new_context:
            self.ctx.close()
            start = clock()
            self.ctx = self.new()
            created = clock() - start
        self.go_to_depth()
        self.tell(f"run {i + 1}/{repetitions}")
        start = clock()
        self.run()
        return round(1e9 * (created + clock() - start))

    def run(self) -> None:
        self.prompt(self.test.n_prompt)
        self.generate(self.test.n_gen)

    def tell(self, what: str) -> None:
        if self.says:
            session.tell(f"{self.says}: {what}")

    def clear(self) -> None:
        self.ctx.memory.clear(False)

    def go_to_depth(self) -> None:
        """Clear the memory, or restore one with n_depth tokens, computed once."""
        from llama_py.context import state

        self.clear()
        if self.at_depth:
            state.load(self.ctx, self.at_depth, 0)
        elif self.test.n_depth:
            self.tell(f"depth {self.test.n_depth}")
            self.prompt(self.test.n_depth)
            self.at_depth = state.save(self.ctx, 0)

    def prompt(self, n: int) -> None:
        """Decode n random tokens in batches (llama-bench.cpp:test_prompt)."""
        tokens = self.random(n)
        for start in range(0, n, self.test.n_batch):
            self.ctx.decode(tokens[start : start + self.test.n_batch])

    def generate(self, n: int) -> None:
        """Decode n random tokens one by one, each with logits (llama-bench.cpp:test_gen)."""
        for token in self.random(n):
            self.ctx.decode([token])

    def random(self, n: int) -> list[int]:
        tokens: list[int] = self.rng.integers(0, self.ctx.n_vocab, n).tolist()
        if tokens and self.first is not None:
            tokens[0] = self.first
        return tokens
