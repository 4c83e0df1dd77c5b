"""Measure speculative decoding: tokens/s by draft length, and the cost of verifying tokens.

    python -m dev.compare.compare_spec -m model.gguf -n 256 -t 2

The first table has medians of greedy generation without drafts and with drafts of 1 to 4 tokens,
interleaved. The second table has the time of one decode of 1 to 5 tokens, each from the same
position. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

import llama_py
from ggml_py.backend import registry
from llama_py.decoding.sequences import Sequences

PROMPT = "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\n"
LENGTHS = range(5)  # draft lengths; 0: no drafts
WIDTHS = range(1, 6)  # tokens verified in one decode


@dataclass
class Length:
    """Results of all runs with one draft length."""

    rates: list[float] = field(default_factory=list)
    texts: list[list[int | None]] = field(default_factory=list)
    rate: str = ""
    length: str = ""


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    p = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    p.add_argument("-m", "--model", help="GGUF file (default: the bundled demo model)")
    p.add_argument("-md", "--model-draft", help="GGUF file of the draft model")
    p.add_argument("--spec-type", default="draft-mtp")
    p.add_argument("-p", "--prompt", default=PROMPT)
    p.add_argument("-n", type=int, default=256, help="tokens to generate")
    p.add_argument("-c", type=int, default=1024, help="context size")
    p.add_argument("-t", "--threads", type=int, default=2)
    p.add_argument("-r", type=int, default=3, help="runs per draft length")
    p.add_argument("--spec-draft-vocab", type=int, default=32768)
    return p.parse_args(argv)


def generate(
    ctx: llama_py.Context, o: argparse.Namespace, n_max: int, into: Length, n: int
) -> None:
    ctx.clear()
    how: dict[str, Any] = {"max_tokens": n}
    if n_max:
        how |= {
            "spec_type": o.spec_type,
            "spec_draft_n_max": n_max,
            "spec_draft_adaptive": False,
            "model_draft": o.model_draft,
            "spec_draft_vocab": o.spec_draft_vocab,
        }
    pieces = list(llama_py.stream(ctx, o.prompt, **how))
    into.texts.append([piece.token for piece in pieces])
    into.rates.append(pieces[-1].gen_rate)
    if n_max:
        found = next(iter(Sequences.for_context(ctx).statistics.values()))
        into.rate, into.length = f"{found.rate:.2f}", f"{found.mean_length:.2f}"


def lengths(model: llama_py.Model, o: argparse.Namespace) -> None:
    contexts = {n: model.context(o.c, n_threads=o.threads, n_rs_seq=n) for n in LENGTHS}
    runs = {n: Length() for n in LENGTHS}
    for n, ctx in contexts.items():  # the first run compiles kernels
        generate(ctx, o, n, Length(), min(o.n, 16))
    for _ in range(o.r):
        for n, ctx in contexts.items():
            generate(ctx, o, n, runs[n], o.n)
    plain = median(runs[0].rates)
    print("| draft | t/s | speedup | accepted | tokens per check | same text |")
    print("|---|---|---|---|---|---|")
    for n, run in runs.items():
        rate = median(run.rates)
        same = "yes" if all(text == runs[0].texts[0] for text in run.texts) else "no"
        cells = [f"{rate:.2f}", f"{rate / plain:.2f}", run.rate, run.length, same]
        print(f"| {n or 'none'} | {' | '.join(cells)} |")


def widths(model: llama_py.Model, o: argparse.Namespace) -> None:
    ctx = model.context(o.c, n_threads=o.threads, n_rs_seq=max(WIDTHS))
    ctx.runner.n_graphs = max(WIDTHS) + 1  # avoids rebuilding graphs
    ids = model.tokenize(o.prompt)
    seconds: dict[int, list[float]] = {n: [] for n in WIDTHS}
    ctx.decode(ids)
    for n in [n for _ in range(5 * o.r + 1) for n in WIDTHS]:
        at = ctx.memory.seq_pos_max(0) + 1
        state = ctx.save_state(0, partial=True)
        start = perf_counter()
        ctx.decode(ids[:1] * n, logits="all")
        seconds[n].append(perf_counter() - start)
        if not ctx.memory.seq_rm(0, at, -1):
            ctx.load_state(state, 0, partial=True)
            ctx.memory.seq_rm(0, at, -1)
    one = median(seconds[1][1:])
    print("\n| tokens | ms | relative to 1 |")
    print("|---|---|---|")
    for n, runs in seconds.items():
        print(f"| {n} | {median(runs[1:]) * 1e3:.2f} | {median(runs[1:]) / one:.2f} |")


def main(argv: Sequence[str] | None = None) -> int:
    o = options(argv)
    registry.device("cpu").set_threads(o.threads)
    with llama_py.load(o.model, load_mtp="draft-mtp" in o.spec_type and not o.model_draft) as model:
        lengths(model, o)
        widths(model, o)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
