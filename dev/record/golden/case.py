"""Elements of a run: a model on an engine, known facts about it, and the results."""

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
    """Facts about a model, from llama.cpp.

    memory    True if a batch continues the previous batch
    logits    True for logits, False for embeddings
    start     decoder start token, for a model with an encoder; otherwise None
    delta_net True for Gated DeltaNet as one op
    indexer   True for a lightning indexer as one op
    streams   True if one op mixes residual streams
    n_nextn   number of NextN layers
    rollback  True if recurrent states can be saved
    shared    for a pure draft model: True if it attends to the target model's cache
    block     for a pure draft model: tokens per draft; pairs: candidates per token;
              sure: True if it returns its confidence; anchored: blocks need states
    axes      number of position axes, if there are several
    enc_width, state_width   for a pure draft model: dimensions of its encoder's input, and of the
              states next to its tokens; 0: none. For other models: state_width, if a NextN layer
              gets more than a layer's result
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
    anchored: bool = False
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
        """Return random tokens, the same on every machine."""
        raw = np.random.Philox(key=seed + 100 * self.facts.seed).random_raw(n)
        return [int(x) for x in raw % np.uint64(self.tiny.n_vocab)]

    def prompt(self, engine: Engine) -> list[int]:
        """Return the input of the decoder; an encoder first processes the whole prompt."""
        ids = self.tokens(self.tiny.prompt)
        if self.facts.start is None:
            return ids
        engine.run(batch(ids), encode=True)
        return [self.facts.start, *ids[:4]]

    @property
    def outputs(self) -> str:
        """Tokens with outputs; without a memory llama.cpp returns outputs of all tokens."""
        return "last" if self.facts.memory else "all"


def batch(
    tokens: Ids, first: int = 0, outputs: str = "last", seq: int = 0, embd: Any = None
) -> Batch:
    """Return a batch of tokens of one sequence; outputs: "last" or "all"."""
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
    """Return one batch with several sequences."""
    all_parts: list[Any] = list(parts)
    fields = ("tokens", "pos", "seq_ids", "outputs")
    return Batch(**{name: [x for p in all_parts for x in getattr(p, name)] for name in fields})
