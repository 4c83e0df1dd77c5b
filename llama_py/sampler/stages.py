"""Stages of a chain by their names in `samplers` (common_sampler_init)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import takewhile

from ggml_py.errors import ModelError
from llama_py.params import SamplingParams
from llama_py.sampler import filters
from llama_py.sampler.candidates import Filter
from llama_py.sampler.draw import Dist, Draw, GreedyDraw
from llama_py.sampler.mt19937 import Mt19937
from llama_py.sampler.penalties import penalties
from llama_py.tokenizer import Tokenizer

ADAPTIVE = "adaptive_p"
_CHANGE = ("penalties", "dry")  # stages that affect a greedy choice
_KEEP_THE_BEST = {"top_n_sigma", "top_k", "top_p", "min_p", "temperature"}


@dataclass(frozen=True)
class Setup:
    """Arguments of stages. Stages that draw have the same seed, and separate random numbers."""

    params: SamplingParams
    n_vocab: int
    seed: int
    given: Tokenizer | None

    @property
    def random(self) -> Mt19937:
        return Mt19937(self.seed)

    def tokenizer(self, what: str) -> Tokenizer:
        """Return the tokenizer; ModelError without one."""
        if self.given is None:
            raise ModelError(
                f"{what} needs the tokenizer; use Sampler(params, n_vocab, model.tokenizer)"
            )
        return self.given


def _penalties(s: Setup) -> Filter | None:
    p = s.params
    return penalties(p.repeat_last_n, p.repeat_penalty, p.frequency_penalty, p.presence_penalty)


def _dry(s: Setup) -> Filter | None:
    p = s.params
    if p.dry_multiplier == 0 or p.dry_penalty_last_n == 0:
        return None  # finding breakers takes a pass over the whole vocabulary
    from llama_py.sampler.breakers import find_breakers
    from llama_py.sampler.dry import dry

    texts = p.dry_sequence_breakers
    found = find_breakers(texts, s.tokenizer("dry_sequence_breakers")) if any(texts) else {}
    return dry(p.dry_multiplier, p.dry_base, p.dry_allowed_length, p.dry_penalty_last_n, found)


def _infill(s: Setup) -> Filter | None:
    from llama_py.sampler.infill import infill

    return infill(s.tokenizer("infill"))


def _temperature(s: Setup) -> Filter | None:
    return filters.temperature(s.params.temp, s.params.dynatemp_range, s.params.dynatemp_exp)


STAGES: Mapping[str, Callable[[Setup], Filter | None]] = {
    "penalties": _penalties,
    "dry": _dry,
    "top_n_sigma": lambda s: filters.top_n_sigma(s.params.top_n_sigma),
    "top_k": lambda s: filters.top_k(s.params.top_k),
    "typ_p": lambda s: filters.typical_p(s.params.typical_p, s.params.min_keep),
    "top_p": lambda s: filters.top_p(s.params.top_p, s.params.min_keep),
    "min_p": lambda s: filters.min_p(s.params.min_p, s.params.min_keep),
    "xtc": lambda s: filters.xtc(
        s.params.xtc_probability, s.params.xtc_threshold, s.params.min_keep, s.random
    ),
    "temperature": _temperature,
    "infill": _infill,
    ADAPTIVE: lambda s: None,  # a draw, the last stage
}


def build_chain(s: Setup) -> tuple[list[Filter], Draw]:
    """Return the active filters in order, and the stage that draws."""
    p = s.params
    if p.mirostat:
        from llama_py.sampler.mirostat import Mirostat, MirostatV2

        kind = Mirostat if p.mirostat == 1 else MirostatV2
        heat = filters.temperature(p.temp)
        return [heat] if heat else [], kind(s.n_vocab, p.mirostat_ent, p.mirostat_lr, s.random)
    made = [(name, STAGES[name](s)) for name in p.chain]
    parts = [(name, part) for name, part in made if part is not None]
    if p.temp <= 0 and p.dynatemp_range <= 0:
        changes = [part for _, part in takewhile(lambda named: named[0] in _CHANGE, parts)]
        rest = {name for name, _ in parts[len(changes) :]}
        if "temperature" in rest and rest <= _KEEP_THE_BEST:
            return changes, GreedyDraw()
    return [part for _, part in parts], _random_draw(s)


def _random_draw(s: Setup) -> Draw:
    p = s.params
    if ADAPTIVE not in p.chain:
        return Dist(s.random)
    from llama_py.sampler.adaptive import AdaptiveP

    return AdaptiveP(p.adaptive_target, p.adaptive_decay, s.random)
