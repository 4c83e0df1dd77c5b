"""Command llama-py-graph view: planned or measured graphs as pages."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llama_py.params import ModelParams
from llama_py_tools.command.options import read
from llama_py_tools.command.params import FileParams, InputParams
from llama_py_tools.graph.view.params import ViewParams
from llama_py_tools.models import session

if TYPE_CHECKING:
    from ggml_py.graph import Graph
    from llama_py import Context
    from llama_py_tools.graph.view.seen import GraphRecord

REPETITIONS = 5  # measured runs; the fastest is shown


def view(args: argparse.Namespace) -> None:
    """Write the views that the options select; GGMLError for invalid overlays."""
    from llama_py_tools.graph.dumps import read_records
    from llama_py_tools.graph.view import overlays
    from llama_py_tools.graph.view.about import about
    from llama_py_tools.graph.writing import output, render

    o, title = read(args, ViewParams), Path(read(args, FileParams).title).name
    values = [(path, read_records(path)) for path in o.overlay]
    ctx, seen = (_time_graphs if o.profile else _plan_graphs)(args)
    for path, records in values:
        overlays.put(seen, records, path)
    if o.format == "model-explorer":
        _write_model_explorer(seen, title, o.output)
        return
    if o.format == "html":
        from llama_py_tools.graph.view.data import page_data
        from llama_py_tools.graph.view.page import page

        text: Iterable[str] = page(page_data(seen, title, about(ctx, seen)))
    else:
        text = render(o.format, [s.graph for s in seen])
    with output(o.output) as file:
        file.writelines(text)
    if o.output and o.format == "html":
        session.tell(f"{o.output}: open it in a browser")


def pages(graphs: Sequence[Graph], title: str) -> Iterable[str]:
    """Return the page of graphs without other data."""
    from llama_py_tools.graph.view.data import page_data
    from llama_py_tools.graph.view.page import page
    from llama_py_tools.graph.view.seen import GraphRecord

    return page(page_data([GraphRecord(f"graph {dec}", g) for dec, g in enumerate(graphs)], title))


def _plan_graphs(args: argparse.Namespace) -> tuple[Context, list[GraphRecord]]:
    """Return graphs on planned devices, which make the same decisions without computing or
    allocating. A model of any size is shown at once."""
    from llama_py.fit.planning import stand_ins
    from llama_py.weights.placement import devices_in_use
    from llama_py_tools.graph.view.seen import plan_graphs

    named = read(args, ModelParams).device
    devices = stand_ins(named if isinstance(named, tuple) else devices_in_use(named))
    model = session.open_model(args, device=devices)
    ids, n_decode = session.input_tokens(args, model), read(args, InputParams).decode
    n_ctx = session.enough_context(args, len(ids) + n_decode)
    ctx = session.open_context(args, model, n_ctx=n_ctx)
    return ctx, plan_graphs(ctx, ids, n_decode)


def _time_graphs(args: argparse.Namespace) -> tuple[Context, list[GraphRecord]]:
    """Return graphs after running and timing them."""
    from llama_py_tools.graph.profile import WARM_TOKENS, measure
    from llama_py_tools.graph.view.seen import time_graphs

    model = session.open_model(args)
    ids, n_decode = session.input_tokens(args, model), read(args, InputParams).decode
    n_ctx = len(ids) + REPETITIONS * n_decode + WARM_TOKENS
    ctx = session.open_context(args, model, n_ctx=session.enough_context(args, n_ctx))
    return ctx, time_graphs(ctx, lambda: measure(ctx, ids, n_decode, REPETITIONS))


def _write_model_explorer(seen: Sequence[GraphRecord], title: str, path: str) -> None:
    """Write the graphs, and one file of node data per kind next to theirs: FILE.time.json."""
    import json

    from llama_py_tools.graph.view import model_explorer
    from llama_py_tools.graph.writing import output

    with output(path) as file:
        file.write(json.dumps(model_explorer.graphs(seen, title)) + "\n")
    if path:
        for name, data in model_explorer.node_data(seen).items():
            safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
            beside = Path(path).with_suffix(f".{safe}.json")
            beside.write_text(json.dumps(data) + "\n", "utf-8")
