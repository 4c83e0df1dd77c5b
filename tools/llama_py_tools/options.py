"""Command-line options: one dataclass field is a flag, an environment variable, a default and a help text."""

from __future__ import annotations

import argparse
import os
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar

T = TypeVar("T")


def option(default: Any, flags: str, help: str, **more: Any) -> Any:
    """A field with its flags; `more` goes to argparse (choices, metavar, type, nargs)."""
    return field(default=default, metadata={"flags": tuple(flags.split()), "help": help, **more})


@dataclass(frozen=True)
class ModelOptions:
    """Which model, and where it runs."""

    model: str = option(
        "", "-m --model", "GGUF file (default: the bundled demo model)", metavar="FILE"
    )
    device: str = option(
        "cpu", "-dev --device", "device to run on (see --list-devices)", metavar="NAME"
    )
    threads: int = option(0, "-t --threads", "threads (0: one per core)", metavar="N")
    n_gpu_layers: int = option(
        -1,
        "-ngl --gpu-layers --n-gpu-layers",
        "layers to keep on a GPU device (-1: as many as fit)",
        metavar="N",
    )
    override_tensor: str = option(
        "",
        "-ot --override-tensor",
        "tensors whose name matches go to that device",
        metavar="REGEX=DEVICE,...",
    )
    no_repack: bool = option(
        False, "--no-repack", "leave weights as they lie in the file (less memory, slower)"
    )


@dataclass(frozen=True)
class ContextOptions:
    """How much is remembered, and how the work is cut."""

    n_ctx: int = option(
        0, "-c --ctx-size", "context size in tokens (0: the model's own)", metavar="N"
    )
    n_batch: int = option(2048, "-b --batch-size", "tokens of one logical batch", metavar="N")
    n_ubatch: int = option(512, "-ub --ubatch-size", "tokens computed at once", metavar="N")
    flash_attn: str = option(
        "auto", "-fa --flash-attn", "fused attention", choices=("on", "off", "auto")
    )
    type_k: str = option("f16", "-ctk --cache-type-k", "type of the K cache", metavar="TYPE")
    type_v: str = option("f16", "-ctv --cache-type-v", "type of the V cache", metavar="TYPE")


def add(parser: argparse.ArgumentParser, kind: type, title: str) -> None:
    """Add every field of the dataclass as an option group."""
    group = parser.add_argument_group(title)
    for f in fields(kind):
        if "flags" in f.metadata:
            group.add_argument(*f.metadata["flags"], **_arguments(f))


def _arguments(f: Field[Any]) -> dict[str, Any]:
    """What argparse needs to know of a field."""
    flags = f.metadata["flags"]
    env = "LLAMA_ARG_" + max(flags, key=len).lstrip("-").replace("-", "_").upper()
    default = f.default if f.default is not MISSING else None
    more = {k: f.metadata[k] for k in ("choices", "metavar", "nargs") if k in f.metadata}
    help = f"{f.metadata['help']} [{env}]".replace("%", "%%")
    if isinstance(default, bool):
        return {"dest": f.name, "action": "store_true", "help": help, "default": env in os.environ}
    if "parse" in f.metadata:
        return {
            "dest": f.name,
            "action": "append",
            "type": f.metadata["parse"],
            "help": help,
            "metavar": "ID±BIAS",
        }
    if "choices" not in more and "metavar" not in more:
        more["metavar"] = "N"
    return {
        "dest": f.name,
        "type": type(default),
        "default": os.environ.get(env, default),
        "help": help,
        **more,
    }


def collect(kind: type[T], args: argparse.Namespace) -> T:
    """The dataclass filled from parsed arguments; fields left alone keep their defaults."""
    values = {
        f.name: getattr(args, f.name)
        for f in fields(kind)
        if getattr(args, f.name, None) is not None
    }  # type: ignore[arg-type]
    return kind(**values)
