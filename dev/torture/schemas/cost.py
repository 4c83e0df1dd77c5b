"""Cost of a schema: CPU time of sampling a token, with and without the schema.

    python -m dev.torture.schemas.cost model.gguf ...  # without a file: the demo model's

The default chain samples tokens from random logits. Each figure is the median over the tokens of a
response, and the minimum of several responses. It also measures llguidance's mask and its use.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from dev.torture.schemas.written import WRITTEN
from llama_py.loading.model import DEMO
from llama_py.params import SamplingParams
from llama_py.sampler import Sampler
from llama_py.sampler.masked import by_numpy, mask
from llama_py.tokenizer import Tokenizer, load_tokenizer

N, TIMES = 60, 7
F32 = Any
HEAD = """\
| vocabulary | tokens | without, us | with a schema, us | its mask, us | NumPy, us | kernel, us |
|---|---:|---:|---:|---:|---:|---:|"""


def main(paths: Sequence[str]) -> None:
    print(HEAD)
    for path in paths or [str(DEMO)]:
        tokenizer = load_tokenizer(path)
        free = min(_chosen(tokenizer, {}) for _ in range(TIMES))
        held = min(_chosen(tokenizer, {"json_schema": WRITTEN[2]}) for _ in range(TIMES))
        parts = _parts(tokenizer)
        told = " | ".join(f"{us:.0f}" for us in (free, held, *parts))
        print(f"| {Path(path).stem} | {tokenizer.n_vocab} | {told} |")


def _chosen(tokenizer: Tokenizer, constraint: dict[str, Any]) -> float:
    """Return the median microseconds of a token."""
    sampler = Sampler(SamplingParams(seed=1, **constraint), tokenizer.n_vocab, tokenizer)
    rows = _rows(tokenizer.n_vocab)
    took = []
    for i in range(N):
        began = time.process_time_ns()
        id = sampler.sample(rows[i % len(rows)])
        sampler.accept(id)
        took.append((time.process_time_ns() - began) / 1000)
        if constraint and tokenizer.is_eog(id):
            sampler.begin()
    return median(took)


def _parts(tokenizer: Tokenizer) -> tuple[float, float, float]:
    """Return seconds of a mask within a text, and of applying it by NumPy and by the kernel."""
    params = SamplingParams(json_schema={"type": "string"})
    constraint: Any = Sampler(params, tokenizer.n_vocab, tokenizer).constraint
    constraint.accept(tokenizer.tokenize('"', False, False)[0])
    logits, bits = _rows(tokenizer.n_vocab)[0], constraint._now.compute_bitmask()
    return (
        _least(constraint._now.compute_bitmask),
        _least(lambda: by_numpy(logits, bits)),
        _least(lambda: mask()(logits, bits)),
    )


def _least(run: Callable[[], object], times: int = 20) -> float:
    found = []
    for _ in range(TIMES):
        began = time.process_time_ns()
        for _ in range(times):
            run()
        found.append((time.process_time_ns() - began) / 1000 / times)
    return min(found)


def _rows(n_vocab: int) -> list[F32]:
    rng = np.random.default_rng(0)
    return [rng.normal(0, 3, n_vocab).astype(np.float32) for _ in range(4)]


if __name__ == "__main__":
    main(sys.argv[1:])
