"""Common parts of `placement` and `fit`: options, sizes as text, planned models and contexts."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from llama_py.params import MAX_SEQ, ContextParams, ModelParams
from llama_py.params.option import Params, option
from llama_py.params.rules import integers
from llama_py.params.texts import byte_count, words
from llama_py_tools.command.options import OptionParser, read
from llama_py_tools.command.params import CommonParams, FileParams, FormParams
from llama_py_tools.command.ranks import HostsParams
from llama_py_tools.models import session

if TYPE_CHECKING:
    from ggml_py.backend.planned import PlanningDevice
    from llama_py.fit.planning import PlannedContext, PlannedModel

UNREAD = ("load_mode", "check_tensors", "use_mmap", "use_mlock")  # planning loads no tensors
NOT_RUN = ("check", "n_threads", "n_threads_batch")
SOUGHT = ("n_gpu_layers", "n_cpu_moe", "cpu_moe", "n_cpu_ffn", "main_gpu")  # set by `fit`
OF_RANKS = ("split_mode", "parallel", "tensor_split")  # searched also, but set for ranks


def sizes(text: str) -> tuple[int, ...]:
    return tuple(map(byte_count, words(text)))


class PlanParams(Params):
    """The machine that is planned for."""

    group = "planned machine"

    memory: tuple[int, ...] = option(
        (),
        "--memory",
        "memory per GPU or rank, such as 24G,24G, in units of 1024 (default: free memory of"
        " this machine's devices)",
        parse=sizes,
        metavar="SIZE,...",
        env="",
    )
    host_memory: int = option(
        0,
        "--host-memory",
        "memory of the host, such as 64G (default: free memory of this machine)",
        parse=byte_count,
        metavar="SIZE",
        env="",
    )
    n_seqs: int = option(
        1,
        "-np --parallel",
        "maximum number of sequences (`n_seq_max` in Python)",
        check=integers(1, MAX_SEQ),
        env="",
    )
    speed: bool = option(
        False,
        "--speed",
        "measure the memory and the disk of this machine, and print the tokens/s that they allow,"
        " if the model is on the CPU alone",
        env="",
    )
    json: bool = option(False, "--json", "print JSON", env="")


class PlacementParams(Params):
    """Options for the report of nodes."""

    node: str = option(
        "",
        "--node",
        "print only nodes with a name that matches, for each layer",
        metavar="REGEX",
        env="",
    )


class FitParams(Params):
    """Options of `fit`: memory to leave free, and output."""

    target: int = option(
        1024 << 20,
        "-fitt --fit-target",
        "free memory to reserve on each device, in MiB or with a unit, such as 2G (default: 1G)",
        parse=byte_count,
        metavar="SIZE",
    )
    n_ctx_min: int = option(
        4096,
        "-fitc --fit-ctx",
        "minimum context size per sequence if -c is not set; layers move to the host to reach"
        " this size",
        check=integers(1),
    )
    args: bool = option(False, "--args", "print only the options, for $(...)", env="")


def add(p: OptionParser, own: type[Params], without: Iterable[str] = ()) -> None:
    """Add the options of a command that plans; `own` are its specific options."""
    left_out = (*without, *UNREAD, *NOT_RUN)
    for kind in (CommonParams, FileParams, PlanParams, own, ContextParams, FormParams):
        p.add(kind, without=left_out)
    p.add(ModelParams, without=(*left_out, "max_memory"))  # --memory is another option here
    p.add(HostsParams)


def split_parallel(words: Iterable[str]) -> list[str]:
    """Return a command line in which `--parallel` may also define a model's division."""
    found = list(words)
    for i, (word, more) in enumerate(zip(found, [*found, ""][1:], strict=True)):
        flag, _, value = word.partition("=")
        if flag == "--parallel" and "=" in (value or more):
            found[i] = word.replace(flag, "--model-parallel", 1)
    return found


def plan_devices(args: argparse.Namespace, gpus: bool = False) -> list[PlanningDevice]:
    """Return the devices that the options name. With --memory alone, or `gpus`, these are GPUs: the
    machine's GPUs, or one placeholder per given size."""
    from ggml_py.errors import BackendError
    from llama_py.fit import planning

    p, model = read(args, PlanParams), read(args, ModelParams)
    if args.device is None and (p.memory or gpus):
        own = planning.gpus(len(p.memory) or None)
        found = planning.stand_ins([*own, "cpu"])
    else:
        named = isinstance(model.device, tuple)
        found = planning.stand_ins(model.device if named else ("cpu",))  # type: ignore[arg-type]
    if p.memory and len(p.memory) != len(found) - 1:
        offload = ", ".join(d.name for d in found[:-1]) or "no device except the host"
        raise BackendError(
            f"--memory must have one size per device ({offload}), got {len(p.memory)}"
        )
    for device, free in zip(found, p.memory, strict=False):
        device.limit(free)
    if p.host_memory:
        found[-1].limit(p.host_memory)
    repack = read(args, FileParams).repack
    for device in found:
        device.repack = repack
    return found


def plan_model(
    args: argparse.Namespace, devices: Sequence[PlanningDevice], **more: Any
) -> PlannedModel:
    """Return the planned model that the options name, with `more` of ModelParams. Weights that the
    host's memory cannot have are not repacked."""
    from llama_py.fit.planning import LimitedModel, open_header
    from llama_py.fit.reserve import context_reserve

    path = session.model_path(read(args, FileParams))
    how = replace(read(args, ModelParams), device=devices, progress=False, **more)
    context = ContextParams(**context_options(args))
    how = replace(how, reserve=context_reserve(path, devices, how, context))
    return LimitedModel(open_header(path), **vars(how))


def plan_context(args: argparse.Namespace, model: PlannedModel, **more: Any) -> PlannedContext:
    """Return the planned context of the options, with `more` of ContextParams."""
    from llama_py.fit.planning import PlannedContext

    return PlannedContext(model, **context_options(args, **more))


def context_options(args: argparse.Namespace, **more: Any) -> dict[str, Any]:
    p = read(args, ContextParams)
    forms = {**p.forms, **read(args, FormParams).forms}
    n_seqs = read(args, PlanParams).n_seqs
    return {**vars(p), "forms": forms, "n_seq_max": n_seqs, "progress": False, **more}


def mib(n: float) -> str:
    """Return bytes as MiB; as GiB if there are many, as bytes or KiB if few."""
    if 0 < abs(n) < 1024:
        return f"{n:g} B"
    if abs(n) >= 10 * 2**30:
        return f"{n / 2**30:.2f} GiB"
    return f"{n / 2**20:.2f} MiB" if abs(n) >= 2**18 or not n else f"{n / 2**10:.2f} KiB"


def columns(rows: Sequence[Sequence[str]], left: Iterable[int] = (0,)) -> list[str]:
    """Align rows in columns: columns in `left` to the left, others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    keep = set(left)
    return [
        "  ".join(
            cell.ljust(w) if i in keep else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as ranges: `0-3,7`."""
    found: list[list[int]] = []
    for n in sorted(set(numbers)):
        if found and n == found[-1][1] + 1:
            found[-1][1] = n
        else:
            found.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found)
