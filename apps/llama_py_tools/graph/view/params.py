"""Options of `llama-py-graph view`."""

from __future__ import annotations

from llama_py.params.option import Params, option

VIEWS = ("html", "model-explorer", "dot", "json", "text")


class ViewParams(Params):
    """Options for the shown graphs and their format."""

    format: str = option(
        "html",
        "--format",
        "output format; html: a page in one file; model-explorer: for Google's Model Explorer,"
        " with node data in separate files; dot, json, text: see llama-py-graph dump",
        choices=VIEWS,
    )
    output: str = option("", "-o --output", "output file (default: stdout)", metavar="FILE")
    profile: bool = option(
        False, "--profile", "run the model and measure the time of each node", env=""
    )
    overlay: tuple[str, ...] = option(
        (),
        "--overlay",
        "file with values to color the nodes by, such as errors; may be repeated",
        many=True,
        parse=lambda text: (text,),
        metavar="FILE",
        env="",
    )
