#!/usr/bin/env python3
"""Record the candidates and tokens of the real llama.cpp's samplers for given logits into
tests/data/samplers.json.xz. Needs llama-cpp-python: pip install '.[parity]'.

    python -m dev.record.record_samplers
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from dev.record.golden import sampling
from dev.record.golden.sampling import TEXT, Seen
from llama_py.params import SamplingParams
from llama_py.tokenizer import load_tokenizer


class Chain:
    """The samplers that common/sampling.cpp:common_sampler_init makes of the parameters."""

    def __init__(self, p: SamplingParams, n_vocab: int, vocab: Any, eog: set[int]) -> None:
        self.vocab, self.n_vocab = vocab, n_vocab
        bias = {**p.logit_bias, **dict.fromkeys(eog if p.ignore_eos else (), -np.inf)}
        self.samplers = [self._bias(bias)] if bias else []
        if p.mirostat:
            self.samplers += [llama_cpp.llama_sampler_init_temp(p.temp), self._mirostat(p)]
        else:
            self.samplers += self._named(p)

    def _bias(self, bias: dict[Any, float]) -> Any:
        kind = llama_cpp.llama_logit_bias
        pairs = (kind * len(bias))(*(kind(id, b) for id, b in bias.items()))
        return llama_cpp.llama_sampler_init_logit_bias(self.n_vocab, len(bias), pairs)

    def _mirostat(self, p: SamplingParams) -> Any:
        how = p.seed, p.mirostat_ent, p.mirostat_lr
        if p.mirostat == 1:
            return llama_cpp.llama_sampler_init_mirostat(self.n_vocab, *how, 100)
        return llama_cpp.llama_sampler_init_mirostat_v2(*how)

    def _named(self, p: SamplingParams) -> Iterator[Any]:
        """Yield the samplers of `samplers`, in order."""
        of = {
            "dry": lambda: self._dry(p),
            "top_k": lambda: llama_cpp.llama_sampler_init_top_k(p.top_k),
            "top_p": lambda: llama_cpp.llama_sampler_init_top_p(p.top_p, p.min_keep),
            "top_n_sigma": lambda: llama_cpp.llama_sampler_init_top_n_sigma(p.top_n_sigma),
            "min_p": lambda: llama_cpp.llama_sampler_init_min_p(p.min_p, p.min_keep),
            "xtc": lambda: llama_cpp.llama_sampler_init_xtc(
                p.xtc_probability, p.xtc_threshold, p.min_keep, p.seed
            ),
            "typ_p": lambda: llama_cpp.llama_sampler_init_typical(p.typical_p, p.min_keep),
            "temperature": lambda: llama_cpp.llama_sampler_init_temp_ext(
                p.temp, p.dynatemp_range, p.dynatemp_exp
            ),
            "infill": lambda: llama_cpp.llama_sampler_init_infill(self.vocab),
            "penalties": lambda: llama_cpp.llama_sampler_init_penalties(
                self.n_vocab,
                p.repeat_last_n,
                p.repeat_penalty,
                p.frequency_penalty,
                p.presence_penalty,
            ),
        }
        yield from (of[name]() for name in p.chain if name != "adaptive_p")
        if "adaptive_p" in p.chain:
            yield llama_cpp.llama_sampler_init_adaptive_p(
                p.adaptive_target, p.adaptive_decay, p.seed
            )
        else:
            yield llama_cpp.llama_sampler_init_dist(p.seed)

    def _dry(self, p: SamplingParams) -> Any:
        texts = [text.encode() for text in p.dry_sequence_breakers]
        return llama_cpp.llama_sampler_init_dry(
            self.vocab,
            p.dry_multiplier,
            p.dry_base,
            p.dry_allowed_length,
            p.dry_penalty_last_n,
            (ctypes.c_char_p * len(texts))(*texts),
            len(texts),
        )

    def accept(self, id: int) -> None:
        for sampler in self.samplers:
            llama_cpp.llama_sampler_accept(sampler, id)

    def apply(self, logits: NDArray[np.float32]) -> tuple[int, Seen]:
        """Return the sampled token, and its candidates."""
        item = llama_cpp.llama_token_data
        items = (item * logits.size)(*(item(i, float(x), 0.0) for i, x in enumerate(logits)))
        array = llama_cpp.llama_token_data_array(items, logits.size, -1, False)
        for sampler in self.samplers:
            llama_cpp.llama_sampler_apply(sampler, ctypes.byref(array))
        left = [array.data[i] for i in range(array.size)]
        ids = np.array([one.id for one in left])
        return left[array.selected].id, Seen.of(ids, np.array([one.p for one in left], np.float32))

    def free(self) -> None:
        for sampler in self.samplers:
            llama_cpp.llama_sampler_free(sampler)


def main() -> None:
    how = llama_cpp.llama_model_default_params()
    how.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(str(sampling.VOCABULARY).encode(), how)
    vocab = llama_cpp.llama_model_get_vocab(model)
    eog = set(load_tokenizer(sampling.VOCABULARY).eog)
    logits, results = sampling.inputs(), {}
    for case, name in sampling.pairs():
        row = logits[name]
        chain = Chain(sampling.params(case), row.size, vocab, eog)
        for id in TEXT:
            chain.accept(id % row.size)
        drawn, seen = [], []
        for _ in range(sampling.draws(name)):
            id, left = chain.apply(row)
            chain.accept(id)
            drawn.append(id)
            seen.append(left)
        chain.free()
        about = {"drawn": drawn, "first": asdict(seen[0]), "last": asdict(seen[-1])}
        results[f"{case}/{name}"] = about
    print(f"{len(results)} results: {sampling.save(logits, results)} bytes")


if __name__ == "__main__":
    main()
