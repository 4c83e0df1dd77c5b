"""Options of `llama-py-gguf quantize`, which are llama-quantize's."""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ggml_py.types import GGMLType
from llama_py.gguf.file_types import COPY, FILE_TYPES, file_type, tensor_type
from llama_py.params.option import Params, option
from llama_py.params.texts import kv_overrides
from llama_py_tools.command.options import OptionParser, read

if TYPE_CHECKING:
    from llama_py.quantize.plan import Wishes

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
TensorTypes = tuple[tuple[str, GGMLType], ...]


def rules(text: str) -> TensorTypes:
    """Parse `attn_v=q8_0` to expression and type; several are separated by spaces."""
    found = []
    for word in text.split():
        pattern, equals, type = word.partition("=")
        if not equals or not pattern or not type:
            raise ValueError(f"expected PATTERN=TYPE, such as attn_v=q8_0, got {word!r}")
        try:
            re.compile(pattern.lower())
        except re.error as e:
            raise ValueError(f"{pattern!r} is not a regular expression: {e}") from None
        found.append((pattern.lower(), tensor_type(type)))
    return tuple(found)


def rules_of_file(text: str) -> TensorTypes:
    try:
        return rules(Path(text).read_text("utf-8"))
    except OSError as e:
        raise ValueError(f"{text}: {e.strerror}") from None


def layers(text: str) -> tuple[int, ...]:
    """Parse `4,5,6` to numbers."""
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise ValueError(f"expected layer numbers such as 4,5,6, got {text!r}")
    return tuple(sorted({int(word) for word in words}))


def positive(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise ValueError(f"expected a positive number, got {text!r}")
    return number


def size(text: str) -> int:
    """Parse `4.2G` (2^30 bytes), `900M` or a number of bytes."""
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
    if unit not in UNITS:
        raise ValueError(f"expected a size such as 4.2G, got {text!r}")
    return int(positive(number) * UNITS[unit])


class QuantizeParams(Params):
    """Options of `quantize` (as in llama-quantize)."""

    file: str = option("", "file", "unquantized model file, or any shard of a model", metavar="IN")
    words: tuple[str, ...] = option(
        (),
        "words",
        "new file (default: ggml-model-TYPE.gguf in the folder of IN), type, and number of"
        " threads (default: all CPUs)",
        nargs="*",
        metavar="[OUT] TYPE [THREADS]",
    )
    imatrix: str = option(
        "",
        "--imatrix",
        "importance matrix of llama-py-imatrix or llama-imatrix",
        metavar="FILE",
        env="",
    )
    include_weights: tuple[str, ...] = option(
        (),
        "--include-weights",
        "use the importance matrix only for tensors with this text in the name; may be repeated",
        parse=lambda t: (t,),
        many=True,
        metavar="TEXT",
        env="",
    )
    exclude_weights: tuple[str, ...] = option(
        (),
        "--exclude-weights",
        "do not use the importance matrix for tensors with this text in the name; may be repeated",
        parse=lambda t: (t,),
        many=True,
        metavar="TEXT",
        env="",
    )
    bpw: float | None = option(
        None,
        "--bpw",
        "types by measured loss, for this number of bits per value; TYPE is omitted",
        parse=positive,
        metavar="BITS",
        env="",
    )
    size: int | None = option(
        None,
        "--size",
        "types by measured loss, for this size of all tensors; TYPE is omitted",
        parse=size,
        metavar="4.2G",
        env="",
    )
    kld: float | None = option(
        None,
        "--kld",
        "smallest types for this mean KL divergence, by measured loss; TYPE is omitted",
        parse=positive,
        metavar="N",
        env="",
    )
    portable: bool = option(
        False, "--portable", "with --bpw, --size or --kld: only types of llama.cpp", env=""
    )
    text: str = option(
        "", "--text", "text that measures the losses of types", metavar="FILE", env=""
    )
    sensitivity: str = option(
        "", "--sensitivity", "file that keeps the measured losses", metavar="FILE", env=""
    )
    pure: bool = option(False, "--pure", "use one type for all tensors, without a mix", env="")
    leave_output_tensor: bool = option(
        False, "--leave-output-tensor", "do not quantize output.weight", env=""
    )
    output_tensor_type: GGMLType | None = option(
        None,
        "--output-tensor-type",
        "type of output.weight",
        parse=tensor_type,
        metavar="TYPE",
        env="",
    )
    token_embedding_type: GGMLType | None = option(
        None,
        "--token-embedding-type",
        "type of the token embeddings",
        parse=tensor_type,
        metavar="TYPE",
        env="",
    )
    tensor_types: TensorTypes = option(
        (),
        "--tensor-type",
        "type of tensors with a name that matches; the first match applies; may be repeated",
        parse=rules,
        many=True,
        metavar="REGEX=TYPE",
        env="",
    )
    tensor_type_file: TensorTypes = option(
        (),
        "--tensor-type-file",
        "file with REGEX=TYPE rules for tensors, separated by spaces or newlines",
        parse=rules_of_file,
        many=True,
        metavar="FILE",
        env="",
    )
    allow_requantize: bool = option(
        False,
        "--allow-requantize",
        "quantize tensors that are already quantized, with more loss than from the original",
        env="",
    )
    prune_layers: tuple[int, ...] = option(
        (), "--prune-layers", "layers to remove", parse=layers, metavar="N,...", env=""
    )
    kv_overrides: dict[str, bool | int | float | str] = option(
        dict,
        "--override-kv",
        "metadata values that replace the file's values; TYPE is int, float, bool or str",
        parse=kv_overrides,
        many=True,
        metavar="KEY=TYPE:VALUE,...",
        env="",
    )
    keep_split: bool = option(
        False, "--keep-split", "write one new shard per shard of the model", env=""
    )
    dry_run: bool = option(False, "--dry-run", "print the result without writing a file", env="")
    force: bool = option(False, "--force", "overwrite an existing file", env="")


def target(o: QuantizeParams) -> tuple[str, str, int]:
    """Return the new file, the name of its type, and the number of threads, 0 for all.

    Raises ValueError for any other words.
    """
    words = list(o.words)
    if has_budget(o):
        output = words.pop(0) if words and not words[0].isdecimal() else ""
        words.insert(0, "COPY")
        if output:
            words.insert(0, output)
    if not words:
        raise ValueError("the type is missing; set TYPE, or --bpw, --size or --kld")
    try:
        type, output = file_type(words[0]).name, ""
        words = words[1:]
    except ValueError:
        if len(words) < 2:
            raise
        type, output, words = file_type(words[1]).name, words[0], words[2:]
    if len(words) > 1 or not all(word.isdecimal() for word in words):
        raise ValueError(f"expected a number of threads after the type, got {' '.join(words)!r}")
    if not output:
        ending = "" if o.keep_split else ".gguf"
        name = "BPW" if has_budget(o) else type
        output = str(Path(o.file).with_name(f"ggml-model-{name}{ending}"))
    return output, type, int(words[0]) if words else 0


def has_budget(o: QuantizeParams) -> bool:
    return (o.bpw, o.size, o.kld) != (None, None, None)


def check(parser: OptionParser, args: argparse.Namespace) -> None:
    """Report usage errors that involve several options."""
    o = read(args, QuantizeParams)
    try:
        target(o)
    except ValueError as e:
        parser.error(str(e))
    if sum(x is not None for x in (o.bpw, o.size, o.kld)) > 1:
        parser.error("set one of --bpw, --size and --kld")
    if has_budget(o) and not o.text:
        parser.error("--bpw, --size and --kld need --text FILE, which measures the losses")
    if o.include_weights and o.exclude_weights:
        parser.error("set either --include-weights or --exclude-weights")
    if (o.include_weights or o.exclude_weights) and not o.imatrix:
        parser.error("--include-weights and --exclude-weights need --imatrix FILE")


EPILOG = f"""types: {", ".join(FILE_TYPES)}; {COPY.name} keeps all types

examples:
  %(prog)s f16.gguf q4.gguf Q4_K_M
  %(prog)s --imatrix imatrix.gguf f16.gguf iq3.gguf IQ3_XXS
  %(prog)s --tensor-type ffn_down=q6_k --dry-run f16.gguf Q4_K_M
  %(prog)s --imatrix imatrix.gguf --bpw 3.8 --text text.txt f16.gguf small.gguf
"""


def build_wishes(o: QuantizeParams) -> Wishes:
    from llama_py.quantize.plan import Wishes

    _, type, _ = target(o)
    return Wishes(
        type=file_type(type),
        pure=o.pure,
        leave_output=o.leave_output_tensor,
        output_type=o.output_tensor_type,
        embedding_type=o.token_embedding_type,
        tensor_types=o.tensor_types + o.tensor_type_file,
        allow_requantize=o.allow_requantize,
        prune=o.prune_layers,
        overrides=o.kv_overrides,
        keep_split=o.keep_split,
    )


def run(args: argparse.Namespace) -> None:
    from ggml_py.machine import host
    from llama_py_tools.gguf.quantize import quantize
    from llama_py_tools.gguf.sensitivity import Budget

    o = read(args, QuantizeParams)
    output, _, n_threads = target(o)
    quantize(
        o.file,
        output,
        build_wishes(o),
        o.imatrix,
        o.include_weights,
        o.exclude_weights,
        o.dry_run,
        o.force,
        n_threads or len(host.logical_cpus()),
        budget=Budget(
            bpw=o.bpw,
            size=o.size,
            kld=o.kld,
            portable=o.portable,
            text=o.text,
            sensitivity=o.sensitivity,
        )
        if has_budget(o)
        else None,
    )
