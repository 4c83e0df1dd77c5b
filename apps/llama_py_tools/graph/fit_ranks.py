"""Command llama-py-graph fit --hosts: memory of each rank of a model over MPI, and options so that
it fits."""

from __future__ import annotations

import argparse
import json
import logging
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ggml_py.errors import BackendError
from llama_py.params import ContextParams, ModelParams
from llama_py_tools.command.options import read
from llama_py_tools.command.params import FileParams
from llama_py_tools.command.ranks import parse_hosts
from llama_py_tools.graph import plan
from llama_py_tools.graph.fit import changed_fields, flags, keywords
from llama_py_tools.graph.plan import PlanParams, columns, mib, ranges
from llama_py_tools.models import session

if TYPE_CHECKING:
    from llama_py.fit.ranks import RanksFit
    from llama_py_tools.command.supervisor import Hosts
    from llama_py_tools.graph.plan import FitParams

log = logging.getLogger("llama_py")

_LEFT_OUT = ("progress", "n_seq_max", "device")


def run(args: argparse.Namespace, o: FitParams) -> int:
    """Print options that fit; otherwise print the nearest options and return 1."""
    from llama_py.fit.planning import open_header
    from llama_py.fit.ranks import fit_ranks

    hosts, own = parse_hosts(args.hosts), read(args, FileParams)
    context, once = plan.context_options(args), _OnceFilter()
    log.addFilter(once)
    try:
        found = fit_ranks(
            open_header(session.model_path(own)),
            _memory(args, hosts),
            n_ctx=context.pop("n_ctx"),
            n_ctx_min=o.n_ctx_min,
            margin=o.target,
            context=context,
            repack=own.repack,
            model=changed_fields(read(args, ModelParams), _LEFT_OUT),
        )
    finally:
        log.removeFilter(once)
    told = _OptionsText(args, hosts, found)
    if read(args, PlanParams).json:
        session.write(json.dumps(told.as_data()) + "\n")
    elif o.args and found.fits:
        session.write(shlex.join(told.words()) + "\n")
    elif not o.args:
        session.write("\n".join(told.text()) + "\n")
    if not found.fits:
        log.error("%s", told.miss(o.target))
    return session.EXIT_OK if found.fits else session.EXIT_FAILURE


def _memory(args: argparse.Namespace, hosts: Hosts) -> list[int]:
    """Return the bytes of each rank; one size is for all. By default every machine is like this
    one, and its ranks share its free memory."""
    from ggml_py.backend.registry import device

    sizes, n = read(args, PlanParams).memory, sum(n for _, n in hosts)
    if len(sizes) == 1:
        return [*sizes] * n
    if sizes and len(sizes) != n:
        raise BackendError(f"--memory must have one size, or one per rank ({n}), got {len(sizes)}")
    free = device("cpu").memory()[0]
    return [*sizes] or [free // of_host for _, of_host in hosts for _ in range(of_host)]


class _OnceFilter(logging.Filter):
    """Log filter that passes each warning only once."""

    def __init__(self) -> None:
        super().__init__()
        self.told: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        new = text not in self.told
        self.told.add(text)
        return new


class _OptionsText:
    """Text of the found options."""

    def __init__(self, args: argparse.Namespace, hosts: Hosts, found: RanksFit) -> None:
        self.args, self.found, self.ctx = args, found, found.ctx
        self.hosts = [name for name, n in hosts for _ in range(n)]
        self.n_seqs = read(args, PlanParams).n_seqs
        own = changed_fields(read(args, ModelParams), _LEFT_OUT)
        context = changed_fields(read(args, ContextParams), _LEFT_OUT)
        self.model: dict[str, Any] = {**own, **found.options}
        self.context: dict[str, Any] = {**context, "n_ctx": found.ctx.cparams.n_ctx}

    def words(self) -> list[str]:
        """Return the options of a command."""
        repack = [] if read(self.args, FileParams).repack else ["-nr"]
        own = [*flags(ModelParams, self.model), *flags(ContextParams, self.context), *repack]
        return ["--hosts", self.args.hosts, *own]

    def text(self) -> Iterator[str]:
        model, cp = self.ctx.model, self.ctx.cparams
        several = f"{self.n_seqs} sequences of " if self.n_seqs > 1 else ""
        yield (
            f"{model.file.path}: {model.arch}; context of {several}{cp.n_ctx_seq} (the model's:"
            f" {model.hparams.n_ctx_train}), batches of {cp.n_ubatch}"
        )
        yield ""
        yield from columns(self._rows())
        if self.found.fits and self.n_seqs == 1:
            yield ""
            yield f"llama-py-cli -m {shlex.quote(str(model.file.path))} {shlex.join(self.words())}"
        if self.found.fits:
            n = len(self.hosts)
            how = {"device": tuple(f"mpi{i}" for i in range(n)), **self.model}
            seqs = {"n_seq_max": self.n_seqs} if self.n_seqs > 1 else {}
            path = str(model.file.path)
            yield ""
            yield (
                f"llama_py.load({path!r}, {keywords(how)})"
                f".context({keywords({**self.context, **seqs})})"
            )

    def _rows(self) -> list[list[str]]:
        rows = [["", "layers", "weights", "context", "compute", "total", "memory", "left"]]
        for rank, (use, left) in enumerate(zip(self.found.use, self.found.left, strict=True)):
            total = sum(use.values())
            sizes = (use["model"], use["context"], use["compute"], total, total + left, left)
            name = f"  rank {rank} on {self.hosts[rank]}"
            rows.append([name, self._layers(rank), *map(mib, sizes)])
        return rows

    def _layers(self, rank: int) -> str:
        """Return the layers that a rank has, or has a part of."""
        found = self.ctx.model
        group = next((g for g in found.placement.groups if _name(rank) in _names(g)), ())
        mine = [il for il, d in enumerate(found.layer_devices) if d.name in _names(group)]
        output = len(found.layer_devices) - 1
        layers = ranges(il for il in mine if il != output)
        parts = [layers, "output"] if output in mine else [layers]
        share = f" (1 of {len(group)})" if len(group) > 1 else ""
        return (", ".join(filter(None, parts)) or "-") + share

    def miss(self, margin: int) -> str:
        """Return the memory that the nearest options lack."""
        lacking = ", ".join(
            f"{mib(margin - left)} on rank {rank} ({self.hosts[rank]})"
            for rank, left in enumerate(self.found.left)
            if left < margin
        )
        return (
            f"-c {self.ctx.cparams.n_ctx} does not fit: {lacking} are missing; use more hosts, "
            "another -sm or --parallel, a smaller -c, -ub or -fitt, or a file of a smaller type"
        )

    def as_data(self) -> dict[str, Any]:
        """Return the options as JSON data."""
        ranks = [
            {"rank": rank, "host": host, **use, "left": left}
            for rank, (host, use, left) in enumerate(
                zip(self.hosts, self.found.use, self.found.left, strict=True)
            )
        ]
        return {
            "model": str(self.ctx.model.file.path),
            "fits": self.found.fits,
            "n_ctx": self.ctx.cparams.n_ctx,
            "args": self.words() if self.found.fits else [],
            "options": {**self.model, **self.context},
            "ranks": ranks,
        }


def _name(rank: int) -> str:
    return f"mpi{rank}"


def _names(group: Any) -> list[str]:
    return [d.name for d in group]
