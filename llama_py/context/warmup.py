"""Warmup: compiles all kernels for a response at once before the first token, and runs the model
once so that it reaches full speed (common.cpp: warmup)."""

from __future__ import annotations

from llama_py.batch import Batch
from llama_py.context.context import Context

# Kernels differ by the number of tokens at once: one, a few, a tile, many.
SIZES = (*range(1, 10), 16, 17, 32, 33, 64, 128, 256)


def sizes(ctx: Context, n_seqs: int = 1) -> list[int]:
    """Return the ubatch sizes, over all sequences, that need separate kernels."""
    most = min(ctx.cparams.n_ubatch, ctx.n_ctx)
    each = (*SIZES, most // n_seqs)
    return list(dict.fromkeys(n * n_seqs for n in each if 0 < n * n_seqs <= most))


def compile_kernels(ctx: Context, n_prompt: int, n_more: int = 1) -> None:
    """Compile all kernels for a prompt and the decodes after it, of up to n_more tokens. Fast if
    they are cached."""
    if ctx.runner.lacks_next():
        ctx.prepare(_ubatch_sizes(ctx, n_prompt, n_more))


def compile_all_kernels(ctx: Context, force: bool = False) -> None:
    """Compile all missing kernels for prompts of any length, constrained responses, and parallel
    sequences: a chat or a server then compiles no kernel later.

    force   check each kernel, even if an earlier process noted that it compiled all
    """
    from llama_py.sampler.masked import mask

    mask()
    counts = dict.fromkeys((1, ctx.cparams.n_seq_max))
    ctx.prepare_once([(n, n_seqs) for n_seqs in counts for n in sizes(ctx, n_seqs)], force)


def _ubatch_sizes(ctx: Context, n_prompt: int, n_more: int) -> list[int]:
    """Return sizes of ubatches: full and last ubatch of the prompt, one token, and drafts."""
    most = min(ctx.cparams.n_ubatch, ctx.n_ctx)
    few = (n for n in (*SIZES, n_more) if n <= min(n_more, most))
    return [n for n in dict.fromkeys((min(n_prompt, most), n_prompt % most, *few)) if n]


def build_step_graph(ctx: Context, n_seqs: int) -> None:
    """Build the graph that computes a token of each of the first n_seqs sequences, without running
    it. The memory must be empty."""
    ctx.runner.computes = False
    try:
        ctx.decode(Batch([0] * n_seqs, seq_ids=[(s,) for s in range(n_seqs)]), "all", copy=False)
    finally:
        ctx.runner.computes = True
        ctx.memory.clear(False)  # no value was written


def warm_up(ctx: Context, shifts: bool = False) -> None:
    """Run the model on two tokens and on one, then clear the memory, which must be empty.

    shifts  compile also the kernels that move positions
    """
    if not ctx.memory.parts or ctx.model.has_encoder or ctx.n_ctx < 5 or ctx.checker is not None:
        return
    t = ctx.model.tokenizer
    ctx.decode([t.bos or 0, t.eos or 0])
    ctx.decode([t.bos or 0])
    if shifts and ctx.memory.can_shift:
        ctx.memory.seq_add(0, 0, -1, 1)
        ctx.decode([t.bos or 0])
    ctx.memory.clear(False)  # the first prompt uses the same pages
