"""Options of llama-py-graph diff."""

from __future__ import annotations

from llama_py.params.option import Params, option
from llama_py.params.rules import integers, numbers


class GraphDiffParams(Params):
    """Options of the comparison and its report."""

    group = "diff"

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
        "second run of the prompt: llama.cpp, a device (ref, cpu, opencl0), another GGUF file,"
        " unfused nodes (plain), or other options, such as '-fa off', '--form"
        " delta_net=chunked', '-ub 1'",
        metavar="WHAT",
    )
    graphs_only: bool = option(
        False,
        "--graphs-only",
        "compare graphs without computing values (only llama.cpp computes)",
        env="",
    )
    names: bool = option(
        False, "--names", "compare values of nodes with equal names, for graphs that differ", env=""
    )
    fuse: bool = option(
        True,
        "--fuse",
        "run fused kernels, like the model does; off: run node by node",
        off="--no-fuse",
        env="",
    )
    threshold: float | None = option(
        None,
        "--threshold",
        "maximum NMSE of a correct node (default: from the rounding of the source types, or"
        " 1e-3 if inputs differ)",
        check=numbers(0),
        metavar="NMSE",
        env="",
    )
    top: int = option(12, "--top", "lines per table", check=integers(1), env="")
    overlay: str = option(
        "",
        "--overlay",
        "file for the errors of nodes, for llama-py-graph view --overlay",
        metavar="FILE",
        env="",
    )
    plot: str = option(
        "",
        "--plot",
        "file for a plot of the errors of all nodes (needs matplotlib, from the extra `plot`)",
        metavar="FILE.svg|png",
        env="",
    )
