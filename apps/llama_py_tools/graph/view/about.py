"""Facts about a model for the header of a graph's page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from llama_py_tools.graph.view.memory import memories
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
        yield "heads", f"{heads}, {_span([n for n in hp.n_head_kv if n])} for keys"
    if hp.n_expert:
        yield "experts", f"{hp.n_expert}, {_span(hp.n_expert_used)} used"
    if any(hp.n_ff) and not hp.n_expert:
        yield "feed-forward", _span(hp.n_ff)
    yield "vocabulary", f"{hp.n_vocab:,}"
    yield "trained context", f"{hp.n_ctx_train:,}"


def _weights(ctx: Context) -> Iterator[Fact]:
    model = ctx.model
    yield "parameters", _show_large(model.n_params)
    yield "weights", format_bytes(model.n_bytes)
    sizes = Counter[str]()
    for info in model.file.tensors.values():
        sizes[info.type.name] += info.nbytes
    total = sum(sizes.values()) or 1
    types = [f"{kind} {_percent(n / total)}" for kind, n in sizes.most_common(4)]
    yield "types", ", ".join(types)


def _run(ctx: Context, graphs: Sequence[GraphRecord]) -> Iterator[Fact]:
    yield "devices", ", ".join(d.name for d in ctx.devices)
    yield "context", f"{ctx.n_ctx:,} tokens"
    yield "compute buffers", "; ".join(_buffers(ctx, graphs)) or "0 B"
    if any(seen.plan is not None and len(seen.plan.splits) > 1 for seen in graphs):
        yield "splits", ", ".join(str(len(s.plan.splits)) for s in graphs if s.plan is not None)
        copied = [
            [t.nbytes for split in s.plan.splits for t, _ in split.inputs]
            for s in graphs
            if s.plan is not None
        ]
        yield "copied", "; ".join(f"{len(of)} values, {format_bytes(sum(of))}" for of in copied)


def _buffers(ctx: Context, graphs: Sequence[GraphRecord]) -> Iterator[str]:
    """Yield each device's bytes of compute buffers, with their parts as the page names them."""
    parts: dict[str, dict[str, int]] = {}
    for seen in graphs:
        sizes = Counter[tuple[str, str]]()
        for m in memories(seen):
            sizes[m.device, m.kind] += m.size
        for (device, kind), n in sizes.items():
            known = parts.setdefault(device, {})
            known[kind] = max(known.get(kind, 0), n)
    sizes_of = zip(ctx.devices, ctx.runner.compute_sizes(), strict=True)
    used = [(d.name, n) for d, n in sizes_of if n]
    for name, n in used:
        prefix = f"{name}: " if len(used) > 1 else ""
        of_kinds = [f"{format_bytes(size)} {kind}" for kind, size in parts.get(name, {}).items()]
        yield f"{prefix}{format_bytes(n)}" + (f" ({', '.join(of_kinds)})" if of_kinds else "")


def format_bytes(n: float) -> str:
    """Write a number of bytes with three digits, as the page does (page/format.js:bytes)."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while n >= 1024 and len(units) > 1:
        n, units = n / 1024, units[1:]
    return f"{n:.0f} {units[0]}" if n >= 100 or units[0] == "B" else f"{n:.3g} {units[0]}"


def _span(values: Sequence[int]) -> str:
    """Return one number, or the minimum and the maximum."""
    if not values:
        return ""
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _percent(part: float) -> str:
    return f"{100 * part:.0f}%" if part >= 0.005 else "<1%"


def _show_large(n: float) -> str:
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n:.0f}"
