"""Command llama-py-graph fit: finds options that fit a model into memory."""

from __future__ import annotations

import argparse
import json
import logging
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import compress
from typing import TYPE_CHECKING, Any

from ggml_py.errors import ModelError
from llama_py.decoding.prefix_cache.budget import CACHE_RAM
from llama_py.params import ContextParams, ModelParams
from llama_py.params.option import Params, get_options
from llama_py_tools.command.options import read
from llama_py_tools.command.params import FileParams
from llama_py_tools.graph import plan
from llama_py_tools.graph.plan import PlanParams, columns, mib, ranges
from llama_py_tools.models import session

if TYPE_CHECKING:
    from ggml_py.backend.planned import PlanningDevice
    from llama_py.fit import Fit
    from llama_py_tools.graph.plan import FitParams

log = logging.getLogger("llama_py")

Options = dict[str, Any]
_LEFT_OUT = ("progress", "n_seq_max", "device")


def run(args: argparse.Namespace, o: FitParams) -> int:
    """Print options that fit; otherwise print the nearest options and return 1."""
    from llama_py.fit import fit
    from llama_py.fit.planning import open_header
    from llama_py_tools.graph.plan_speed import as_field, as_lines, measure_speed

    named = [name for name in plan.OF_RANKS if getattr(args, name) is not None]
    if named:
        raise ModelError(f"fit chooses {', '.join(named)}; omit them, except with --hosts")
    devices = plan.plan_devices(args, gpus=True)
    file = open_header(session.model_path(read(args, FileParams)))
    model, context = changed_fields(read(args, ModelParams), _LEFT_OUT), plan.context_options(args)
    found = fit(
        file,
        devices,
        n_ctx=context.pop("n_ctx"),
        n_ctx_min=o.n_ctx_min,
        margins=[o.target] * len(devices),
        model=model,
        context=context,
    )
    chosen = _FitText(args, devices, found, o.target)
    p = read(args, PlanParams)
    speed = measure_speed(found.ctx) if p.speed and found.fits else None
    if p.json:
        session.write(json.dumps(chosen.as_data() | as_field(speed)) + "\n")
    elif o.args and found.fits:
        session.write(shlex.join(chosen.words()) + "\n")
    elif not o.args:
        session.write("\n".join([*chosen.text(), *as_lines(speed)]) + "\n")
    if not found.fits:
        log.error("%s", chosen.miss())
    return session.EXIT_OK if found.fits else session.EXIT_FAILURE


def changed_fields(params: Params, left_out: Sequence[str] = ()) -> Options:
    """Return the fields that differ from their defaults."""
    plain = type(params)()
    return {
        f.name: value
        for f in fields(params)
        if f.name not in left_out and (value := getattr(params, f.name)) != getattr(plain, f.name)
    }


def _device_names(devices: Sequence[PlanningDevice], args: argparse.Namespace) -> list[str]:
    """Return the devices' names for -dev; a device that is used twice has one name."""
    named = read(args, ModelParams).device
    if args.device is not None and isinstance(named, tuple):
        return [str(name) for name in named]
    return [d.name for d in devices]


def _drop_unused_gpus(options: Options, found: Fit) -> Options:
    """Return the options without GPUs that have no memory in use, if the others have the whole
    model."""
    use = found.ctx.memory_breakdown()
    used = [sum(use[d.name].values()) > 0 for d in found.ctx.devices[:-1]]
    names, split = options["device"], options.get("tensor_split", ())
    if all(used) or not any(used) or len(set(names)) < len(names) or len(split) != len(used):
        return options
    used_names = (*compress(names, used), *names[len(used) :])
    rest = {k: v for k, v in options.items() if k != "tensor_split"}
    shares = {"tensor_split": tuple(compress(split, used))} if sum(used) > 1 else {}
    return {**rest, "device": used_names, **shares}


class _FitText:
    """Text of the found options."""

    def __init__(
        self, args: argparse.Namespace, devices: Sequence[PlanningDevice], found: Fit, target: int
    ) -> None:
        self.args, self.devices, self.found, self.target = args, devices, found, target
        self.ctx, self.answer = found.ctx, found.answer
        self.n_seqs = read(args, PlanParams).n_seqs
        context = {
            **changed_fields(read(args, ContextParams), _LEFT_OUT),
            "n_ctx": found.answer.n_ctx,
        }
        own = changed_fields(read(args, ModelParams), _LEFT_OUT)
        options: Options = {"device": tuple(_device_names(devices, args)), **own, **found.options}
        self.model = _drop_unused_gpus(options, found)
        host = self.ctx.devices[-1]
        self.host_left = found.left[host.name] - target
        if found.fits and self.host_left >> 20 < CACHE_RAM:
            context.setdefault("cache_ram", max(0, self.host_left >> 20))
        self.context: Options = context

    def words(self) -> list[str]:
        """Return the options of a command."""
        file = read(self.args, FileParams)
        repack = [] if file.repack else ["-nr"]
        return [*flags(ModelParams, self.model), *flags(ContextParams, self.context), *repack]

    def python(self) -> str:
        seqs = {"n_seq_max": self.n_seqs} if self.n_seqs > 1 else {}
        path = str(self.ctx.model.file.path)
        model, context = keywords(self.model), keywords({**self.context, **seqs})
        return f"llama_py.load({path!r}, {model}).context({context})"

    def text(self) -> Iterator[str]:
        model, ctx = self.ctx.model, self.ctx
        each, trained = ctx.cparams.n_ctx_seq, model.hparams.n_ctx_train
        cells = f"{self.n_seqs} sequences of {each}" if self.n_seqs > 1 else f"{each}"
        yield (
            f"{model.file.path}: {model.arch}, {mib(model.n_bytes)} of weights; context of {cells}"
            f" (the model's: {trained}), batches of {ctx.cparams.n_ubatch}"
        )
        yield ""
        yield from columns(self._rows(), (0, 1, 2))
        absent = [d.name for d in ctx.devices if d.description == "not on this machine"]
        if absent:
            yield f"  ({', '.join(absent)}: not on this machine; assumed buffer limit: a"
            yield "  quarter of the memory, the minimum in OpenCL)"
        if not self.found.fits:
            return
        if self.n_seqs == 1:  # parallel sequences are only available in Python
            yield ""
            yield f"llama-py-cli -m {shlex.quote(str(model.file.path))} {shlex.join(self.words())}"
        yield ""
        yield self.python()

    def _rows(self) -> list[list[str]]:
        rows = [
            ["", "layers", "experts of", "weights", "context", "compute", "total", "memory", "left"]
        ]
        n_layer = self.answer.n_all - 1
        for i, (d, use) in enumerate(self._uses()):
            mine = [il for il, at in enumerate(self.answer.devices) if at == i]
            layers = ranges(il for il in mine if il < n_layer)
            output = [layers, "output"] if n_layer in mine else [layers]
            total = sum(use.values())
            rows.append(
                [
                    f"  {d.name}",
                    ", ".join(filter(None, output)) or "-",
                    ranges(self._experts(i)) or "-",
                    mib(use["model"]),
                    mib(use["context"]),
                    mib(use["compute"]),
                    mib(total),
                    mib(total + self.found.left[d.name]),
                    mib(self.found.left[d.name]),
                ]
            )
        return rows

    def _uses(self) -> list[tuple[Any, Mapping[str, int]]]:
        use = self.ctx.memory_breakdown()
        return [(d, use[d.name]) for d in self.ctx.devices]

    def _experts(self, i: int) -> list[int]:
        """Return the layers with experts on a device."""
        if not self.answer.n_moe:
            return []
        host = len(self.ctx.devices) - 1
        return [
            il
            for il, at in enumerate(self.answer.devices[:-1])
            if (host if il in self.answer.on_host else at) == i
        ]

    def miss(self) -> str:
        """Return the nearest options and the memory they lack."""
        least = {
            name: self.target - left for name, left in self.found.left.items() if left < self.target
        }
        lacking = ", ".join(f"{mib(n)} on {name}" for name, n in least.items())
        small = [
            f"{d.name} supports buffers of at most {mib(d.largest)}, but one needs {mib(d.asked)}"
            for d in self.devices
            if d.largest is not None and d.asked > d.largest
        ]
        why = "; ".join(filter(None, [lacking and f"{lacking} are missing", *small]))
        words = shlex.join(flags(ModelParams, {**self.found.options, "n_ctx": None}))
        return (
            f"no setting fits; the nearest is {words or 'all on the host'} -c {self.answer.n_ctx}:"
            f" {why};"
            " use a smaller -c, -ub or -fitt, or -ctk q8_0 -ctv q8_0, or a file of a smaller type"
        )

    def as_data(self) -> Options:
        """Return the options as JSON data."""
        devices = [
            {
                "name": d.name,
                "free": sum(use.values()) + self.found.left[d.name],
                **use,
                "left": self.found.left[d.name],
                "layers": [il for il, at in enumerate(self.answer.devices[:-1]) if at == i],
                "experts_of": self._experts(i),
            }
            for i, (d, use) in enumerate(self._uses())
        ]
        return {
            "model": str(self.ctx.model.file.path),
            "fits": self.found.fits,
            "n_ctx": self.answer.n_ctx,
            "args": self.words() if self.found.fits else [],
            "options": {**self.model, **self.context},
            "devices": devices,
        }


def flags(kind: type[Params], values: Mapping[str, Any]) -> list[str]:
    """Return options as words, each with its shortest flag."""
    words: list[str] = []
    for f, o in get_options(kind):
        if f.name not in values or not o.flags or values[f.name] is None:
            continue
        value = values[f.name]
        if isinstance(value, bool):
            words.append(o.flags[0] if value else o.off[0])
        elif isinstance(value, Mapping):
            words += [o.flags[0], ",".join(f"{k}={v}" for k, v in value.items())]
        elif isinstance(value, (tuple, list)):
            words += [o.flags[0], ",".join(map(_number, value))]
        else:
            words += [o.flags[0], _number(value)]
    return words


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def keywords(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={v!r}" for k, v in values.items())
