"""Sampler chain like llama.cpp's (common/sampling.cpp:common_sampler_init)."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ggml_py.errors import ModelError
from llama_py.params import SamplingParams
from llama_py.params.choosers import Thinking
from llama_py.sampler.after_thoughts import AfterThoughts
from llama_py.sampler.candidates import F32, Candidates, SamplerStage, check
from llama_py.sampler.constraint import Constraint, ConstraintEnded
from llama_py.sampler.draw import GreedyDraw
from llama_py.sampler.penalties import logit_bias
from llama_py.sampler.stages import Setup, build_chain
from llama_py.tokenizer import Tokenizer


class Sampler:
    """Chooses the next token: biases, the stages `params.samplers` in their order, a draw.

        params = SamplingParams(samplers="penalties;min_p;temperature", min_p=0.1, seed=1)
        sampler = Sampler(params, model.hparams.n_vocab, model.tokenizer)
        for piece in model.stream("Once", sampler=sampler): ...

    Results equal llama.cpp's for the same seed and logits. `seed` is the seed in use, also a
    random one. State of the text (penalties, DRY, Mirostat, adaptive-p, a constraint) changes in
    `accept`, so rejected draft tokens have no effect.
    """

    def __init__(
        self,
        params: SamplingParams,
        n_vocab: int,
        tokenizer: Tokenizer | None = None,
        constraint: Constraint | None = None,
    ) -> None:
        """Create the chain of stages.

        tokenizer   for stages that need texts: DRY's breakers, infill, ignore_eos, biases by text,
                    and tokens that the model's file forbids
        constraint  constraint on every token; default: the constraint of `params`

        Raises ModelError if a stage needs a tokenizer, or `params.logit_bias` has a token outside
        the vocabulary; GrammarError if a grammar matches no response.
        """
        self.params, self.n_vocab = params, n_vocab
        self.seed = params.seed if params.has_seed else int.from_bytes(os.urandom(4), "little")
        setup = Setup(params, n_vocab, self.seed, tokenizer)
        self.grammar_first = False  # apply the constraint before the chain (common_sampler_sample)
        self.constraint = constraint or _constraint(setup)
        self._waits = False  # True if `begin` applied the constraint after reasoning
        self._tokenizer = tokenizer
        self._ids = _all_ids(n_vocab)
        self._bias = logit_bias(_biases(setup))
        self._chain, self._draw = build_chain(setup)
        self._drawn: int | None = None

    def sample(self, logits: F32) -> int:
        """Sample a token from `logits` [n_vocab]; at `temp` <= 0 the most likely, the lowest id if
        equal.

        This does not note the token: call `accept`. Raises ModelError for logits of another shape,
        with NaN or +inf, and if all tokens are forbidden; Ended, if the constraint forbids them.
        """
        c, constraint = self._start(logits), self.constraint
        if constraint is not None and constraint.holds and self.grammar_first:
            c = _constrain(constraint.apply(c), constraint)
        id = self._draw.draw(self._filter(c))
        if constraint is not None and not constraint.allows(id):
            id = self._draw.draw(self._filter(_constrain(constraint.apply(c), constraint)))
        self._drawn = id
        return id

    def candidates(self, logits: F32, constrained: bool = False) -> Candidates:
        """Return the candidates that remain after the chain, from `logits` [n_vocab].

        Args:
            logits: Logits of the next token, by token id.
            constrained: If True, remove the tokens that the constraint forbids before the chain.
        """
        c = self._start(logits)
        if constrained and self.constraint is not None:
            c = _constrain(self.constraint.apply(c), self.constraint)
        return self._filter(c)

    def accept(self, id: int) -> None:
        """Note a token of the prompt or of the response."""
        if not 0 <= id < self.n_vocab:
            raise ModelError(f"token must be in the vocabulary, 0..{self.n_vocab - 1}, got {id}")
        drawn, self._drawn = id == self._drawn, None
        for stage in self._stages():
            stage.accept(id, drawn)
        if drawn and self.constraint is not None:
            self.constraint.accept(id)

    def begin(self, thinking: Thinking | None = None) -> None:
        """Start another response: reset the constraint, which applies after reasoning, if any."""
        if self.constraint is None:
            return
        if self._waits and isinstance(self.constraint, AfterThoughts):
            self.constraint = self.constraint.inner
        self.constraint.reset()
        self._waits = thinking is not None and self._tokenizer is not None
        if thinking is not None and self._tokenizer is not None:
            self.constraint = AfterThoughts(self.constraint, self._tokenizer, thinking)

    def n_allowed(self, ids: Sequence[int]) -> int:
        """Return how many tokens of a draft the constraint allows in sequence."""
        return len(ids) if self.constraint is None else self.constraint.n_allowed(ids)

    @property
    def is_constrained(self) -> bool:
        """True if a constraint applies to the next token and determines the response's end."""
        return self.constraint is not None and self.constraint.holds

    @property
    def is_random(self) -> bool:
        """True if another seed may choose other tokens."""
        return not isinstance(self._draw, GreedyDraw)

    def reset(self) -> None:
        """Reset to the initial state: no tokens, and the same random numbers again."""
        for stage in self._stages():
            stage.reset()
        if self.constraint is not None:
            self.constraint.reset()
        self._drawn = None

    def clone(self) -> Sampler:
        """Return an independent sampler in the same state."""
        other = copy.copy(self)
        other._chain = [
            part.copy() if isinstance(part, SamplerStage) else part for part in self._chain
        ]
        other._draw = self._draw.copy()
        other.constraint = self.constraint and self.constraint.copy()
        return other

    def _start(self, logits: F32) -> Candidates:
        logits = np.asarray(logits, np.float32)
        if logits.shape != (self.n_vocab,):
            raise ModelError(f"logits must have shape ({self.n_vocab},), got {logits.shape}")
        c = Candidates(self._ids, logits)
        c = self._bias(c) if self._bias else c
        if self.is_random or self._chain:  # otherwise the draw checks all logits
            check(c.logits.max())
        return c

    def _filter(self, c: Candidates) -> Candidates:
        for part in self._chain:
            c = part(c)
        return self._draw(c)

    def _stages(self) -> Iterator[SamplerStage]:
        yield from (part for part in self._chain if isinstance(part, SamplerStage))
        yield self._draw


def _constrain(c: Candidates, constraint: Constraint) -> Candidates:
    if c.logits.max() > -np.inf:
        return c
    raise ConstraintEnded(
        "no token can be sampled: the constraint excludes every token", constraint.complete
    )


def _constraint(s: Setup) -> Constraint | None:
    """Return the constraint on the response that the parameters specify."""
    if not s.params.constraints:
        return None
    from llama_py.grammar.chosen import create_grammar  # slow to import
    from llama_py.sampler.grammar import ByGrammar

    grammar = create_grammar(s.params)
    return ByGrammar(grammar, s.tokenizer(grammar.kind)) if grammar else None


def _biases(s: Setup) -> dict[int, float]:
    """Return the bias of each token's logit; a text's bias applies to all of its tokens."""
    found: dict[int, float] = {}
    for what, bias in s.params.logit_bias.items():
        for id in _token_ids(what, s):
            if not 0 <= id < s.n_vocab:
                raise ModelError(
                    f"logit_bias: token must be in the vocabulary, 0..{s.n_vocab - 1}, got {id}"
                )
            found[id] = found.get(id, 0.0) + bias
    never = set(s.given.suppress_tokens) if s.given else set()
    if s.params.ignore_eos:
        never |= s.tokenizer("ignore_eos").eog
    return found | {id: -math.inf for id in never if id < s.n_vocab}


@lru_cache(4)
def _all_ids(n_vocab: int) -> NDArray[np.intp]:
    """Return all token ids, one array for all samplers."""
    ids = np.arange(n_vocab)
    ids.flags.writeable = False
    return ids


def _token_ids(what: int | str, s: Setup) -> list[int]:
    if isinstance(what, str):
        return s.tokenizer(f"logit_bias of {what!r}").tokenize(what, False, False)
    return [what]
