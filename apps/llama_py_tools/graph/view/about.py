"""Facts about a model for the header of a graph's page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from llama_py_tools.gguf.sizes import shown
from llama_py_tools.graph.view.seen import GraphRecord

if TYPE_CHECKING:
    from llama_py import Context

Fact = tuple[str, str]


def about(ctx: Context, graphs: Sequence[GraphRecord]) -> list[Fact]:
    """Return the facts, one line each, the most important first."""
    return [*_model(ctx), *_weights(ctx), *_run(ctx, graphs)]


def _model(ctx: Context) -> Iterator[Fact]:
    hp, file = ctx.model.hparams, ctx.model.file
    name = file.metadata.get("general.name")
    if isinstance(name, str) and name:
        yield "name", name
    yield "architecture", ctx.model.arch
    nextn = f" + {hp.n_layer_nextn} NextN" if hp.n_layer_nextn else ""
    yield "layers", f"{hp.n_layer}{nextn}"
    yield "embedding", f"{hp.n_embd:,}"
    if heads := _span([n for n in hp.n_head if n]):
        yield "heads", f"{heads}, of keys {_span([n for n in hp.n_head_kv if n])}"
    if hp.n_expert:
        yield "experts", f"{hp.n_expert}, {_span(hp.n_expert_used)} used"
    if any(hp.n_ff) and not hp.n_expert:
        yield "feed-forward", _span(hp.n_ff)
    yield "vocabulary", f"{hp.n_vocab:,}"
    yield "trained context", f"{hp.n_ctx_train:,}"


def _weights(ctx: Context) -> Iterator[Fact]:
    model = ctx.model
    yield "parameters", _large(model.n_params)
    yield "weights", shown(model.n_bytes)
    sizes = Counter[str]()
    for info in model.file.tensors.values():
        sizes[info.type.name] += info.nbytes
    total = sum(sizes.values()) or 1
    types = [f"{kind} {_percent(n / total)}" for kind, n in sizes.most_common(4)]
    yield "types", ", ".join(types)


def _run(ctx: Context, graphs: Sequence[GraphRecord]) -> Iterator[Fact]:
    yield "devices", ", ".join(d.name for d in ctx.devices)
    yield "context", f"{ctx.n_ctx:,} tokens"
    sizes = ctx.runner.compute_sizes()
    yield "compute buffer", " + ".join(shown(n) for n in sizes if n) or "0 B"
    if any(seen.plan is not None and len(seen.plan.splits) > 1 for seen in graphs):
        yield "splits", ", ".join(str(len(s.plan.splits)) for s in graphs if s.plan is not None)
        copied = [
            [t.nbytes for split in s.plan.splits for t, _ in split.inputs]
            for s in graphs
            if s.plan is not None
        ]
        yield "copied", "; ".join(f"{len(of)} values, {shown(sum(of))}" for of in copied)


def _span(values: Sequence[int]) -> str:
    """Return one number, or the minimum and the maximum."""
    if not values:
        return ""
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _percent(part: float) -> str:
    return f"{100 * part:.0f}%" if part >= 0.005 else "<1%"


def _large(n: float) -> str:
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n:.0f}"
