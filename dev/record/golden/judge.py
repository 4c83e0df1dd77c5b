"""Comparison of a tiny model with llama.cpp, and of one batch with other batch sizes.

The results are the cells of docs/judged.md.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dev import tiny_models as tiny
from dev.record.golden import runs
from dev.record.golden.engines import LlamaCpp, Ours, target_of
from dev.record.golden.facts import facts_of
from dev.record.golden.known import with_gates_along_keys
from ggml_py.inspection.dump import diff
from llama_py.batch import Batch
from llama_py.context import Context, state
from llama_py.gguf.file_types import file_type
from llama_py.loading.model import LoadedModel
from llama_py.quantize.plan import Wishes
from llama_py_tools.gguf.quantize import quantize

FLOATS = NDArray[np.float64]
QUANTIZED = ("Q8_0", "Q4_K_M")
FORBIDDEN = np.float32(-3e38)
N_PROMPTS = 5
MAX_SEEDS = 40
# Maximum NMSE of a stable row: effects of F16, and of 8-bit activations.
STABLE, ROUGH = 2e-5, 1e-3
EXACT: dict[str, Any] = {"type_k": "f32", "type_v": "f32", "flash_attn": "off"}


@dataclass
class Judged:
    """Results of one tiny model; each NMSE is the maximum of all runs, or NaN if missing.

    nodes, n_nodes   runs with llama.cpp's node lists, and all runs
    f32, q8, q4      NMSE of logits or embeddings against llama.cpp's, by the file's type
    tokens, n_tokens greedy tokens that equal llama.cpp's, and all greedy tokens
    fed              NMSE of other batches against one batch: token by token, ubatches of 1, 7 and
                     16 tokens, and several sequences
    kept             NMSE after a state was saved and loaded
    opencl           NMSE on the first OpenCL device against llama.cpp
    """

    nodes: int = 0
    n_nodes: int = 0
    f32: float = math.nan
    q8: float = math.nan
    q4: float = math.nan
    tokens: int = 0
    n_tokens: int = 0
    fed: float = math.nan
    kept: float = math.nan
    opencl: float = math.nan


def judge(
    arch: str, variant: str, types: Sequence[str] = QUANTIZED, engine: type[LlamaCpp] = LlamaCpp
) -> Judged:
    """Run every check; needs llama-cpp-python and an OpenCL device.

    types   types to test, a subset of QUANTIZED
    engine  engine to compare with
    """
    found = Judged()
    with tempfile.TemporaryDirectory() as folder:
        path = tiny.write(arch, variant, Path(folder))
        made = tiny.find(arch, variant)
        if made.unrecorded:
            found.fed, found.kept = fed(path, made), kept(path, made)
            return found
        if made.drafts_for is not None:
            tiny.write(*made.drafts_for, Path(folder))
        facts = steady(path, made, facts_of(arch, path, made, engine), engine)[0]
        wanted = runs.wanted(made, facts)
        on_f32 = Beside(path, made, facts, engine)
        for name in wanted:
            on_f32.run(name, found)
        found.f32 = on_f32.worst
        for kind in types:
            out = path.with_name(f"{kind}.gguf")
            error = quantized(path, out, kind, made, facts, wanted, engine)
            setattr(found, kind[:2].lower(), error)
        on_opencl = Beside(path, made, facts, engine, "opencl")
        on_opencl.run(next(name for name in wanted if is_exact(name)), Judged())
        found.opencl = on_opencl.worst
        if continues(made, facts):
            found.fed, found.kept = fed(path, made), kept(path, made)
    return found


class Beside:
    """Runs of one file on both engines.

    worst  largest NMSE of all runs
    """

    def __init__(
        self,
        path: Path,
        made: tiny.Tiny,
        facts: runs.Facts,
        engine: type[LlamaCpp],
        device: str = "cpu",
    ) -> None:
        target = target_of(path, made)
        self.theirs = runs.Case(made, facts, lambda **how: engine(path, target=target, **how))
        ours = partial(Ours, path, device, target=target, forms=made.forms)
        self.ours = runs.Case(made, facts, ours)
        self.worst = math.nan

    def run(self, name: str, found: Judged) -> None:
        theirs, ours = (runs.RUNS[name](case) for case in (self.theirs, self.ours))
        if theirs.nodes:
            there = theirs.nodes
            if name == "nodes-unfused":
                there = with_gates_along_keys(there)
            found.n_nodes += 1
            found.nodes += diff(ours.nodes, there) is None
        for key, values in theirs.values.items():
            if values.dtype.kind == "i":
                found.n_tokens += values.size
                found.tokens += int((values == ours.values[key]).sum())
            else:
                error = nmse(values, ours.values[key])
                self.worst = error if math.isnan(self.worst) else max(error, self.worst)


def quantized(
    path: Path,
    out: Path,
    kind: str,
    made: tiny.Tiny,
    facts: runs.Facts,
    wanted: Iterable[str],
    engine: type[LlamaCpp],
) -> float:
    """Quantize a file, and return its NMSE against llama.cpp.

    The NMSE compares a prompt's last row and two more rows, or embeddings. It is the median of
    several prompts, because 8-bit activations may change the selected experts. If a row is too
    short for a block, llama-quantize's rules choose another type, like our rules.
    """
    quantize(str(path), str(out), Wishes(type=file_type(kind)), "", (), (), False, True, 1)
    names = [name for name in wanted if is_exact(name)]
    found = []
    for chosen in steady(out, made, facts, engine, N_PROMPTS, ROUGH):
        both = Beside(out, made, chosen, engine)
        for name in names:
            both.run(name, Judged())
        found.append(both.worst)
    return statistics.median(found)


def is_exact(name: str) -> bool:
    """Return True for runs that are repeated with quantized files and on OpenCL devices."""
    return name.startswith(("exact", "pooled-", "marked"))


def steady(
    path: Path,
    made: tiny.Tiny,
    facts: runs.Facts,
    engine: type[LlamaCpp] = LlamaCpp,
    n: int = 1,
    most: float = STABLE,
) -> list[runs.Facts]:
    """Return facts with the seeds of n prompts that rounding in llama.cpp barely changes.

    With these seeds, rounding selects the same experts and attended tokens. They are the first
    seeds with row changes up to `most`, or the seeds with the smallest changes.
    """
    tried: list[tuple[float, int]] = []
    target = target_of(path, made)
    while len(tried) < MAX_SEEDS and sum(found <= most for found, _ in tried) < n:
        seeded = replace(facts, seed=len(tried))
        case = runs.Case(made, seeded, lambda **how: engine(path, target=target, **how))
        tried.append((runs.instability(case), seeded.seed))
    return [replace(facts, seed=seed) for _, seed in sorted(tried)[:n]]


def continues(made: tiny.Tiny, facts: runs.Facts) -> bool:
    """Return True if the model can process a text in several batches."""
    if made.drafts_for or made.marks or not facts.memory or facts.start is not None:
        return False
    return made.keys.get("attention.causal", True) is True


def fed(path: Path, made: tiny.Tiny) -> float:
    """Compare a prompt in one batch with smaller batches, and with several sequences."""
    model = loaded(path)
    ids = _tokens(made, made.prompt)
    whole = Context(model, n_ctx=256, n_ubatch=256, **EXACT).decode(ids, logits="all")
    worst = 0.0
    for n_ubatch in (1, 7, 16):
        ctx = Context(model, n_ctx=256, n_ubatch=n_ubatch, **EXACT)
        worst = max(worst, nmse(whole, ctx.decode(ids, logits="all")))
    ctx = Context(model, n_ctx=256, n_ubatch=64, **EXACT)
    rows = np.concatenate([ctx.decode([token]) for token in ids])
    worst = max(worst, nmse(whole, rows))
    for unified in (False, True):
        ctx = Context(
            model,
            n_ctx=256 if unified else 768,
            n_ubatch=128,
            n_seq_max=3,
            kv_unified=unified,
            **EXACT,
        )
        other = _tokens(made, 17, seed=3)
        seqs = [(0,)] * len(ids) + [(2,)] * len(other)
        batch = Batch([*ids, *other], seq_ids=seqs, outputs=[True] * len(seqs))
        worst = max(worst, nmse(whole, ctx.decode(batch)[: len(ids)]))
    return worst


def kept(path: Path, made: tiny.Tiny) -> float:
    """Compare the next token of a context with a second context that loaded its state."""
    model = loaded(path)
    ids = _tokens(made, made.prompt)
    first, second = (Context(model, n_ctx=512, n_ubatch=64, n_seq_max=2, **EXACT) for _ in range(2))
    first.decode(ids)
    state.load(second, state.save(first))
    return nmse(first.decode([1]), second.decode([1]))


def loaded(path: Path) -> LoadedModel:
    import llama_py

    return llama_py.load(str(path), "cpu")


def _tokens(made: tiny.Tiny, n: int, seed: int = 0) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(0, made.n_vocab, n)]


def nmse(expected: NDArray[Any], found: NDArray[Any]) -> float:
    """Return the normalized mean squared error, or infinity for values that are not finite.

    It ignores forbidden tokens, which have the smallest floats as logits.
    """
    if expected.shape != found.shape or not np.isfinite(found).all():
        return math.inf
    allowed = np.minimum(expected, found) > FORBIDDEN
    a, b = expected[allowed].astype(np.float64), found[allowed].astype(np.float64)
    return float(np.square(a - b).sum() / np.square(a).sum())


def stored(judged: Judged) -> Mapping[str, Any]:
    """Return the results as values for JSON, with today's date."""
    values = {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in _items(judged)}
    return {**values, "date": date.today().isoformat()}


def read(values: Mapping[str, Any]) -> Judged:
    numbers = {k: math.nan if v is None else v for k, v in values.items() if k != "date"}
    return Judged(**numbers)


def _items(judged: Judged) -> Iterator[tuple[str, Any]]:
    yield from asdict(judged).items()
