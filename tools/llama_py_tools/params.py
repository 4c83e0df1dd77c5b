"""Options that several commands share, besides those of the library."""

from __future__ import annotations

from dataclasses import dataclass

from llama_py.params import Params, option
from llama_py.params.texts import integer


def token_list(text: str) -> tuple[int, ...]:
    """`1,2,3` as numbers."""
    try:
        return tuple(int(t) for t in text.split(","))
    except ValueError:
        raise ValueError(f"expected token ids like 1,2,3; got {text!r}") from None


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


@dataclass(frozen=True, kw_only=True)
class CommonParams(Params):
    """What every command takes."""

    verbose: bool = option(
        False, "-v", "--verbose", env="LLAMA_ARG_VERBOSE",
        help="log everything, and show where errors come from",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FileParams(Params):
    """Which model, and what its weights become."""

    model: str = option(
        "", "-m", "--model", env="LLAMA_ARG_MODEL", metavar="FILE",
        help="GGUF file (default: the bundled demo model)",
    )  # fmt: skip
    repack: bool = option(
        True, "--repack", off=("-nr", "--no-repack"), env="LLAMA_ARG_REPACK",
        help="lay weights out anew for speed; off: use them as the file has them",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SteeringParams(Params):
    """Control vectors."""

    control_vector: tuple[tuple[str, float], ...] = option(
        (), "--control-vector", env="LLAMA_ARG_CONTROL_VECTOR", parse=plain_files, many=True,
        metavar="FILE,...", help="add the directions of these files to the layers' results",
    )  # fmt: skip
    control_vector_scaled: tuple[tuple[str, float], ...] = option(
        (), "--control-vector-scaled", env="LLAMA_ARG_CONTROL_VECTOR_SCALED", parse=scaled_files,
        many=True, metavar="FILE:SCALE,...", help="the same, each file times its factor",
    )  # fmt: skip
    control_vector_layer_range: tuple[int, ...] = option(
        (), "--control-vector-layer-range", parse=integer, nargs=2, metavar=("START", "END"),
        help="only to the results of layers START to END",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class InputParams(Params):
    """What a debugging tool feeds to the model."""

    prompt: str = option(
        "", "-p", "--prompt", env="LLAMA_ARG_PROMPT", metavar="TEXT", help="text to run"
    )
    tokens: tuple[int, ...] = option(
        (), "--tokens", env="LLAMA_ARG_TOKENS", parse=token_list, metavar="1,2,3",
        help="token ids to run instead of a text",
    )  # fmt: skip
    decode: int = option(
        0, "--decode", env="LLAMA_ARG_DECODE", help="then so many tokens, one by one, chosen"
        " greedily",
    )  # fmt: skip
