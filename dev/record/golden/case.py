"""What a run is made of: a model on an engine, what is known of it, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dev.record.golden.engines import Engine, Open
from dev.tiny_models import Tiny
from ggml_py.inspection.dump import Record
from llama_py.batch import Batch

Ids = Sequence[int]


@dataclass(frozen=True)
class Facts:
    """What llama.cpp says of a model.

    memory    whether a batch goes on where the one before it ended
    logits    whether there are any, instead of embeddings
    start     the token a decoder starts with, of a model that has an encoder too; else None
    delta_net whether it has a gated delta net that is one op
    indexer   whether it has a lightning indexer that is one op
    streams   whether it mixes residual streams by one op
    n_nextn   layers that draft
    rollback  whether recurrent states can be kept
    shared    of a model that only drafts, whether it attends to what the other one keeps
    block     likewise, how many tokens it drafts at once; pairs: of each, how many candidates;
              sure: whether it tells how sure it is
    axes      of positions, where there are several
    enc_width, state_width   of a model that only drafts: channels of what its encoder gets, and of
              the states beside its tokens; 0: there are none. Of others the latter, where a NextN
              layer is given more than a layer's result
    seed      of the tokens
    """

    memory: bool = True
    logits: bool = True
    start: int | None = None
    delta_net: bool = False
    indexer: bool = False
    streams: bool = False
    n_nextn: int = 0
    rollback: bool = False
    shared: bool = False
    block: int = 0
    pairs: int = 0
    sure: bool = False
    axes: int = 0
    enc_width: int = 0
    state_width: int = 0
    seed: int = 0


@dataclass
class Result:
    """Node lists, and arrays by name."""

    nodes: list[Record] = field(default_factory=list)
    values: dict[str, NDArray[Any]] = field(default_factory=dict)


@dataclass
class Case:
    """A model on an engine."""

    tiny: Tiny
    facts: Facts
    open: Open

    def tokens(self, n: int, seed: int = 0) -> list[int]:
        """Random ones, the same everywhere."""
        raw = np.random.Philox(key=seed + 100 * self.facts.seed).random_raw(n)
        return [int(x) for x in raw % np.uint64(self.tiny.n_vocab)]

    def prompt(self, engine: Engine) -> list[int]:
        """What the decoder is given; an encoder has read the whole prompt before."""
        ids = self.tokens(self.tiny.prompt)
        if self.facts.start is None:
            return ids
        engine.run(batch(ids), encode=True)
        return [self.facts.start, *ids[:4]]

    @property
    def outputs(self) -> str:
        """Of which tokens; without a memory llama.cpp gives those of all."""
        return "last" if self.facts.memory else "all"


def batch(
    tokens: Ids, first: int = 0, outputs: str = "last", seq: int = 0, embd: Any = None
) -> Batch:
    """Tokens of one sequence; outputs: "last" or "all"."""
    n = len(tokens)
    wanted = [outputs == "all" or i == n - 1 for i in range(n)]
    return Batch(
        list(tokens),
        pos=list(range(first, first + n)),
        seq_ids=[(seq,)] * n,
        outputs=wanted,
        embd=embd,
    )


def joined(parts: Iterable[Batch]) -> Batch:
    """Several sequences in one batch."""
    all_parts: list[Any] = list(parts)
    fields = ("tokens", "pos", "seq_ids", "outputs")
    return Batch(**{name: [x for p in all_parts for x in getattr(p, name)] for name in fields})
