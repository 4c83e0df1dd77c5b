"""Arguments of a program to a context, its memory and a sampler, without files."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import llama_py
from dev.torture.fuzz import numbers
from dev.torture.fuzz.kind import Case, Kind
from dev.torture.fuzz.models import memories
from ggml_py.errors import GGMLError
from llama_py import Batch
from llama_py.context import Context
from llama_py.params import SamplingParams
from llama_py.sampler import Sampler


class Calls(Kind):
    """calls with values that make no sense: batches, sequences, samplers"""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.models = [llama_py.load(path, device="cpu") for path in memories(folder)]

    def case(self, rng: Random) -> Case:
        model = rng.choice(self.models)
        how: dict[str, Any] = {
            "n_ctx": rng.choice((16, 300)),
            "n_threads": 1,
            "n_seq_max": rng.choice((1, 2, 3)),
            "kv_unified": rng.random() < 0.4,
            "flash_attn": rng.choice(("on", "off", "auto")),
        }
        if rng.random() < 0.2:
            how[rng.choice(("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_rs_seq"))] = _int(rng)
        if rng.random() < 0.1:
            how[rng.choice(("rope_freq_base", "rope_freq_scale"))] = rng.choice(numbers.FLOATS)
        steps = [_step(rng) for _ in range(rng.randint(1, 6))]

        def run() -> str:
            with Context(model, **how) as ctx:
                errors = [error for step in steps if (error := _error_of(ctx, *step))]
                ctx.memory.clear()
                ctx.decode([1, 2])
            for error in errors:
                raise error
            return "all"

        return Case(f"{model.arch} {how}: {steps!a}", run)


def _int(rng: Random) -> int:
    return rng.choice((0, 1, 2, 3, 4, -1, 16, *numbers.INTEGERS, 2**70))


def _step(rng: Random) -> tuple[str, Any]:
    name = rng.choice(
        ("decode", "decode", "decode", "batch", "batch", "memory", "memory", "sampler")
    )
    if name == "decode":
        return name, [rng.choice((0, 1, 5, 63, _int(rng))) for _ in range(rng.randint(0, 5))]
    if name == "batch":
        return name, _batch(rng)
    if name == "memory":
        what = rng.choice(("seq_rm", "seq_cp", "seq_add", "seq_div", "seq_keep", "seq_pos_max"))
        n = {"seq_keep": 1, "seq_pos_max": 1, "seq_rm": 3}.get(what, 4)
        seq = rng.choice((0, 0, 0, 1, -1, _int(rng)))
        args = [seq, *(rng.choice((-1, 0, 1, 3, _int(rng))) for _ in range(n - 1))]
        return name, (what, args)
    field = rng.choice(
        (
            "temp",
            "top_p",
            "min_p",
            "typical_p",
            "top_n_sigma",
            "repeat_penalty",
            "presence_penalty",
            "frequency_penalty",
            "xtc_probability",
            "xtc_threshold",
        )
    )
    fields = {field: rng.choice(numbers.FLOATS), "top_k": rng.choice((0, 1, 40, _int(rng)))}
    return name, (fields, rng.choice(numbers.FLOATS), rng.randrange(3))


def _batch(rng: Random) -> dict[str, Any]:
    n = rng.randint(1, 4)
    found: dict[str, Any] = {"tokens": [rng.randrange(60) for _ in range(n)]}
    for key in rng.sample(("pos", "seq_ids", "outputs", "embd", "tokens"), rng.randint(1, 2)):
        rows = n if rng.random() < 0.8 else rng.randint(0, 5)
        values: Any = [rng.choice((0, 1, 2, _int(rng))) for _ in range(rows)]
        if key == "seq_ids":
            values = [(v,) if rng.random() < 0.8 else (v, 0, 1)[: rng.randrange(4)] for v in values]
        elif key == "outputs":
            values = [bool(v) for v in values] if rng.random() < 0.7 else [values, values]
        elif key == "embd":
            values = np.full((rows, rng.choice((1, 64, 64))), rng.choice(numbers.FLOATS))
        elif rng.random() < 0.2:
            values = rng.choice(([values, values], [1.5] * rows, ["x"] * rows, [None], 3, "abc"))
        found[key] = values
    return found


def _error_of(ctx: Context, name: str, args: Any) -> GGMLError | None:
    """Return the error of a refused call; the context must work after it."""
    try:
        _do(ctx, name, args)
    except GGMLError as error:
        return error
    return None


def _do(ctx: Context, name: str, args: Any) -> None:
    if name == "decode":
        ctx.decode(args)
    elif name == "batch":
        ctx.decode(Batch(**args))
    elif name == "memory":
        getattr(ctx.memory, args[0])(*args[1])
    else:
        fields, logit, where = args
        logits = np.zeros(64, np.float32)
        with np.errstate(all="ignore"):
            logits[: (1, 64, 5)[where]] = logit
        Sampler(SamplingParams(seed=1, **fields), 64).sample(logits)
