"""Infill stage: prefers few, long and certain tokens, or the end (llama_sampler_infill_apply)."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from ggml_py.errors import ModelError
from llama_py.sampler.candidates import F32, Candidates, Filter
from llama_py.tokenizer import Tokenizer

_LEAST = np.float32(0.2)  # minimum probability of a text token to keep


def infill(tokenizer: Tokenizer) -> Filter:
    """Keep end tokens if they are likely, otherwise likely tokens that are not a prefix of another.

    ModelError if only the end remains, and the vocabulary has no end token.
    """

    def keep(c: Candidates) -> Candidates:
        c = c.sort()
        p = c.probabilities()
        ends = np.array([tokenizer.is_eog(int(id)) for id in c.ids], bool)
        end, text = (np.cumsum(np.append(np.float32(0), p[which]))[-1] for which in (ends, ~ends))
        if 3 * end * np.float32(c.ids.size) > text:
            return c.take(ends, True)
        logits, p = _merge(c, p, tokenizer)
        c = c._replace(logits=logits)
        left = (p >= _LEAST) | ends
        n_text = int(np.count_nonzero(left & ~ends))
        if n_text == 0:
            return _select_end(tokenizer)
        c, p, ends = c.take(left, True), p[left], ends[left]
        p = p / np.cumsum(p)[-1]
        return c.take((p >= np.float32(1 / (n_text + 1))) | ends, True)

    return keep


def _merge(c: Candidates, p: F32, tokenizer: Tokenizer) -> tuple[F32, F32]:
    """Merge each token with tokens that it is a prefix of: the likelier gets the sum."""
    logits, p = c.logits.copy(), p.copy()
    pieces = [tokenizer.token_to_piece(int(id)) for id in c.ids]
    by_text = sorted(range(len(pieces)), key=pieces.__getitem__)
    texts = [pieces[i] for i in by_text]
    for i, piece in enumerate(pieces):
        if not piece:
            continue
        first = last = bisect_left(texts, piece)
        while last < len(texts) and texts[last].startswith(piece):
            last += 1
        for j in sorted(by_text[first:last]):
            if logits[i] == -np.inf:
                break
            if i == j or logits[j] == -np.inf:
                continue
            to, of = (j, i) if p[j] > p[i] else (i, j)
            p[to] += p[of]
            p[of], logits[of] = 0, -np.inf
    return logits, p


def _select_end(tokenizer: Tokenizer) -> Candidates:
    end = tokenizer.eos if tokenizer.eot is None else tokenizer.eot
    if end is None:
        raise ModelError(
            "infill: the vocabulary has no EOT or EOS token to end the text with; use a model "
            "that has one"
        )
    return Candidates(np.array([end]), np.ones(1, np.float32), True)
