"""Writing of graphs in several text formats."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from ggml_py.graph import Graph


def render(format: str, graphs: Sequence[Graph]) -> Iterable[str]:
    """Return the text of the graphs, in pieces."""
    from ggml_py.inspection.dump import dump_json, dump_text

    if format == "json":
        return (line + "\n" for dec, g in enumerate(graphs) for line in dump_json(g, dec))
    if format == "dot":
        from llama_py_tools.graph.dot import dot

        return dot(graphs)
    if format == "ops":
        from llama_py_tools.test_backend_ops.op_file import lines

        return (line + "\n" for line in lines(graphs))
    return (f"graph {dec}: {len(g.nodes)} nodes\n{dump_text(g)}\n" for dec, g in enumerate(graphs))


@contextmanager
def output(path: str) -> Iterator[IO[str]]:
    """Yield the file of this name, or stdout."""
    if not path:
        yield sys.stdout
        return
    with Path(path).open("w", encoding="utf-8", errors="surrogateescape") as file:
        yield file
