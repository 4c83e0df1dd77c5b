"""Drafts of one token per n tokens, from a table for all sequences (common/ngram-mod.cpp)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from llama_py.batch import I32
from llama_py.decoding.drafting.drafter import Drafter, DrafterSetting, DraftRequest
from llama_py.params.speculative import SpeculativeParams

SIZE = 4 * 1024 * 1024  # entries of the table
FULL = 0.25  # clear the table at this fraction of used entries
CHUNK = 32  # minimum number of new tokens to enter
FACTOR = np.uint64(6364136223846793005)
POOR, N_POOR = 0.25, 5  # N_POOR drafts in sequence with less acceptance than POOR clear the table

Keys = npt.NDArray[np.uint64]


@dataclass(slots=True)
class _Sequence:
    """n_entered   tokens with their successors in the table, without the last few
    n_drafted   tokens of the last draft; n_poor  length of the current series of poor drafts
    """

    n_entered: int = 0
    n_drafted: int = 0
    n_poor: int = 0


class NgramMod(Drafter):
    """Table from the hash of n tokens to their last successor."""

    def __init__(self, setting: DrafterSetting) -> None:
        super().__init__(setting)
        self.n = setting.params.spec_ngram_mod_n_match
        self._next: dict[int, int] = {}
        self._sequences: dict[int, _Sequence] = {}

    @classmethod
    def n_max(cls, p: SpeculativeParams) -> int:
        return p.spec_ngram_mod_n_max

    def begin(self, seq_id: int, ids: I32) -> None:
        self._sequences[seq_id] = one = _Sequence()
        if ids.size < self.n:
            return
        self._enter(ids, 0, ids.size - self.n)
        one.n_entered = ids.size - self.n
        if len(self._next) > FULL * SIZE:
            self._next.clear()

    def draft(self, requests: Sequence[DraftRequest]) -> Mapping[int, list[int]]:
        return {r.seq_id: self._draft(r) for r in requests}

    def _draft(self, r: DraftRequest) -> list[int]:
        one, n, end = self._sequences[r.seq_id], self.n, r.ids.size - 1
        one.n_drafted = 0
        if end < n:
            return []
        if one.n_entered + CHUNK < end:
            self._enter(r.ids, one.n_entered, end - n)
            one.n_entered = end - n
        text: list[int] = r.ids[-n:].tolist()
        for _ in range(self.setting.params.spec_ngram_mod_n_max):
            following = self._next.get(int(_places(np.array(text[-n:], np.int32), n)[0]))
            if following is None:
                break
            text.append(following)
        guess = text[n:]
        if len(guess) < self.setting.params.spec_ngram_mod_n_min:
            return []
        one.n_drafted = len(guess)
        return guess

    def accept(self, seq_id: int, n_accepted: int, mine: bool) -> None:
        one = self._sequences[seq_id]
        if not mine or not one.n_drafted:
            return
        one.n_poor = one.n_poor + 1 if n_accepted < POOR * one.n_drafted else 0
        if one.n_poor == N_POOR:
            self._next.clear()
            one.n_poor = one.n_entered = 0

    def _enter(self, ids: I32, first: int, last: int) -> None:
        """Store the token that follows the n tokens at each position in [first, last)."""
        places = _places(ids[first : last + self.n - 1], self.n).tolist()
        self._next |= zip(places, ids[first + self.n : last + self.n].tolist(), strict=True)


def _places(ids: I32, n: int) -> Keys:
    """Return the table entries of every n consecutive tokens."""
    wide = ids.astype(np.uint64)
    hashes = np.zeros(max(ids.size - n + 1, 0), np.uint64)
    for i in range(n):
        hashes = hashes * FACTOR + wide[i : i + hashes.size]
    return hashes % np.uint64(SIZE)
