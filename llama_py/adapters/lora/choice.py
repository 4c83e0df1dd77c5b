"""Choice of adapters per sequence, and the first token of each adapter.

An activated adapter (aLoRA, arXiv 2504.12397) applies from its invocation tokens on; tokens
before them are computed without it (llama.cpp: tools/server/server-context.cpp).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ggml_py.errors import ContextError
from llama_py.adapters.lora.adapter import Adapter
from llama_py.adapters.lora.applied import NO_LORAS, Loras
from llama_py.batch import NO_TOKEN
from llama_py.batch.splitter import BatchSplitter

Kinds = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Heard:
    """Invocations found in a sequence.

    starts   first position of each activated adapter
    end      the position after the last token seen;  tail  the last tokens before it
    """

    starts: Mapping[Adapter, int] = field(default_factory=dict)
    end: int = 0
    tail: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AdapterPlan:
    """Adapters of a batch: by kind of token, the kinds (None: all 0), and the sequences'
    invocations."""

    loras: list[Loras]
    kinds: Kinds | None
    heard: Mapping[int, Heard]


class AdapterChoice:
    """The adapters of a context's sequences."""

    def __init__(self) -> None:
        self._of_all = NO_LORAS
        self._of_seq: dict[int, Loras] = {}
        self._heard: dict[int, Heard] = {}

    def set(self, adapters: Mapping[Adapter, float], seq_id: int | None) -> None:
        """Set the adapters of one sequence; None: of all sequences, replacing earlier choices."""
        for adapter, factor in adapters.items():
            if not math.isfinite(factor):
                raise ContextError(f"scale of {adapter.path} must be finite, got {factor}")
            for pair in adapter.pairs.values():
                adapter.scale(pair, factor)
        loras = Loras(tuple((a, float(x)) for a, x in adapters.items() if x))
        if seq_id is None:
            self._of_all, self._of_seq, self._heard = loras, {}, {}
        else:
            self._of_seq[seq_id] = loras
            self._heard.pop(seq_id, None)

    def get_loras(self, seq_id: int) -> Loras:
        return self._of_seq.get(seq_id, self._of_all)

    def has_activated(self, seq_id: int) -> bool:
        """Return True if a sequence has activated adapters, so that batch splits matter."""
        return bool(_list_activated(self.get_loras(seq_id)))

    def keep(self, plan: AdapterPlan) -> None:
        """Store the invocations of a batch that has been computed."""
        self._heard.update(plan.heard)

    def plan(self, batch: BatchSplitter) -> AdapterPlan:
        """Plan the adapters that each token of a batch is computed with."""
        seqs = batch.by_seq()
        chosen = {self.get_loras(s) for s in seqs}
        if len(chosen) == 1 and not _list_activated(*chosen):
            return AdapterPlan([*chosen], None, {})
        loras: dict[Loras, int] = {}
        kinds, heard = np.full(batch.n_tokens, -1, np.intp), {}
        for s, where in seqs.items():
            found, heard[s] = self._of_tokens(s, batch, np.arange(batch.n_tokens)[where])
            mine = np.array([loras.setdefault(one, len(loras)) for one in found], np.intp)
            others = kinds[where]
            if (clash := (others >= 0) & (others != mine)).any():
                i = int(np.arange(batch.n_tokens)[where][clash][0])
                raise ContextError(
                    f"token {i} belongs to sequences {list(batch.seq_id[i])}, which use "
                    "different adapters; decode it once per sequence"
                )
            kinds[where] = mine
        return AdapterPlan(list(loras), kinds if len(loras) > 1 else None, heard)

    def _of_tokens(
        self, s: int, batch: BatchSplitter, where: Kinds
    ) -> tuple[Sequence[Loras], Heard]:
        """Return the adapters of a sequence's tokens in a batch, and the invocations after them."""
        loras, pos = self.get_loras(s), batch.pos[0, where]
        ids = np.full(pos.size, NO_TOKEN) if batch.token is None else batch.token[where]
        tokens = tuple(map(int, ids))
        before = self._valid_invocations(s, int(pos[0]))
        starts = {**before.starts}
        for adapter in _list_activated(loras):
            if adapter not in starts:
                i = _find_last(adapter.invocation_tokens, before.tail, tokens)
                if i is not None:
                    starts[adapter] = int(pos[i])
        longest = max((len(a.invocation_tokens) for a in _list_activated(loras)), default=1)
        tail = (*before.tail, *tokens)[-longest:]
        waiting = {a for a in _list_activated(loras)}
        found = []
        for p in pos:
            asleep = {a for a in waiting if p < starts.get(a, math.inf)}
            awake = tuple(pair for pair in loras.used if pair[0] not in asleep)
            found.append(replace(loras, used=awake))
        return found, Heard(starts, int(pos[-1]) + 1, tail)

    def _valid_invocations(self, s: int, first: int) -> Heard:
        """Return the invocations of a sequence that are valid before position `first`."""
        heard = self._heard.get(s, Heard())
        starts = {a: p for a, p in heard.starts.items() if p < first}
        return Heard(starts, first, heard.tail if heard.end == first else ())


def _list_activated(loras: Loras) -> list[Adapter]:
    return [a for a, _ in loras.used if a.invocation_tokens]


def _find_last(
    wanted: tuple[int, ...], tail: tuple[int, ...], tokens: tuple[int, ...]
) -> int | None:
    """Return the index in `tokens` of the last `wanted` that ends there; 0 if it starts in the
    tail."""
    text, n = (*tail, *tokens), len(wanted)
    for i in range(len(text) - n, len(tail) - n, -1):
        if i >= 0 and text[i : i + n] == wanted:
            return max(i - len(tail), 0)
    return None
