"""Command llama-py-graph read: the builder code of each type of layer, next to its nodes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from llama_py_tools.command.options import read
from llama_py_tools.command.params import FileParams, InputParams
from llama_py_tools.graph.read.params import ReadParams
from llama_py_tools.models import session

if TYPE_CHECKING:
    from llama_py_tools.graph.read.tree import Section

Part = tuple[str, "list[Section]"]  # title of a graph, its sections


def read_graphs(args: argparse.Namespace) -> None:
    """Write the program of the graphs of a prompt and of the tokens after it."""
    from llama_py_tools.graph.read.page import page
    from llama_py_tools.graph.read.text import text
    from llama_py_tools.graph.writing import output

    o, title = read(args, ReadParams), Path(read(args, FileParams).title).name
    arch, graphs = build(args)
    with output(o.output) as file:
        if o.format == "html":
            file.writelines(page(f"{title} ({arch})", graphs))
        else:
            for what, parts in graphs:
                file.writelines(line + "\n" for line in text(f"{title} ({arch}), {what}", parts))


def build(args: argparse.Namespace) -> tuple[str, list[Part]]:
    """Build the graphs on the null device; return the architecture and their sections."""
    from llama_py_tools.graph.read.record import CallRecorder
    from llama_py_tools.graph.read.tree import sections
    from llama_py_tools.graph.view.seen import plan_graphs

    model = session.open_model(args, device="null")
    ids, n_decode = session.input_tokens(args, model), read(args, InputParams).decode
    ctx = session.open_context(args, model, n_ctx=session.enough_context(args, len(ids) + n_decode))
    recorder = CallRecorder()
    with recorder.record():
        seen = plan_graphs(ctx, ids, n_decode)
    return model.arch, [(s.what, sections(s.graph, recorder)) for s in seen]
