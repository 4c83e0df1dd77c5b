"""Runs of a loaded model: a few tokens in every mode."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import llama_py
from llama_py.context import Context
from llama_py.model import Model

DEVICES: tuple[Any, ...] = ("cpu",) * 8 + ("ref",) * 3 + (["ref", "cpu"], ["cpu", "ref"])
CACHE_TYPES = ("f16",) * 6 + ("f32", "q8_0", "bf16", "q4_0")


def drive(path: Path, rng: Random) -> str:
    """Load the file, make a context, decode a prompt and three tokens; then its texts."""
    device = rng.choice(DEVICES)
    how: dict[str, Any] = {"load_mtp": rng.random() < 0.3}
    if isinstance(device, list):
        how["split_mode"] = rng.choice(("layer", "graph", "row"))
        how["n_gpu_layers"] = rng.choice((-1, 0, 1, 2))
    with (
        llama_py.load(path, device=device, **how) as model,
        model.context(**options(rng, model)) as ctx,
    ):
        n = decode(rng, model, ctx)
    return f"{model.arch} on {device}: {n} logits"


def options(rng: Random, model: Model) -> dict[str, Any]:
    """Return random options of a context."""
    found: dict[str, Any] = {
        "n_ctx": rng.choice((1, 16, 64, 256, 300)),
        "n_threads": rng.choice((1, 1, 1, 2)),
        "n_ubatch": rng.choice((512, 512, 4, 1)),
        "n_seq_max": rng.choice((1, 1, 1, 2, 3)),
        "flash_attn": rng.choice(("auto", "auto", "on", "off")),
        "kv_unified": rng.random() < 0.3,
        "embeddings": rng.random() < 0.2,
        "type_k": rng.choice(CACHE_TYPES),
        "fuse": rng.random() < 0.9,
    }
    if rng.random() < 0.1:
        found["n_rs_seq"] = rng.choice((1, 3))
    if rng.random() < 0.3:
        found["type_v"] = rng.choice(CACHE_TYPES)
    if model.architecture.can_draft and rng.random() < 0.4:
        found["mtp"] = True
    return found


def decode(rng: Random, model: Model, ctx: Context) -> int:
    """Return the number of logits."""
    n_vocab = max(model.hparams.n_vocab, 1)
    prompt = [rng.randrange(n_vocab) for _ in range(rng.randint(1, 8))]
    if ctx.params.mtp:
        rows = np.zeros((len(prompt), model.hparams.n_embd_inp), np.float32)
        return int(ctx.decode(llama_py.Batch(prompt, rows), "all").size)
    if model.has_encoder:
        ctx.encode(prompt)
    n = ctx.decode(prompt, "all").size
    for _ in range(3):
        n += ctx.decode([rng.randrange(n_vocab)]).size
    if rng.random() < 0.2:
        ctx.load_state(ctx.save_state())
        ctx.memory.seq_rm(0, len(prompt), -1)
        n += ctx.decode([0]).size
    return int(n)
