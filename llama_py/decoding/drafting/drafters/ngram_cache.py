"""Drafts of the most frequent token after the last one to four (common/ngram-cache.cpp)."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from ggml_py.errors import ModelError
from llama_py.batch import I32
from llama_py.decoding.drafting.drafter import Drafter, DrafterSetting, DraftRequest
from llama_py.params.speculative import SpeculativeParams

N_DRAFT = 8
N_GRAM = 4  # tokens of the longest key
N_STATIC = 2  # tokens of a key of a corpus
# Minimum count, and minimum share in percent of the best continuation, for keys of 1 to 4 tokens.
LAX = ((2, 66), (2, 50), (1, 50), (1, 50))
STRICT = ((4, 75), (3, 66), (2, 66), (2, 66))

Gram = tuple[int, ...]
Counts = dict[Gram, dict[int, int]]  # how often each token followed
Rules = tuple[tuple[int, int], ...]


class NgramCache(Drafter):
    """Counts of the text, of earlier responses, and of a corpus, which also weighs the others.

    llama.cpp counts keys only within the tokens added after the last draft; here they may start
    before these, like its header file specifies.
    """

    def __init__(self, setting: DrafterSetting) -> None:
        super().__init__(setting)
        p = setting.params
        self._dynamic = read_counts(p.lookup_cache_dynamic) if p.lookup_cache_dynamic else {}
        self._static = read_counts(p.lookup_cache_static) if p.lookup_cache_static else {}
        self._context: dict[int, Counts] = {}
        self._n_counted: dict[int, int] = {}

    @classmethod
    def n_max(cls, p: SpeculativeParams) -> int:
        return N_DRAFT

    def begin(self, seq_id: int, ids: I32) -> None:
        if ids.size < self._n_counted.get(seq_id, 0):  # the text has become shorter
            self._n_counted[seq_id], self._context[seq_id] = 0, {}

    def draft(self, requests: Sequence[DraftRequest]) -> Mapping[int, list[int]]:
        return {r.seq_id: self._draft(r) for r in requests}

    def _draft(self, r: DraftRequest) -> list[int]:
        context = self._context.setdefault(r.seq_id, {})
        n_counted = self._n_counted.get(r.seq_id, 0)
        ids: list[int] = r.ids[max(n_counted - N_GRAM, 0) :].tolist()
        count(context, ids, r.ids.size - n_counted)
        self._n_counted[r.seq_id] = r.ids.size
        if r.ids.size < N_STATIC:
            return []
        text: list[int] = r.ids[-N_GRAM:].tolist()
        start = len(text)
        while len(text) < start + r.n_max:
            id = self._next(context, text)
            if id is None:
                break
            text.append(id)
        return text[start:]

    def _next(self, context: Counts, text: list[int]) -> int | None:
        usual = self._static.get(tuple(text[-N_STATIC:]), {})
        id = most_frequent(context, text, usual, LAX)
        if id is None:
            id = most_frequent(self._dynamic, text, usual, STRICT)
        if id is None and usual:
            best = max(usual, key=usual.__getitem__)
            n, (least, share) = sum(usual.values()), LAX[N_STATIC - 1]
            id = best if n >= least and 100 * usual[best] >= share * n else None
        return id


def count(counts: Counts, ids: Sequence[int], n_new: int) -> None:
    """Count tokens that follow each one to four tokens, if they are among the last n_new ids."""
    for n in range(1, N_GRAM + 1):
        for i in range(max(len(ids) - n_new, n), len(ids)):
            following = counts.setdefault(tuple(ids[i - n : i]), {})
            following[ids[i]] = following.get(ids[i], 0) + 1


def most_frequent(
    counts: Counts, text: Sequence[int], usual: Mapping[int, int], rules: Rules
) -> int | None:
    """Return the most frequent continuation of the text's longest n-gram that is frequent enough;
    `usual`: a corpus's counts, which weigh these."""
    for n in range(min(N_GRAM, len(text)), 0, -1):
        found, (least, share) = counts.get(tuple(text[-n:])), rules[n - 1]
        if found is None:
            continue
        best = max(found, key=lambda id: found[id] * (100 * usual[id] if id in usual else 1))
        total = sum(found.values())
        if total >= least and 100 * found[best] >= share * total:
            return best
    return None


def read_counts(path: str | Path) -> Counts:
    """Read counts from a file of `llama-lookup-create`: keys padded to four tokens with -1, the
    number of continuations, and each with its count. OSError, or ModelError for another file."""
    data, at = Path(path).read_bytes(), 0
    counts: Counts = {}
    try:
        while at < len(data):
            *gram, n = struct.unpack_from(f"<{N_GRAM + 1}i", data, at)
            at += 4 * (N_GRAM + 1)
            pairs = struct.unpack_from(f"<{2 * n}i", data, at)
            at += 8 * n
            if n < 1 or min(pairs[1::2]) < 1:
                raise ModelError(
                    f"{path}: not a lookup cache: an n-gram has no tokens; create it again with "
                    "llama-lookup-create"
                )
            following = dict(zip(pairs[::2], pairs[1::2], strict=True))
            counts[tuple(id for id in gram if id >= 0)] = following
    except struct.error as e:
        raise ModelError(
            f"{path}: lookup cache is truncated: {e}; create it again with llama-lookup-create"
        ) from e
    return counts
