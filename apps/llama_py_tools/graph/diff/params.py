"""Options of llama-py-graph diff."""

from __future__ import annotations

from dataclasses import dataclass

from llama_py.params.option import Params, option
from llama_py.params.rules import integers, numbers


@dataclass(frozen=True, kw_only=True)
class GraphDiffParams(Params):
    """Options of the comparison and its report."""

    files: tuple[str, ...] = option(
        (),
        "files",
        "dumps (.jsonl, .jsonl.gz), or folders of llama-py-debug --save-tensors",
        nargs="*",
        metavar="FILE",
    )
    against: str = option(
        "",
        "--against",
        "run -m and the tokens otherwise: by llama.cpp; by a device (ref, cpu,"
        " opencl0); by another GGUF file; plain: node by node; or with other options, as"
        " '-fa off', '--form delta_net=chunked', '-ub 1'",
        metavar="WHAT",
    )
    graphs_only: bool = option(
        False, "--graphs-only", "compare graphs; nothing is computed but by llama.cpp", env=""
    )
    names: bool = option(
        False, "--names", "graphs may differ: compare values of nodes of the same name", env=""
    )
    fuse: bool = option(
        True,
        "--fuse",
        "run several nodes as one step, as models are run; off: node by node",
        off="--no-fuse",
        env="",
    )
    threshold: float | None = option(
        None,
        "--threshold",
        "NMSE above which a node is wrong (default: what rounding explains, by"
        " the types of its sources; of nodes that got different inputs 1e-3)",
        check=numbers(0),
        metavar="NMSE",
        env="",
    )
    top: int = option(12, "--top", "lines of a table", check=integers(1), env="")
    overlay: str = option(
        "",
        "--overlay",
        "write the nodes with their errors, for llama-py-graph view --overlay",
        metavar="FILE",
        env="",
    )
    plot: str = option(
        "",
        "--plot",
        "draw the errors of all nodes (needs matplotlib, from the extra `plot`)",
        metavar="FILE.svg|png",
        env="",
    )
