"""Command llama-py-cli warmup: compiles the kernels that a model will need."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING

from llama_py.params import MAX_SEQ, ContextParams, GenerateParams, ModelParams
from llama_py.params.option import Params, get_options, option
from llama_py.params.rules import integers
from llama_py.params.speculative import SpeculativeParams
from llama_py_tools.command.options import OptionParser, read
from llama_py_tools.command.params import (
    RUN,
    CommonParams,
    DraftFileParams,
    FileParams,
    FormParams,
    SteeringParams,
)
from llama_py_tools.models import session

if TYPE_CHECKING:
    from llama_py import Context, Model

MANY = 40  # decoded tokens: frequent code is repacked after a while


class WarmupParams(Params):
    """Options of the prepared batches."""

    n_parallel: int = option(
        4,
        "--parallel",
        "number of parallel sequences to compile kernels for (1: single sequences only)",
        env="N_PARALLEL",
        check=integers(1, MAX_SEQ),
    )


def parser() -> OptionParser:
    p = OptionParser(
        "llama-py-cli warmup",
        ("--parallel", RUN, "-md --spec-type --lora"),
        usage="%(prog)s [-m FILE] [options]",
        description="Compile and cache all kernels of a model with the given options: for prompts"
        " of any length, single tokens, and several sequences.",
    )
    p.add(WarmupParams, CommonParams, FileParams, SpeculativeParams, DraftFileParams)
    p.add(ContextParams, FormParams, SteeringParams, ModelParams)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code (docs/commands.md)."""
    return session.run(_command, parser().parse_args(argv))


def _command(args: argparse.Namespace) -> None:
    from ggml_cpu import store

    session.loading()
    session.fetch_draft(args)
    start = perf_counter()
    for n_seqs in dict.fromkeys((1, read(args, WarmupParams).n_parallel)):
        _warm(args, n_seqs)
    seconds, names = perf_counter() - start, sorted(set(store.STORE.compiled))
    if names:
        print(f"compiled {len(names)} kernels in {seconds:.1f} s: {', '.join(names)}")
    else:
        print(f"all kernels are already compiled ({seconds:.1f} s)")


def _warm(args: argparse.Namespace, n_seqs: int) -> None:
    """Prepare the kernels for n_seqs parallel sequences."""
    from llama_py.context.warmup import compile_all_kernels
    from llama_py.decoding.drafting.needs import n_planes, needs_nextn

    drafting = read(args, SpeculativeParams)
    fields = {f.name: getattr(drafting, f.name) for f, _ in get_options(SpeculativeParams)}
    p = GenerateParams(**fields, max_tokens=MANY)
    model = session.open_model(args, load_mtp=needs_nextn(p))
    with model, session.open_context(args, model, n_rs_seq=n_planes(p), n_seq_max=n_seqs) as ctx:
        compile_all_kernels(ctx, force=True)
        if n_seqs == 1 and ctx.memory.parts:
            _decode(model, ctx, p)


def _decode(model: Model, ctx: Context, p: GenerateParams) -> None:
    """Generate some tokens after a prompt, then shift the cache to other positions."""
    from ggml_py.errors import GGMLError
    from llama_py import stream

    start = model.tokenizer.bos or 0
    ids = [start] * min(3, ctx.n_ctx)
    for _ in stream(ctx, ids, **{**vars(p), "max_tokens": min(MANY, ctx.n_ctx - len(ids))}):
        pass
    with suppress(GGMLError):  # some memories do not support that
        ctx.memory.seq_add(0, 0, -1, 1)
        ctx.decode([start])
