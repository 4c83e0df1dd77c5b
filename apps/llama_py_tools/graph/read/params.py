"""Options of `llama-py-graph read`."""

from __future__ import annotations

from dataclasses import dataclass

from llama_py.params.option import Params, option

FORMATS = ("text", "html")


@dataclass(frozen=True, kw_only=True)
class ReadParams(Params):
    """Format and file of the output."""

    format: str = option(
        "text",
        "--format",
        "text: for a terminal of 100 columns; html: one page, code and nodes side by side",
        choices=FORMATS,
    )
    output: str = option("", "-o --output", "write there instead of stdout", metavar="FILE")
