"""Options of --predict, and its table."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ggml_py.tensor import MAX_SRC
from llama_py_tools.bench.predict.cost import BatchCost, Link, fastest_split, prompt, token
from llama_py_tools.bench.predict.work import MachineLimits, estimate_work, n_sums

if TYPE_CHECKING:
    from llama_py.fit.planning import PlannedModel
    from llama_py_tools.bench.output import BenchResult
    from llama_py_tools.bench.params import BenchParams

    Measure = Callable[[BenchParams], Iterator[BenchResult]]

# Typical share of a machine's limits, for machines without a measurement. docs/commands.md has a
# token of 205 ms by its bytes that took 268 ms; prompts are nearer to their limit.
REACHED = 0.76, 0.9
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


def counts(text: str) -> tuple[int, ...]:
    """Parse numbers of ranks: `hosts=a:2,b` is 3 ranks; `hosts=8,32,128` are three numbers."""
    words = text.removeprefix("hosts=").split(",")
    if all(word.isdigit() for word in words):
        found = tuple(map(int, words))
    else:
        found = (sum(int(word.partition(":")[2] or 1) for word in words),)
    if not all(words) or not all(n > 0 for n in found):
        raise ValueError(f"expected hosts=a:2,b or hosts=8,32,128, got {text!r}")
    return found


def link(text: str) -> Link:
    """Parse a link: `1ms,1Gbit`, optionally with the time per message and the rate of processes:
    `1ms,1Gbit,60us,12Gbit`."""
    words = text.split(",")
    if not 2 <= len(words) <= 4:
        raise ValueError(f"expected LATENCY,RATE[,MESSAGE[,ENDS]], such as 1ms,1Gbit, got {text!r}")
    found = Link(_seconds(words[0]), _number(words[1], "bit") / 8)
    if len(words) > 2:
        found = replace(found, message=_seconds(words[2]))
    return replace(found, ends=_number(words[3], "bit") / 8) if len(words) > 3 else found


def speed(text: str) -> tuple[float, float]:
    """Parse `40GB,500GFLOP` to bytes/s and FLOP/s."""
    a, comma, b = text.partition(",")
    if not comma:
        raise ValueError(f"expected BYTES,FLOPS per second, such as 40GB,500GFLOP, got {text!r}")
    return _number(a, "b"), _number(b, "flop")


def _seconds(text: str) -> float:
    found = re.fullmatch(r"([0-9.]+)(us|ms|s)", text)
    if not found:
        raise ValueError(f"expected a time such as 100us or 1ms, got {text!r}")
    return float(found[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[found[2]]


def _number(text: str, unit: str) -> float:
    found = re.fullmatch(r"([0-9.]+)([kmgt]?)" + unit + r"(?:/s)?", text.lower())
    if not found:
        raise ValueError(f"expected a rate such as 10G{unit}, got {text!r}")
    return float(found[1]) * _UNITS[found[2]]


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """Tokens per second of n machines, for a prompt and for one response."""

    n: int
    t: int
    p: int
    prompt: float
    token: float
    gib: float


def rows(o: BenchParams, path: str, measure: Measure) -> Iterator[SpeedRow]:
    """Yield rows for whole layers, for shared layers, and for the best mix.

    measure  runs tests as llama-py-bench does
    """
    from llama_py.fit.planning import PlannedModel, open_header, stand_ins

    model = PlannedModel(open_header(path), stand_ins(["cpu"]))
    n_prompt, n_ubatch = max(o.n_prompt[0], 1), min(o.n_ubatch[0], max(o.n_prompt[0], 1))
    n_ctx = o.n_depth[0] + max(n_prompt, o.n_gen[0], 1)
    limits, how = machine_limits(o, path, model, measure), link(o.link)
    many = batch_cost(model, limits, n_ubatch, n_ctx)
    one = batch_cost(model, limits, 1, n_ctx)
    n_batches = math.ceil(n_prompt / n_ubatch)
    for n in counts(o.predict):
        for t, p in dict.fromkeys([(1, n), (n, 1), fastest_split(one, how, n)]):
            if p <= len(one.layers) and t <= MAX_SRC:
                yield SpeedRow(
                    n,
                    t,
                    p,
                    n_prompt / prompt(many, how, t, p, n_batches),
                    1 / token(one, how, t, p),
                    model.n_bytes / n / 2**30,
                )


def batch_cost(model: PlannedModel, limits: MachineLimits, n_tokens: int, n_ctx: int) -> BatchCost:
    layers, head = estimate_work(model, n_tokens, max(n_ctx, n_tokens)).seconds(limits)
    h = model.hparams
    counts = n_sums(model)
    return BatchCost(
        n_tokens, layers, head, h.n_embd, h.n_vocab, counts if len(counts) == len(layers) else ()
    )


def machine_limits(
    o: BenchParams, path: str, model: PlannedModel, measure: Measure
) -> MachineLimits:
    """Return --speed, or this machine's speed with that many threads, measured on the model if the
    file has its weights."""
    if o.speed:
        return MachineLimits(*speed(o.speed), REACHED)
    from ggml_py.backend.registry import device
    from llama_py_tools.bench import roofline

    cpu = device("cpu")
    if o.threads[0]:
        cpu.set_threads(o.threads[0])
    types = [t.type.name for t in model.file.tensors.values() if len(t.ne) > 1]
    measured = roofline.limits(cpu, max(dict.fromkeys(types), key=types.count))
    found = MachineLimits(measured.bandwidth, measured.flops)
    if is_hole(path):
        return replace(found, reached=REACHED)
    n = max(o.n_prompt[0], 1)
    n_gen = max(o.n_gen[0], 1)
    here = replace(o, model=(path,), device=("cpu",), n_prompt=(n,), n_gen=(n_gen,), pg=())
    seconds = [min(r.samples_ns) / 1e9 for r in measure(here)]
    reached = []
    for took, n_tokens, n_batches in (
        (seconds[1] / n_gen, 1, 1),
        (seconds[0], min(o.n_ubatch[0], n), -(-n // o.n_ubatch[0])),
    ):
        layers, head = estimate_work(model, n_tokens, max(n, n_gen)).seconds(found)
        reached.append((sum(layers) + head) * n_batches / took)
    return replace(found, reached=(reached[0], reached[1]))


def is_hole(path: str) -> bool:
    """Return True if a file has a size but no bytes (make_bench_model.py --hole)."""
    found = Path(path).stat()
    return getattr(found, "st_blocks", found.st_size) * 512 < found.st_size / 2


def table(found: Iterator[SpeedRow], n_prompt: int) -> Iterator[str]:
    yield f"| hosts | tp x pp | GiB each | pp{n_prompt} t/s | tg t/s |"
    yield "|---:|---:|---:|---:|---:|"
    for r in found:
        split = f"{r.t} x {r.p}"
        yield f"| {r.n} | {split} | {r.gib:.2f} | {r.prompt:.1f} | {r.token:.2f} |"
