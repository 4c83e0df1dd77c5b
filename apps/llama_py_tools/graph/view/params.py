"""Options of `llama-py-graph view`."""

from __future__ import annotations

from dataclasses import dataclass

from llama_py.params.option import Params, option

VIEWS = ("html", "model-explorer", "dot", "json", "text")


@dataclass(frozen=True, kw_only=True)
class ViewParams(Params):
    """Options for the shown graphs and their format."""

    format: str = option(
        "html",
        "--format",
        "html: a page to look at, one file; model-explorer: for Google's Model"
        " Explorer, with node data in files beside; dot, json, text: as dump",
        choices=VIEWS,
    )
    output: str = option("", "-o --output", "write there instead of stdout", metavar="FILE")
    profile: bool = option(
        False, "--profile", "run the model and measure the time of each node", env=""
    )
    overlay: tuple[str, ...] = option(
        (),
        "--overlay",
        "colour nodes by values of these files, such as errors",
        many=True,
        parse=lambda text: (text,),
        metavar="FILE",
        env="",
    )
