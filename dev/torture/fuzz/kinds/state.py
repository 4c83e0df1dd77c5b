"""Fuzzing of saved states and prompt caches with damaged data and, mostly, valid checksums."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from random import Random
from typing import Any

import llama_py
from dev.torture.fuzz.damage import damaged
from dev.torture.fuzz.kind import Case, Kind
from dev.torture.fuzz.models import memories
from llama_py.context import Context
from llama_py.decoding.prefix_cache import PrefixCache, load_slot, save_slot
from llama_py.model import Model

HEAD = 12  # magic, version, checksum


def sealed(data: bytes) -> bytes:
    """Return the data with the checksum corrected."""
    return data[: HEAD - 4] + struct.pack("<I", zlib.crc32(data[HEAD:])) + data[HEAD:]


class States(Kind):
    """saved states, checkpoints and prompt caches"""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.models = [
            model
            for path in memories(folder)
            if not (model := llama_py.load(path, device="cpu")).has_encoder
        ]

    def case(self, rng: Random) -> Case:
        model = rng.choice(self.models)
        how: dict[str, Any] = {
            "n_ctx": 64,
            "n_threads": 1,
            "n_seq_max": rng.choice((1, 2, 3)),
            "kv_unified": rng.random() < 0.4,
            "flash_attn": rng.choice(("on", "off", "auto")),
        }
        what = rng.choice(("slot", -1, -1, 0, how["n_seq_max"] - 1))
        partial = rng.random() < 0.2
        data = self._saved(rng, model, how, what, partial)
        words, changed = damaged(rng, data, rng.choice((100, 600, 2000)))
        seal = rng.random() < 0.9
        if seal and len(changed) > HEAD:
            changed = sealed(changed)
        told = f"{model.arch}: {what}{' partial' if partial else ''} {how}: {words}, sealed {seal}"

        def run() -> str:
            with Context(model, **how) as ctx:
                return self._load(rng, ctx, changed, what, partial)

        return Case(told, run)

    def _saved(self, rng: Random, model: Model, how: Any, what: Any, partial: bool) -> bytes:
        with Context(model, **how) as ctx:
            for s in range(ctx.cparams.n_seq_max):
                ids = [rng.randrange(60) for _ in range(rng.randint(1, 9))]
                if what == "slot" and s == 0:
                    PrefixCache.for_context(ctx).start(ids)
                    PrefixCache.for_context(ctx).decode(ids)
                else:
                    ctx.decode(ids, seq_id=s)
            if what != "slot":
                return ctx.save_state(what, partial=partial, tokens=[1, 2, 3])
            path = self.folder / "slot"
            save_slot(PrefixCache.for_context(ctx), path)
            return path.read_bytes()

    def _load(self, rng: Random, ctx: Context, data: bytes, what: Any, partial: bool) -> str:
        ctx.decode([1, 2])
        if what == "slot":
            path = self.folder / "changed"
            path.write_bytes(data)
            ids = load_slot(PrefixCache.for_context(ctx), path)
            more = [*ids, 3][:60]
            told = PrefixCache.for_context(ctx).start(more)
            PrefixCache.for_context(ctx).decode(more[told.n_reused :])
            return "a slot"
        ids = ctx.load_state(data, what, partial=partial)
        for s in range(ctx.cparams.n_seq_max):
            ctx.decode([rng.randrange(60)], seq_id=s)
        ctx.decode([1, 2])
        ctx.memory.seq_rm(0, 1, -1)
        ctx.save_state()
        return f"{len(ids)} tokens"
