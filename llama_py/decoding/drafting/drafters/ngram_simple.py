"""Drafts from the last occurrence of the newest tokens (common_ngram_simple_draft)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llama_py.batch import I32
from llama_py.decoding.drafting.drafter import Drafter, DraftRequest
from llama_py.decoding.drafting.drafters._ngram import last_found
from llama_py.params.speculative import SpeculativeParams


class NgramSimple(Drafter):
    """Drafter that finds the last occurrence of the last n tokens, and drafts up to m tokens after
    it, if at least n follow. An occurrence at position 0 is ignored."""

    @classmethod
    def n_max(cls, p: SpeculativeParams) -> int:
        return p.spec_ngram_simple_size_m

    def draft(self, requests: Sequence[DraftRequest]) -> Mapping[int, list[int]]:
        p = self.setting.params
        n, m = p.spec_ngram_simple_size_n, p.spec_ngram_simple_size_m
        return {r.seq_id: _following(r.ids, n, m) for r in requests}


def _following(ids: I32, n: int, m: int) -> list[int]:
    end = ids.size - 1  # without the token that was just chosen
    if end <= n + m + 1:
        return []
    at = last_found(ids, ids[-n:].tolist(), 1, end - n - 1)
    following: list[int] = ids[at + n : min(at + n + m, end)].tolist()
    return following if at > 0 and len(following) >= n else []
