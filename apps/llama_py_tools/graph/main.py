"""Command line of llama-py-graph: print, view, compare, profile and plan the graphs of a model.

`dump` plans graphs on the null device, without computing values.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llama_py.params import ContextParams, ModelParams
from llama_py.params.option import Params, option
from llama_py.params.rules import integers
from llama_py_tools.command.options import OptionParser, read
from llama_py_tools.command.params import (
    RUN,
    CommonParams,
    FileParams,
    FormParams,
    InputParams,
    SteeringParams,
)
from llama_py_tools.command.ranks import HostsParams
from llama_py_tools.graph import plan
from llama_py_tools.graph.diff.command import check_usage
from llama_py_tools.graph.diff.command import run as diff
from llama_py_tools.graph.diff.params import GraphDiffParams
from llama_py_tools.graph.read.command import read_graphs
from llama_py_tools.graph.read.params import ReadParams
from llama_py_tools.graph.view.command import pages, view
from llama_py_tools.graph.view.params import ViewParams
from llama_py_tools.models import session

if TYPE_CHECKING:
    from ggml_py.graph import Graph

FORMATS = ("text", "json", "dot", "html", "ops")
KINDS = ("op", "layer", "node", "kernel")

# Common options of commands that only plan.
PLANNED = "-m -hf -c -b -ub -fa -ctk -ctv -v"
CONTEXT = "-c -np -b -ub -fa -ctk -ctv -v"
SPLIT = "-dev -ngl -ot -ncmoe -sm -ts"


def kinds(text: str) -> tuple[str, ...]:
    """Parse kinds of tables."""
    found = tuple(text.split(","))
    if not set(found) <= set(KINDS):
        raise ValueError(f"must be some of {', '.join(KINDS)}, got {text}")
    return found


class DumpParams(Params):
    """Options of written graphs."""

    format: str = option(
        "text",
        "--format",
        "output format; json: one line per node, for comparisons; dot: for Graphviz; html: a"
        " page; ops: for test-backend-ops --test-file",
        choices=FORMATS,
    )
    output: str = option("", "-o --output", "output file (default: stdout)", metavar="FILE")


class ProfileParams(Params):
    """Options of the `profile` command."""

    by: tuple[str, ...] = option(
        ("op", "layer", "node"),
        "--by",
        f"tables to print: {', '.join(KINDS)}",
        parse=kinds,
        env="",
        metavar="KIND,...",
    )
    repetitions: int = option(
        3,
        "-r --repetitions",
        "number of runs; the tables show the fastest run",
        check=integers(1),
        env="",
    )
    top: int = option(15, "--top", "lines per table", check=integers(1), env="")
    trace: str = option(
        "", "--trace", "file for a Chrome trace, for Perfetto", metavar="FILE.json", env=""
    )
    limits: bool = option(
        False,
        "--limits",
        "also measure the devices' limits, and print the fraction reached",
        env="",
    )
    json: bool = option(False, "--json", "print all steps as JSON, instead of tables", env="")


FIT_EXAMPLES = """examples:
  llama-py-graph fit -m model.gguf -c 8192                 # this machine
  llama-py-graph fit -m model.gguf --memory 24G,24G        # two GPUs of 24 GiB
  llama-py-graph fit -m model.gguf --hosts a,b --memory 16G,16G
"""


def parser() -> OptionParser:
    p = OptionParser("llama-py-graph", description=__doc__)
    commands = p.add_subparsers(
        dest="command", required=True, metavar="dump|read|view|diff|profile|placement|fit"
    )
    dump = commands.add_parser(
        "dump",
        common=(DumpParams, InputParams, PLANNED),
        help="write the graphs of a prompt",
        usage="%(prog)s -m FILE (-p TEXT | --tokens 1,2,3) [--decode K] [options]",
    )
    dump.add(CommonParams, FileParams, InputParams, without=("repack",))
    dump.add(ContextParams, FormParams, SteeringParams, DumpParams, without=("n_threads", "check"))
    reading = commands.add_parser(
        "read",
        common=(ReadParams, InputParams, PLANNED),
        help="print the builder code of each type of layer next to its nodes",
        usage="%(prog)s -m FILE (-p TEXT | --tokens 1,2,3) [--format html -o page.html] [options]",
    )
    reading.add(CommonParams, FileParams, InputParams, without=("repack",))
    reading.add(
        ContextParams, FormParams, SteeringParams, ReadParams, without=("n_threads", "check")
    )
    view = commands.add_parser(
        "view",
        common=(ViewParams, InputParams, RUN),
        help="make a page of the graphs of a prompt: layers, shapes, memory, times",
        usage="%(prog)s -m FILE (-p TEXT | --tokens 1,2,3) -o page.html [options]",
    )
    view.add(CommonParams, FileParams, InputParams, ViewParams)
    view.add(ContextParams, FormParams, SteeringParams, ModelParams, without=("check",))
    view.add(HostsParams)
    diff = commands.add_parser(
        "diff",
        common=(GraphDiffParams, InputParams, RUN),
        help="compare two graphs and their values, and find the first wrong node; exit code 0 if"
        " they are equal, 1 if they differ",
        usage="%(prog)s A B | -m FILE (-p TEXT | --tokens 1,2,3) --against WHAT [options]",
    )
    diff.add(CommonParams, FileParams, InputParams, GraphDiffParams)
    diff.add(ContextParams, FormParams, SteeringParams, ModelParams, without=("check",))
    profile = commands.add_parser(
        "profile",
        common=(ProfileParams, InputParams, RUN),
        help="measure the time per op, layer and node, for a prompt and decoded tokens",
        usage="%(prog)s -m FILE (-p TEXT | --tokens 1,2,3) [--decode K] [options]",
    )
    profile.add(CommonParams, FileParams, InputParams, ProfileParams)
    profile.add(ContextParams, FormParams, SteeringParams, ModelParams, without=("check",))
    profile.add(HostsParams)
    placement = commands.add_parser(
        "placement",
        common=("-m -hf --memory --host-memory --node --json", SPLIT, CONTEXT),
        help="show the device of each tensor and node, and the reason",
        usage="%(prog)s -m FILE [-dev NAME,...] [--memory SIZE,...] [-ngl N] [-ot ...] [options]",
    )
    plan.add(placement, plan.PlacementParams)
    fitting = commands.add_parser(
        "fit",
        common=("-m -hf --memory --host-memory --hosts --args --json -fitt -fitc -dev", CONTEXT),
        help="find options for a model to fit into the available memory",
        description="Find options for a model to fit into memory, without loading its weights.",
        epilog=FIT_EXAMPLES,
        usage="%(prog)s [-m FILE] [--memory SIZE,... | --hosts HOST:N,...] [-c N] [options]",
    )
    plan.add(fitting, plan.FitParams, without=plan.SOUGHT)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command: 0 done or equal, 1 different or error, 2 wrong usage."""
    p, given = parser(), plan.split_parallel(sys.argv[1:] if argv is None else argv)
    args = p.parse_args(given)
    if args.command == "diff":
        check_usage(args, lambda more: p.parse_args([*given, *more]), p.error)
    commands = {
        "dump": _dump,
        "read": read_graphs,
        "view": view,
        "diff": diff,
        "profile": _profile,
        "placement": _placement,
        "fit": _fit,
    }
    return session.run(commands[args.command], args)


def _dump(args: argparse.Namespace) -> None:
    from llama_py_tools.graph.writing import output, render

    o = read(args, DumpParams)
    graphs, title = build_graphs(args), Path(read(args, FileParams).title).name
    text = pages(graphs, title) if o.format == "html" else render(o.format, graphs)
    with output(o.output) as file:
        file.writelines(text)


def build_graphs(args: argparse.Namespace) -> list[Graph]:
    """Return the graphs of the prompt, then of each decoded token, in execution order."""
    model = session.open_model(args, device="null")
    ids, n_decode = session.input_tokens(args, model), read(args, InputParams).decode
    n_ctx = session.enough_context(args, len(ids) + n_decode)
    ctx = session.open_context(args, model, n_ctx=n_ctx)
    graphs: list[Graph] = []
    ctx.on_graph = lambda res, _: graphs.append(res.graph)
    ctx.decode(ids)
    for _ in range(n_decode):
        ctx.decode([0])
    return graphs


def _profile(args: argparse.Namespace) -> None:
    import json

    from llama_py_tools.graph.profile import WARM_TOKENS, as_data, limits, measure, tables
    from llama_py_tools.graph.trace import trace

    o = read(args, ProfileParams)
    model = session.open_model(args)
    ids, n_decode = session.input_tokens(args, model), read(args, InputParams).decode
    n_ctx = len(ids) + o.repetitions * n_decode + WARM_TOKENS
    ctx = session.open_context(args, model, n_ctx=session.enough_context(args, n_ctx))
    runs = measure(ctx, ids, n_decode, o.repetitions)
    if o.json:
        session.write(json.dumps(as_data(runs)) + "\n")
    else:
        can_do = limits(model) if o.limits else None
        told = (line for run in runs for line in tables(run, o.by, o.top, can_do))
        session.write("\n".join(told) + "\n")
    if o.trace:
        title = read(args, FileParams).title
        Path(o.trace).write_text(json.dumps(trace(runs, title)))


def _placement(args: argparse.Namespace) -> None:
    import json

    from llama_py_tools.graph.placement import as_data, report
    from llama_py_tools.graph.placement_text import text
    from llama_py_tools.graph.plan_speed import as_field, as_lines, measure_speed

    model = plan.plan_model(args, plan.plan_devices(args))
    found, p = report(model, plan.plan_context(args, model)), read(args, plan.PlanParams)
    speed = measure_speed(found.ctx) if p.speed else None
    if p.json:
        session.write(json.dumps(as_data(found) | as_field(speed)) + "\n")
    else:
        lines = [*text(found, read(args, plan.PlacementParams).node), *as_lines(speed)]
        session.write("\n".join(lines) + "\n")


def _fit(args: argparse.Namespace) -> int:
    from llama_py_tools.graph import fit, fit_ranks

    run = fit_ranks.run if args.hosts else fit.run
    return run(args, read(args, plan.FitParams))
