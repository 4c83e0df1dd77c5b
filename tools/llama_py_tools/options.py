"""Command-line options: a dataclass field is a flag, an environment variable, a default and a help.

    @dataclass(frozen=True)
    class Options:
        n_ctx: int = option(0, "-c --ctx-size", "context size in tokens (0: the model's own)")

    add(parser, Options, "context")       # -c N, --ctx-size N, LLAMA_ARG_CTX_SIZE=N
    options = collect(Options, parser.parse_args())

Nothing here imports NumPy or a backend, so `--help` is quick.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar

T = TypeVar("T")

_TRUE = {"1", "on", "true", "yes", "enabled"}
_FALSE = {"0", "off", "false", "no", "disabled"}


def option(default: Any, flags: str, help: str, **more: Any) -> Any:
    """A field with its flags. `more` may have:

    metavar  what stands for the value in the help
    parse    text -> value (default: the type of the default); ValueError says what is wrong
    repeat   the flag may be given again; the field is the tuple of values
    extend   the same, where `parse` gives several values
    nargs    how many values the flag takes; such a flag has no variable
    off      flags that make a bool False
    env      the variable's name after LLAMA_ARG_, where llama.cpp's differs from the longest flag
    """
    return field(default=default, metadata={"flags": tuple(flags.split()), "help": help, **more})


def truth(text: str) -> bool:
    """`on`, `1`, `true`, ... or `off`, `0`, `false`, ..."""
    word = text.lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(f"expected on or off, got {text!r}")
    return word in _TRUE


def on_off_auto(text: str) -> str:
    """As llama.cpp takes -fa: also 1 and 0."""
    if text.lower() in ("auto", "-1"):
        return "auto"
    try:
        return "on" if truth(text) else "off"
    except ValueError:
        raise ValueError(f"expected on, off or auto, got {text!r}") from None


def token_list(text: str) -> tuple[int, ...]:
    """`1,2,3` as numbers."""
    try:
        return tuple(int(t) for t in text.split(","))
    except ValueError:
        raise ValueError(f"expected token ids like 1,2,3; got {text!r}") from None


def layer_count(text: str) -> int:
    """A number, or as llama.cpp `auto` and `all`, which are -1."""
    return -1 if text in ("auto", "all") else int(text)


def tensor_rules(text: str) -> tuple[tuple[str, str], ...]:
    """`exps=cpu,attn=opencl0` as pairs."""
    rules = tuple(rule.rpartition("=")[::2] for rule in text.split(",") if rule)
    for regex, device in rules:
        if not (regex and device):
            raise ValueError(f"expected REGEX=DEVICE,...; got {text!r}")
    return rules


def shares(text: str) -> tuple[float, ...]:
    """`3,1` as numbers."""
    try:
        return tuple(float(part) for part in text.replace("/", ",").split(","))
    except ValueError:
        raise ValueError(f"expected shares like 3,1; got {text!r}") from None


def plain_files(text: str) -> tuple[tuple[str, float], ...]:
    """`a.gguf,b.gguf` as pairs with the factor 1."""
    return tuple((path, 1.0) for path in text.split(","))


def scaled_files(text: str) -> tuple[tuple[str, float], ...]:
    """`a.gguf:0.5,b.gguf:-1` as pairs."""
    parts = [file.rpartition(":") for file in text.split(",")]
    try:
        return tuple((path, float(factor)) for path, _, factor in parts)
    except ValueError:
        raise ValueError(f"expected FILE:SCALE,...; got {text!r}") from None


@dataclass(frozen=True)
class ModelOptions:
    """Which model."""

    model: str = option(
        "", "-m --model", "GGUF file (default: the bundled demo model)", metavar="FILE"
    )


@dataclass(frozen=True)
class DeviceOptions:
    """Where the model runs."""

    device: str = option(
        "cpu", "-dev --device", "devices to run on, the last of several being the host; auto:"
        " every GPU (see --list-devices)", metavar="NAME,...",
    )  # fmt: skip
    threads: int = option(0, "-t --threads", "threads (0: one per core)")
    n_gpu_layers: int = option(
        -1, "-ngl --gpu-layers --n-gpu-layers", "layers to keep on other devices than the host,"
        " from the output on (-1 or all: all)", parse=layer_count, metavar="N|all",
    )  # fmt: skip
    override_tensor: tuple[tuple[str, str], ...] = option(
        (), "-ot --override-tensor", "weights whose name matches go there", parse=tensor_rules,
        metavar="REGEX=DEVICE,...", extend=True,
    )  # fmt: skip
    n_cpu_moe: int = option(
        0, "-ncmoe --n-cpu-moe", "layers, from the first, whose experts stay on the host"
    )
    tensor_split: tuple[float, ...] = option(
        (), "-ts --tensor-split", "shares of the layers by device (default: by free memory)",
        parse=shares, metavar="N,N,...",
    )  # fmt: skip
    repack: bool = option(
        True, "--repack", "lay weights out anew for speed; off: use them as the file has them",
        off="-nr --no-repack",
    )  # fmt: skip


@dataclass(frozen=True)
class ContextOptions:
    """How much is remembered, and how the work is cut."""

    n_ctx: int = option(0, "-c --ctx-size", "context size in tokens (0: the model's own)")
    n_batch: int = option(2048, "-b --batch-size", "tokens of one logical batch", env="BATCH")
    n_ubatch: int = option(512, "-ub --ubatch-size", "tokens computed at once", env="UBATCH")
    flash_attn: str = option(
        "auto", "-fa --flash-attn", "fused attention", parse=on_off_auto, metavar="on|off|auto"
    )
    type_k: str = option("f16", "-ctk --cache-type-k", "type of the K cache", metavar="TYPE")
    type_v: str = option("f16", "-ctv --cache-type-v", "type of the V cache", metavar="TYPE")
    kv_offload: bool = option(
        True, "-kvo --kv-offload", "keep the memory of a layer on its device; off: on the host",
        off="-nkvo --no-kv-offload",
    )  # fmt: skip
    delta_net: str = option(
        "auto", "--delta-net", "how gated delta nets are computed",
        metavar="auto|fused|autoregressive|chunked|blocks",
    )  # fmt: skip
    control_vector: tuple[tuple[str, float], ...] = option(
        (), "--control-vector", "add the directions of these files to the layers' results",
        parse=plain_files, metavar="FILE,...", extend=True,
    )  # fmt: skip
    control_vector_scaled: tuple[tuple[str, float], ...] = option(
        (), "--control-vector-scaled", "the same, each file times its factor", parse=scaled_files,
        metavar="FILE:SCALE,...", extend=True,
    )  # fmt: skip
    control_vector_layer_range: tuple[int, ...] = option(
        (), "--control-vector-layer-range", "only to the results of layers START to END",
        parse=int, metavar=("START", "END"), nargs=2,
    )  # fmt: skip


@dataclass(frozen=True)
class CheckOptions:
    """Finding the node that goes wrong."""

    check: str = option(
        "", "--check", "compute every node on this device too, and stop at the first that differs",
        metavar="ref|cpu",
    )  # fmt: skip


@dataclass(frozen=True)
class TokenOptions:
    """What a debugging tool feeds to the model."""

    prompt: str = option("", "-p --prompt", "text to run", metavar="TEXT")
    tokens: tuple[int, ...] = option(
        (), "--tokens", "token ids to run instead of a text", parse=token_list, metavar="1,2,3"
    )
    decode: int = option(0, "--decode", "then so many tokens, one by one, chosen greedily")


@dataclass(frozen=True)
class CommonOptions:
    """What every command takes."""

    verbose: bool = option(False, "-v --verbose", "log everything, and show where errors come from")


def add(parser: argparse.ArgumentParser, kind: type, title: str) -> None:
    """Add every field of the dataclass that has flags, as an option group."""
    group = parser.add_argument_group(title)
    for f in fields(kind):
        if "flags" not in f.metadata:
            continue
        default = None if f.default is MISSING else f.default
        if isinstance(default, bool) or "off" in f.metadata:
            _add_switch(parser, group, f)
        else:
            _add_value(group, f, default)


def _add_switch(
    parser: argparse.ArgumentParser, group: argparse._ArgumentGroup, f: Field[Any]
) -> None:
    on, off = f.metadata["flags"], tuple(f.metadata.get("off", "").split())
    name = _env(on or tuple(flag.replace("no-", "") for flag in off), f)
    try:
        default = truth(os.environ[name]) if name in os.environ else None
    except ValueError as e:
        parser.error(f"{name}: {e}")
    for flags, value in ((on, True), (off, False)):
        if flags:
            first = flags is on or not on
            help = f"{f.metadata['help']} [{name}]" if first else f"the opposite of {on[-1]}"
            group.add_argument(
                *flags, dest=f.name, action="store_const", const=value, default=default, help=help
            )


def _add_value(group: argparse._ArgumentGroup, f: Field[Any], default: Any) -> None:
    flags, name = f.metadata["flags"], _env(f.metadata["flags"], f)
    tail = "" if default in (None, "", ()) else f" (default: {_shown(default)})"
    nargs = f.metadata.get("nargs")
    tail += "" if nargs else f" [{name}]"
    group.add_argument(
        *flags,
        dest=f.name,
        type=_converter(f, default),
        action=_action(f),
        default=None if nargs else os.environ.get(name),
        nargs=nargs,
        metavar=f.metadata.get("metavar", "N"),
        help=f"{f.metadata['help']}{tail}".replace("%", "%%"),
    )


def _action(f: Field[Any]) -> Any:
    if f.metadata.get("extend"):
        return _Extend
    return _Append if f.metadata.get("repeat") or f.default is MISSING else "store"


class _Append(argparse.Action):
    """Collect values; the environment's, a default, is replaced by the first that is given."""

    def __call__(self, parser: Any, args: Any, value: Any, flag: Any = None) -> None:
        found = getattr(args, self.dest)
        setattr(args, self.dest, [*(found if isinstance(found, list) else ()), *self.items(value)])

    def items(self, value: Any) -> tuple[Any, ...]:
        return (value,)


class _Extend(_Append):
    def items(self, value: Any) -> tuple[Any, ...]:
        return tuple(value)


def _shown(default: Any) -> str:
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _env(flags: tuple[str, ...], f: Field[Any]) -> str:
    name: str = f.metadata.get("env", max(flags, key=len).lstrip("-"))
    return "LLAMA_ARG_" + name.replace("-", "_").upper()


def _converter(f: Field[Any], default: Any) -> Callable[[str], Any]:
    """Text to the field's value, with one plain sentence for argparse where it is wrong."""
    parse = f.metadata.get("parse", str if default is None else type(default))
    interval = f.metadata.get("interval")

    def convert(text: str) -> Any:
        try:
            value = parse(text)
        except ValueError as e:
            noun = {int: "an integer", float: "a number"}.get(parse)
            why = f"expected {noun}, got {text!r}" if noun else str(e)
            raise argparse.ArgumentTypeError(why) from None
        if interval is not None and not interval.holds(value):
            raise argparse.ArgumentTypeError(f"must be in {interval}, got {text}")
        return value

    return convert


def collect(kind: type[T], args: argparse.Namespace) -> T:
    """The dataclass filled from parsed arguments; what was not given keeps its default."""
    values = {}
    for f in fields(kind):  # type: ignore[arg-type]
        value = getattr(args, f.name, None)
        if value is None or "flags" not in f.metadata:
            continue
        if f.metadata.get("repeat") or f.default is MISSING:
            value = tuple(value) if isinstance(value, list) else (value,)
        if f.default is MISSING:
            value = dict(value)
        elif isinstance(value, list):
            value = tuple(value)
        values[f.name] = value
    return kind(**values)
