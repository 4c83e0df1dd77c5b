"""Drafts of the most frequent of up to four continuations (common_speculative_impl_ngram_map_k)."""

from __future__ import annotations

from llama_py.decoding.drafting.drafters._ngram_map import NgramMap
from llama_py.decoding.drafting.drafters.ngram_map_k import NgramMapK
from llama_py.params.speculative import SpeculativeParams


class NgramMapK4v(NgramMapK):
    """A map of each sequence; see NgramMap."""

    def new_map(self) -> NgramMap:
        p = self.setting.params
        return NgramMap(
            p.spec_ngram_map_k4v_size_n, p.spec_ngram_map_k4v_size_m, p.spec_ngram_map_k4v_min_hits
        )

    @classmethod
    def n_max(cls, p: SpeculativeParams) -> int:
        return p.spec_ngram_map_k4v_size_m
