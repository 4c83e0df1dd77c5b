"""Drafts of the accepted continuation of a key of n tokens (common_ngram_map_draft)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llama_py.batch import I32
from llama_py.decoding.drafting.drafter import Drafter, DrafterSetting, DraftRequest
from llama_py.decoding.drafting.drafters._ngram_map import NgramMap
from llama_py.params.speculative import SpeculativeParams


class NgramMapK(Drafter):
    """A map of each sequence; see NgramMap."""

    def __init__(self, setting: DrafterSetting) -> None:
        super().__init__(setting)
        self._maps: dict[int, NgramMap] = {}

    def new_map(self) -> NgramMap:
        p = self.setting.params
        return NgramMap(p.spec_ngram_map_k_size_n, p.spec_ngram_map_k_size_m, None)

    @classmethod
    def n_max(cls, p: SpeculativeParams) -> int:
        return p.spec_ngram_map_k_size_m

    def begin(self, seq_id: int, ids: I32) -> None:
        self._map(seq_id).begin(ids)

    def draft(self, requests: Sequence[DraftRequest]) -> Mapping[int, list[int]]:
        return {r.seq_id: self._map(r.seq_id).draft(r.ids) for r in requests}

    def accept(self, seq_id: int, n_accepted: int, mine: bool) -> None:
        if mine:
            self._map(seq_id).accept(n_accepted)

    def _map(self, seq_id: int) -> NgramMap:
        if seq_id not in self._maps:
            self._maps[seq_id] = self.new_map()
        return self._maps[seq_id]
