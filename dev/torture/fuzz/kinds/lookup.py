"""Lookup caches: counts of tokens after n-grams, as 32-bit integers."""

from __future__ import annotations

from pathlib import Path
from random import Random

import llama_py
from dev.torture.fuzz.damage import damaged
from dev.torture.fuzz.kind import Case, Kind
from dev.torture.fuzz.models import memories
from llama_py.decoding.drafting.drafters.ngram_cache import read_counts


class LookupCaches(Kind):
    """lookup caches (-lcs, -lcd), and their drafts"""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        models = [llama_py.load(path, device="cpu") for path in memories(folder)]
        self.model = next(m for m in models if m.hparams.causal_attn and not m.has_encoder)

    def case(self, rng: Random) -> Case:
        data = b""
        for _ in range(rng.randint(1, 6)):
            n = rng.randint(1, 3)
            gram = [rng.randrange(8) for _ in range(rng.randint(1, 4))]
            words = [*gram, *[-1] * (4 - len(gram)), n]
            for _ in range(n):
                words.append(rng.choice((1, 2, 3, 63, 64, 2**31 - 1, -1)))
                words.append(rng.choice((1, 5, 2**31 - 1)))
            data += b"".join(w.to_bytes(4, "little", signed=True) for w in words)
        words_, changed = damaged(rng, data, 200) if rng.random() < 0.7 else ("undamaged", data)
        path = self.folder / "lookup.bin"
        ids = [rng.randrange(8) for _ in range(6)]

        def run() -> str:
            path.write_bytes(changed)
            n = len(read_counts(path))
            with self.model.context(n_ctx=64, n_threads=1) as ctx:
                key = rng.choice(("lookup_cache_static", "lookup_cache_dynamic"))
                how = {"spec_type": "ngram-cache", key: str(path)}
                done = [p.token for p in llama_py.stream(ctx, ids, max_tokens=6, **how)]
            return f"{n} keys, {len(done)} tokens"

        return Case(f"{words_}: {changed.hex()}", run)
