"""Command llama-py-graph diff: compares graphs first, then values."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_py.params import ContextParams, ModelParams
from llama_py_tools.command.options import read
from llama_py_tools.command.params import FileParams, FormParams, InputParams, SteeringParams
from llama_py_tools.graph.diff.params import GraphDiffParams
from llama_py_tools.graph.dumps import read_records
from llama_py_tools.models import session

if TYPE_CHECKING:
    from ggml_py.inspection.dump import Record
    from llama_py import Context, Model
    from llama_py_tools.graph.diff.found import RunComparison
    from llama_py_tools.graph.diff.run import Key, RecordedRun

LLAMA_CPP, PLAIN = "llama.cpp", "plain"
JUDGE = "ref"
Parse = Callable[[Sequence[str]], argparse.Namespace]


@dataclass(frozen=True)
class PeerRun:
    """Run that the model is compared with.

    ours, theirs  names of the two runs
    args          options of the other run; None: llama.cpp's
    other_graph   graphs may differ;  other_weights  types of weights may
    """

    ours: str
    theirs: str
    args: argparse.Namespace | None
    other_graph: bool = False
    other_weights: bool = False


def check_usage(args: argparse.Namespace, parse: Parse, refuse: Callable[[str], Any]) -> None:
    """Refuse invalid options; set args.other to the run for --against."""
    o = read(args, GraphDiffParams)
    n_files = len(o.files)
    if n_files > (1 if o.against else 2) or (n_files < 2 and not o.against):
        refuse("diff takes two files, or --against WHAT and at most one dump")
    if n_files and o.against not in ("", LLAMA_CPP):
        refuse("a dump can be compared only with another dump, or --against llama.cpp")
    args.other = _open_peer(args, o.against, parse, refuse) if o.against else None


def _open_peer(
    args: argparse.Namespace, against: str, parse: Parse, refuse: Callable[[str], Any]
) -> PeerRun | None:
    from ggml_py.backend.registry import backend_names

    device, file = read(args, ModelParams).device, read(args, FileParams)
    names = device if isinstance(device, (list, tuple)) else [device]
    ours = ",".join(map(str, names))
    if against == LLAMA_CPP:
        return PeerRun(ours, LLAMA_CPP, None)
    if against == PLAIN:
        return PeerRun(ours, PLAIN, args)
    if against.startswith("-"):
        return PeerRun(ours, against, parse(shlex.split(against)), other_graph=True)
    if Path(against).is_file():
        paths = [file.title, against]
        short = [Path(path).name for path in paths]
        first, second = paths if short[0] == short[1] else short
        return PeerRun(first, second, parse(["-m", against]), other_weights=True)
    words = against.split(",")
    if all(word.rstrip("0123456789") in backend_names() for word in words):
        theirs = against if against != ours else f"{against} again"
        return PeerRun(ours, theirs, parse(["-dev", against]))
    refuse(
        f"--against must be a file, a device ({', '.join(backend_names())}), {LLAMA_CPP}, "
        f"{PLAIN} or '-option value', got {against}"
    )
    return None


def run(args: argparse.Namespace) -> int:
    """Compare; return 0 if equal, 1 if different."""
    o = read(args, GraphDiffParams)
    if args.other is None:
        return _files(o)
    if o.files or o.graphs_only:
        return _graphs(args, o)
    return _values(args, args.other, o)


def _files(o: GraphDiffParams) -> int:
    if not all(Path(path).is_dir() for path in o.files):
        return tell_graphs(*(read_records(path) for path in o.files))
    from llama_py_tools.graph.diff.found import by_name, compare_runs
    from llama_py_tools.graph.diff.run import from_folder

    ours, theirs = (from_folder(path) for path in o.files)
    code = tell_graphs(ours.records, theirs.records)
    if code and not o.names:
        return code
    found = (by_name if code else _along(compare_runs))(ours, theirs, o.threshold)
    return _tell(found, {}, o)


def _along(
    aligned: Callable[..., RunComparison],
) -> Callable[[RecordedRun, RecordedRun, float | None], RunComparison]:
    return lambda ours, theirs, bound: aligned(ours, theirs, bound, along=True)


def tell_graphs(a: Sequence[Record], b: Sequence[Record]) -> int:
    """Print the first difference, or that the graphs are equal."""
    from ggml_py.inspection.dump import diff

    found = diff(a, b)
    if found is None:
        print(f"equal: {len(a)} nodes", flush=True)
        return session.EXIT_OK
    from llama_py_tools.graph.diff.graphs import lines

    print("\n".join(lines(a, b, found)), flush=True)
    return session.EXIT_FAILURE


def _graphs(args: argparse.Namespace, o: GraphDiffParams) -> int:
    """Compare graphs only: ours or a dump's with llama.cpp's, or with a plan of other options."""
    other: PeerRun = args.other
    ours = read_records(o.files[0]) if o.files else _plan_nodes(args)[0]
    if other.args is not None:
        theirs = _plan_nodes(other.args)[0]
        return tell_graphs(*_comparable(ours, theirs, other))
    return tell_graphs(ours, _of_llama_cpp(args, True).records)


def _plan_nodes(args: argparse.Namespace) -> tuple[list[Record], bool]:
    """Return the nodes of graphs planned on the null device, and True if the graphs have
    logits."""
    from ggml_py.inspection.dump import records
    from llama_py_tools.graph.diff.local_run import begin

    model = session.open_model(args, device="null", n_gpu_layers=-1)
    ids, n_decode = _input(args, model)
    ctx = _context(args, model, len(ids) + n_decode)
    found: list[Record] = []
    logits: list[bool] = []

    def keep(res: Any, _: object) -> None:
        found.extend(records(res.graph, len(logits)))
        logits.append(res.t_logits is not None)

    ctx.on_graph = keep
    ctx.decode(begin(ctx, ids), logits="all")
    for _ in range(n_decode):
        ctx.decode([0], logits="all")
    return found, logits[-1]


def _input(args: argparse.Namespace, model: Model) -> tuple[list[int], int]:
    return session.input_tokens(args, model), read(args, InputParams).decode


def _context(args: argparse.Namespace, model: Model, n: int, **more: Any) -> Context:
    return session.open_context(args, model, n_ctx=session.enough_context(args, n), **more)


def _of_llama_cpp(args: argparse.Namespace, has_logits: bool) -> RecordedRun:
    from ggml_py.errors import ContextError
    from llama_py_tools.graph.diff.peer_run import record
    from llama_py_tools.graph.peer import CACHE_TYPES

    model = session.open_model(args, device="null", n_gpu_layers=-1)
    ids, n_decode = _input(args, model)
    o, steering = read(args, ContextParams), read(args, SteeringParams)
    if o.type_k != o.type_v or o.type_k not in CACHE_TYPES:
        raise ContextError(
            "--against llama.cpp needs the same cache type for keys and values (-ctk, -ctv), "
            f"{' or '.join(CACHE_TYPES)}, got {o.type_k} and {o.type_v}"
        )
    forms = {**o.forms, **read(args, FormParams).forms}
    start = model.architecture.start_token if model.has_encoder else None
    files = () if steering.lora_init_without_apply else session.adapter_files(steering)
    return record(
        str(model.file.path),
        ids,
        n_decode,
        files,
        has_logits,
        forms,
        session.directions(steering),
        start,
        n_ctx=o.n_ctx or len(ids) + n_decode,
        n_batch=o.n_batch,
        n_ubatch=o.n_ubatch,
        flash_attn=str(o.flash_attn),
        cache=o.type_k,
        n_threads=o.n_threads or 0,
        **_rope(o),
    )


SCALINGS = {"none": 0, "linear": 1, "yarn": 2}  # llama.h:llama_rope_scaling_type
ROPE = (
    "rope_freq_base",
    "rope_freq_scale",
    "yarn_orig_ctx",
    "yarn_ext_factor",
    "yarn_attn_factor",
    "yarn_beta_slow",
    "yarn_beta_fast",
    "swa_full",
)


def _rope(o: ContextParams) -> dict[str, Any]:
    """Return the fields of llama_context_params that the options change."""
    plain = ContextParams()
    found = {k: getattr(o, k) for k in ROPE if getattr(o, k) != getattr(plain, k)}
    if o.rope_scale:
        found["rope_freq_scale"] = 1 / o.rope_scale
    if o.rope_scaling is not None:
        found["rope_scaling_type"] = SCALINGS[o.rope_scaling]
    return found


def _comparable(
    ours: Sequence[Record], theirs: Sequence[Record], other: PeerRun
) -> tuple[Sequence[Record], Sequence[Record]]:
    """Return records without the types of leafs, if weights may differ."""
    if not other.other_weights:
        return ours, theirs
    made = {r["name"] for r in (*ours, *theirs)}

    def bare(r: Record) -> Record:
        src = [s if s["name"] in made else {k: s[k] for k in ("k", "name", "ne")} for s in r["src"]]
        return {**r, "src": src}

    return [bare(r) for r in ours], [bare(r) for r in theirs]


def _values(args: argparse.Namespace, other: PeerRun, o: GraphDiffParams) -> int:
    from llama_py_tools.graph.diff import local_run
    from llama_py_tools.graph.diff.found import by_name, compare_runs

    code = session.EXIT_OK
    if other.args is None:
        planned, has_logits = _plan_nodes(args)
        theirs = _of_llama_cpp(args, has_logits)
        if (code := tell_graphs(planned, theirs.records)) and not o.names:
            return code
    with _open_context(args, fuse=_fuses(args, o)) as (ctx, ids, n_decode):
        if other.args is not None:
            with _open_context(other.args, fuse=False) as (another, _, _):
                theirs = local_run.record(another, other.theirs, ids, n_decode)
        ours = local_run.record(ctx, other.ours, ids, n_decode, theirs.chosen)
    if other.args is not None:
        code = tell_graphs(*_comparable(ours.records, theirs.records, other))
    if code and not (o.names or other.other_graph):
        return code
    if code:
        found = by_name(ours, theirs, o.threshold)
        return _tell(found, {}, o, _sound(args, other) if found.far_nodes else ())
    found = compare_runs(ours, theirs, o.threshold)
    found.other_weights = other.other_weights
    return _tell(found, {} if found.is_identical else _find_verdicts(args, found, o), o)


def _fuses(args: argparse.Namespace, o: GraphDiffParams) -> bool:
    """Return True if steps are fused; with different weights each must be compared separately."""
    return o.fuse and not args.other.other_weights


@contextmanager
def _open_context(args: argparse.Namespace, **how: Any) -> Iterator[tuple[Context, list[int], int]]:
    """Yield a context, and its input."""
    model = session.open_model(args)
    with model:
        ids, n_decode = _input(args, model)
        with _context(args, model, len(ids) + n_decode, **how) as ctx:
            yield ctx, ids, n_decode


def _find_verdicts(
    args: argparse.Namespace, found: RunComparison, o: GraphDiffParams
) -> dict[Key, Any]:
    """Compute each node from the other run's values; return the reference's verdicts on the first
    wrong."""
    from ggml_py.backend.registry import device
    from llama_py_tools.graph.diff import blame

    with _open_context(args, fuse=_fuses(args, o)) as (ctx, ids, n_decode):
        fused = blame.make_known(found, ctx, ids, n_decode)
    wanted = blame.nodes_to_check(found)
    if not wanted:
        return {}
    with _open_context(args, fuse=False, check=JUDGE) as (ctx, ids, n_decode):
        verdicts = blame.judge(found, wanted, ctx, device(JUDGE), ids, n_decode)
    if steps := blame.doubtful(found, verdicts):
        with _open_context(args, fuse=False) as (ctx, ids, n_decode):
            blame.compare_steps(found, steps, fused, ctx, ids, n_decode)
    return verdicts


def _sound(args: argparse.Namespace, other: PeerRun) -> Iterator[str]:
    """Check each run's nodes against their ops, if the graphs differ."""
    from ggml_py.inspection.check import CheckFailed
    from llama_py_tools.graph.diff.local_run import begin

    for what, which in ((other.ours, args), (other.theirs, other.args)):
        if which is None:
            continue
        with _open_context(which, fuse=False, check=JUDGE) as (ctx, ids, _):
            try:
                ctx.decode(begin(ctx, ids))
                yield f"{what}: every node of the prompt matches {JUDGE}, given the same inputs"
            except CheckFailed as e:
                yield f"{what}: {e}"


def _tell(
    found: RunComparison,
    verdicts: dict[Key, Any],
    o: GraphDiffParams,
    more: Iterator[str] | Sequence[str] = (),
) -> int:
    from llama_py_tools.graph.diff.report import lines

    session.write("".join(f"{line}\n" for line in lines(found, verdicts, o.top)))
    for line in more:
        session.write(f"\n{line}")
    session.write("\n" if more else "")
    if o.overlay or o.plot:
        from llama_py_tools.graph.diff import plot

        if o.overlay:
            plot.write_overlay(found, o.overlay)
        if o.plot:
            plot.plot(found, o.plot)
    return session.EXIT_FAILURE if found.far_nodes else session.EXIT_OK
