"""Options of `llama-py-graph read`."""

from __future__ import annotations

from llama_py.params.option import Params, option

FORMATS = ("text", "html")


class ReadParams(Params):
    """Format and file of the output."""

    format: str = option(
        "text",
        "--format",
        "output format; text: for a terminal of 100 columns; html: a page with code next to nodes",
        choices=FORMATS,
    )
    output: str = option("", "-o --output", "output file (default: stdout)", metavar="FILE")
