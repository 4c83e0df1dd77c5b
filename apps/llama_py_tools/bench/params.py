"""Options of llama-py-bench, which take several values, and all their combinations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from llama_py.params import ContextParams, ModelParams
from llama_py.params.option import PREFIX, Params, get_options, option
from llama_py.params.rules import integers, item_rule
from llama_py.params.texts import truth, words
from llama_py_tools.command.params import FileParams, FormParams

FORMATS = ("md", "csv", "json", "jsonl", "sql")


def int_ranges(text: str) -> tuple[int, ...]:
    """Parse `1,2`, `1-4`, `1-9+2` and `64-512*2`, like llama-bench."""
    return tuple(n for part in text.split(",") for n in _range(part))


def _range(part: str) -> Iterator[int]:
    found = re.fullmatch(r"(-?\d+)(?:-(\d+)(?:([+*])(\d+))?)?", part)
    if not found:
        raise ValueError(f"expected numbers such as 1,2 or 1-4 or 64-512*2, got {part!r}")
    n, last = int(found[1]), int(found[2] or found[1])
    step = int(found[4] or 1)
    while n <= last:
        yield n
        following = n * step if found[3] == "*" else n + step
        if following <= n:
            raise ValueError(f"range {part!r} has no end; use a step above 0 or a factor above 1")
        n = following


def switches(text: str) -> tuple[bool, ...]:
    return tuple(map(truth, words(text)))


def pair(text: str) -> tuple[tuple[int, int], ...]:
    found = re.fullmatch(r"(\d+),(\d+)", text)
    if not found:
        raise ValueError(f"expected two numbers such as 512,128, got {text!r}")
    return ((int(found[1]), int(found[2])),)


def list_option(kind: type[Params], name: str, default: Any = None, **other: Any) -> Any:
    """Return the option of a field of `kind`, with several values to try."""
    f, o = next((f, o) for f, o in get_options(kind) if f.name == name)
    default = f.default if default is None else default

    def values(text: str) -> tuple[Any, ...]:
        return tuple(map(o.parse, words(text)))

    how: dict[str, Any] = {
        "env": o.env.removeprefix(PREFIX),
        "help": o.help,
        "metavar": o.metavar,
        "check": o.check and item_rule(o.check),
        "parse": int_ranges if isinstance(default, int) else values,
    }
    return option((default,), " ".join(o.flags), many=True, **{**how, **other})


class BenchParams(Params):
    """Options of the measurement; a tuple has the values to try."""

    model: tuple[str, ...] = list_option(
        FileParams, "model", help="GGUF files or short names (default: the bundled demo model)"
    )
    n_prompt: tuple[int, ...] = option(
        (512,),
        "-p --n-prompt",
        "prompt tokens per test (0: no prompt test)",
        parse=int_ranges,
        many=True,
    )
    n_gen: tuple[int, ...] = option(
        (128,),
        "-n --n-gen",
        "generated tokens per test (0: no generation test)",
        parse=int_ranges,
        many=True,
    )
    pg: tuple[tuple[int, int], ...] = option(
        (),
        "-pg",
        "prompt tokens and generated tokens of a combined test",
        env="PG",
        parse=pair,
        many=True,
        metavar="P,N",
    )
    n_depth: tuple[int, ...] = option(
        (0,), "-d --n-depth", "tokens in the KV cache before the test", parse=int_ranges, many=True
    )
    n_batch: tuple[int, ...] = list_option(ContextParams, "n_batch")
    n_ubatch: tuple[int, ...] = list_option(ContextParams, "n_ubatch")
    type_k: tuple[str, ...] = list_option(ContextParams, "type_k")
    type_v: tuple[str, ...] = list_option(ContextParams, "type_v")
    threads: tuple[int, ...] = list_option(
        ContextParams, "n_threads", 0, check=None, help="number of threads (0: one per core)"
    )
    n_gpu_layers: tuple[int, ...] = list_option(ModelParams, "n_gpu_layers", metavar="N")
    flash_attn: tuple[str, ...] = list_option(ContextParams, "flash_attn")
    delta_net: tuple[str, ...] = list_option(FormParams, "delta_net")
    device: tuple[str, ...] = list_option(
        ModelParams,
        "device",
        metavar="NAME",
        parse=words,
        help="devices to test, such as cpu,opencl0; a/b runs one model on two devices",
    )
    split_mode: tuple[str, ...] = list_option(ModelParams, "split_mode", parse=words)
    parallel: tuple[str, ...] = list_option(
        ModelParams,
        "parallel",
        parse=words,
        metavar="tp=N/pp=N/ep=N",
        help="parallelism of one model, such as tp=2/pp=2",
    )
    tensor_split: tuple[str, ...] = list_option(
        ModelParams,
        "tensor_split",
        "",
        metavar="N",
        parse=words,
        help="proportions of one model per device, such as 3/1",
    )
    no_repack: tuple[bool, ...] = option(
        (False,),
        "-nr --no-repack",
        "use the weights in the file's layout, without repacking",
        parse=switches,
        many=True,
        metavar="0|1",
    )
    new_context: tuple[bool, ...] = option(
        (False,),
        "--new-context",
        "1: create a context for each run, and include this in the time",
        parse=switches,
        many=True,
        metavar="0|1",
    )
    repetitions: int = option(5, "-r --repetitions", "runs per test", check=integers(1))
    output: str = option("md", "-o --output", "output format", choices=FORMATS)
    roofline: bool = option(
        False,
        "--roofline",
        "print the time of each part of a run against the device's bandwidth and compute"
        " limits, instead of rates",
    )
    predict: str = option(
        "",
        "--predict",
        "predict the speed of several machines, instead of measuring",
        metavar="hosts=a:2,b|hosts=N,...",
        env="",
    )
    link: str = option(
        "0.1ms,10Gbit",
        "--link",
        "for --predict: latency and bandwidth between machines, extra time per message, and"
        " bandwidth between two processes",
        metavar="LATENCY,RATE[,MESSAGE[,ENDS]]",
        env="",
    )
    speed: str = option(
        "",
        "--speed",
        "for --predict: bytes/s and FLOP/s of a machine (default: measured on this machine)",
        metavar="BYTES,FLOPS",
        env="",
    )
    warmup: bool = option(
        True, "--warmup", "run each test once before the measurement", off="--no-warmup"
    )
    progress: bool = option(False, "--progress", "print each test on stderr when it starts")


@dataclass(frozen=True)
class Test:
    """One line of the table: a model in a context, and how many tokens of each kind."""

    model: str
    n_gpu_layers: int
    device: str
    split_mode: str
    parallel: str
    tensor_split: str
    no_repack: bool
    n_batch: int
    n_ubatch: int
    type_k: str
    type_v: str
    flash_attn: str
    delta_net: str
    threads: int
    new_context: bool
    n_depth: int
    n_prompt: int
    n_gen: int

    @property
    def name(self) -> str:
        return test_name(self.n_prompt, self.n_gen, self.n_depth, self.new_context)

    @property
    def weights(self) -> tuple[str, int, str, str, str, str, bool]:
        """Tests that agree in these share a loaded model."""
        placed = (self.n_gpu_layers, self.device, self.split_mode, self.parallel, self.tensor_split)
        return self.model, *placed, self.no_repack


def test_name(n_prompt: int, n_gen: int, n_depth: int, new_context: bool) -> str:
    """Return `pp512`, `tg128` or `pp512+tg128`, with ` @ d1024` for a depth and ` new` for a new
    context."""
    kinds = [f"{kind}{n}" for kind, n in (("pp", n_prompt), ("tg", n_gen)) if n]
    return "+".join(kinds) + (f" @ d{n_depth}" if n_depth else "") + " new" * new_context


def combinations(o: BenchParams) -> list[Test]:
    """Return all combinations; the model varies slowest, so that each is loaded once."""
    kinds = [(n, 0) for n in o.n_prompt if n > 0] + [(0, n) for n in o.n_gen if n > 0]
    kinds += [pg for pg in o.pg if sum(pg) > 0]
    threads = [n if n > 0 else _cores() for n in o.threads]
    values: Iterator[Any] = product(
        o.model,
        o.n_gpu_layers,
        o.device,
        o.split_mode,
        o.parallel,
        o.tensor_split,
        o.no_repack,
        o.n_batch,
        o.n_ubatch,
        o.type_k,
        o.type_v,
        o.flash_attn,
        o.delta_net,
        threads,
        o.new_context,
        o.n_depth,
        kinds,
    )
    return [Test(*how, *kind) for *how, kind in values]


def _cores() -> int:
    from ggml_py.machine.host import default_threads
    from llama_py_tools.command.ranks import n_here

    return max(1, default_threads() // n_here())
