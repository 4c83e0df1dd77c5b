#!/usr/bin/env python3
"""Test that drafts do not change the distribution of sampled tokens; print a table.

    python -m dev.compare.judge_drafts                    # all draft methods, 100,000 tokens each
    python -m dev.compare.judge_drafts -n 5000 draft-mtp  # one method, fewer tokens

Tiny models continue fixed prompts at random: half of the tokens by `stream` (one sequence), half by
the server's engine (16 sequences). A pass of the model without drafts gives the exact distribution
of each token after the previous tokens. A chi-square test compares counts with that distribution.
It also compares each text with the text of the same seed without drafts.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from queue import SimpleQueue
from typing import Any

import numpy as np

from llama_py.context import Context
from llama_py.decoding.sequences import Sequences
from llama_py.model import Model
from llama_py.params import AnswerParams, SamplingParams
from llama_py.params.speculative import SpeculativeParams
from llama_py.sampler import Sampler
from llama_py.serving import Engine, Event, Request
from llama_py.text.generate import stream
from tests.support.live_models import EXACT, Arrays, made, model_of

ALPHABET = 7  # tokens that models prefer, so that they accept drafts often
LENGTH = 8  # tokens of a text
PROMPTS = ([2, 5, 1, 3, 2, 5, 4, 6, 2, 5], [0, 6, 1, 6, 1, 4])
SAMPLING: dict[str, Any] = {
    "temp": 0.7,
    "top_k": 4,
    "top_p": 0.95,
    "min_p": 0.05,
    "repeat_penalty": 1.2,
    "presence_penalty": 0.1,
    "repeat_last_n": 8,
    "logit_bias": dict.fromkeys(range(ALPHABET), 4.0),
}
HOW: dict[str, Any] = {**EXACT, "n_threads": 1, "n_threads_batch": 1}
LEAST = 5.0  # expected count above which a token is compared separately
SEQUENCES = 16
TEXTS = 400  # texts per path that are compared with texts without drafts
SECONDS = 300
LIMIT = 1e-9  # smaller eigenvalues of a covariance, relative to the largest, are rounding
BOUND = 1e-3
Text = tuple[int, ...]


@dataclass(frozen=True)
class Kind:
    """Draft method with its models and options.

    Attributes:
        target: The model, by its name in `dev.tiny_models`.
        draft: The draft model, if any.
        options: Other options of `SpeculativeParams`.
        n_texts: Texts per sequence before a restart, because the drafter drafts less with more
            context; 0: never restart.
    """

    target: str = "llama-dense"
    draft: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    n_texts: int = 0


KINDS = {
    "none": Kind(),
    "draft-simple": Kind(draft="llama-dense"),
    "draft-mtp": Kind("qwen35moe-mtp"),
    "draft-mtp (assistant)": Kind("gemma4-shared", "gemma4-assistant-dense"),
    "draft-eagle3": Kind("gpt-oss-moe", "eagle3-own"),
    "draft-dflash": Kind("qwen3-dense", "dflash-own"),
    "draft-dflash (pairs)": Kind("qwen3-dense", "dflash-pairs"),
    "draft-dspark": Kind(draft="dflash-markov"),
    "ngram-simple": Kind(options={"spec_ngram_simple_size_n": 1, "spec_ngram_simple_size_m": 3}),
    "ngram-map-k": Kind(
        options={"spec_ngram_map_k_size_n": 1, "spec_ngram_map_k_size_m": 3}, n_texts=2
    ),
    "ngram-map-k4v": Kind(
        options={"spec_ngram_map_k4v_size_n": 1, "spec_ngram_map_k4v_size_m": 3}, n_texts=2
    ),
    "ngram-mod": Kind(
        options={"spec_ngram_mod_n_match": 2, "spec_ngram_mod_n_min": 1, "spec_ngram_mod_n_max": 3}
    ),
    "ngram-cache": Kind(),
    "ngram-cache,draft-mtp": Kind("qwen3next-mtp"),
}


def prefer(arrays: Arrays) -> None:
    """Make a model's LM head prefer the first tokens."""
    if "d2t" in arrays:
        arrays["d2t"][...] = (np.arange(arrays["d2t"].size) % ALPHABET).reshape(arrays["d2t"].shape)
    head = "output.weight" if "output.weight" in arrays else "token_embd.weight"
    if head in arrays:
        arrays[head][:, :, ALPHABET:] = 0


@cache
def model(name: str, seed: int = 0) -> Model:
    """Create a tiny model that prefers the first tokens; a seed varies its weights."""
    metadata, arrays = made(name)
    prefer(arrays)
    rng = np.random.default_rng(seed)
    for key, a in arrays.items() if seed else ():
        if a.dtype == np.float32:
            arrays[key] = a * rng.normal(1, 0.2, a.shape).astype(np.float32)
    return model_of(metadata, arrays, "cpu", load_mtp="mtp" in name)


def spec(name: str) -> dict[str, Any]:
    """Return the options of `SpeculativeParams` of a draft method."""
    kind = KINDS[name]
    options = {"spec_type": name.partition(" ")[0], "spec_draft_adaptive": False, **kind.options}
    return {**options, "model_draft": model(kind.draft, 1)} if kind.draft else options


@dataclass
class Run:
    """Texts that one draft method generated.

    Attributes:
        texts: How often each text followed each prompt, by the prompt's number and the text.
        n_drafted: Tokens that were drafted.
        n_accepted: Drafted tokens that were accepted.
    """

    texts: Counter[tuple[int, Text]] = field(default_factory=Counter)
    n_drafted: int = 0
    n_accepted: int = 0


def parts(n: int, size: int) -> Iterator[range]:
    """Cut the numbers below n into ranges of a size; 0: a single range."""
    for first in range(0, n, size or n):
        yield range(first, min(first + (size or n), n))


def by_stream(name: str, n: int, seed: int) -> Run:
    """Continue the prompts n times, one after the other."""
    run = Run()
    for numbers in parts(n, KINDS[name].n_texts):
        _stream(name, numbers, seed, run)
    return run


def _stream(name: str, numbers: range, seed: int, run: Run) -> None:
    """Generate texts one after the other, in one context."""
    ctx = Context(model(KINDS[name].target), **HOW)
    for i in numbers:
        ctx.clear()
        sampler = Sampler(SamplingParams(**SAMPLING, seed=seed + i), ctx.model.hparams.n_vocab)
        at = i % len(PROMPTS)
        pieces = stream(ctx, PROMPTS[at], sampler=sampler, max_tokens=LENGTH, **spec(name))
        run.texts[at, tuple(p.token for p in pieces if p.token is not None)] += 1
    for s in Sequences.for_context(ctx).statistics.values():
        run.n_drafted += s.n_drafted
        run.n_accepted += s.n_accepted


def by_engine(name: str, n: int, seed: int) -> Run:
    """Continue the prompts n times, several sequences in parallel."""
    run = Run()
    for numbers in parts(n, KINDS[name].n_texts * SEQUENCES):
        _serve(name, numbers, seed, run)
    return run


def _serve(name: str, numbers: range, seed: int, run: Run) -> None:
    """Generate texts with one engine, several sequences in parallel."""
    sizes = {"n_ctx": 64 * SEQUENCES, "n_seq_max": SEQUENCES, "n_ubatch": 64, "n_rs_seq": 3}
    ended = SimpleQueue[None]()

    def ask(engine: Engine, i: int) -> None:
        at, tokens = i % len(PROMPTS), list[int]()

        def told(event: Event) -> None:
            if event.token is not None:
                tokens.append(event.token)
            if event.finish_reason is not None:
                run.texts[at, tuple(tokens)] += 1
                ended.put(None)

        p = AnswerParams(**SAMPLING, seed=seed + i, max_tokens=LENGTH)
        engine.submit(Request(prompt=PROMPTS[at], params=p), told)

    drafts = SpeculativeParams(**spec(name))
    how = {**HOW, **sizes, "speculative": drafts}
    with Engine(model(KINDS[name].target), **how) as engine:
        for i in numbers:
            if i - numbers[0] >= 2 * SEQUENCES:
                ended.get(timeout=SECONDS)
            ask(engine, i)
        for _ in range(min(len(numbers), 2 * SEQUENCES)):
            ended.get(timeout=SECONDS)
        total = engine.metrics().total
        run.n_drafted += total.n_drafted
        run.n_accepted += total.n_accepted


def n_other(name: str, n: int, seed: int) -> int:
    """Count texts that differ without drafts at the same seed, among n texts per path."""
    plain = f"none ({name})"
    KINDS[plain] = Kind(KINDS[name].target)
    try:
        return sum(
            (how(name, n, seed).texts - how(plain, n, seed).texts).total()
            for how in (by_stream, by_engine)
        )
    finally:
        del KINDS[plain]


class Exact:
    """Distributions of the next token, by a prompt's number and the tokens after the prompt."""

    def __init__(self, target: str) -> None:
        self.ctx = Context(model(target), **HOW)
        self._known: dict[tuple[int, Text], dict[int, float]] = {}

    def __call__(self, at: int, text: Text) -> list[dict[int, float]]:
        """Return the probabilities by token, of every token of a text."""
        keys = [(at, text[:i]) for i in range(len(text))]
        if keys[-1] not in self._known:
            self.ctx.clear()
            n, prompt = len(text), PROMPTS[at]
            rows = self.ctx.decode([*prompt, *text[:-1]], logits="all")[-n:]
            sampler = Sampler(SamplingParams(**SAMPLING), self.ctx.model.hparams.n_vocab)
            for id in prompt:
                sampler.accept(id)
            for key, row, id in zip(keys, rows, text, strict=True):
                c = sampler.candidates(row)
                shares = c.probabilities().astype(np.float64)
                found = zip(c.ids.tolist(), shares / shares.sum(), strict=True)
                self._known[key] = dict(sorted(found, key=lambda pair: -pair[1]))
                sampler.accept(id)
        return [self._known[key] for key in keys]


def p_value(texts: Mapping[tuple[int, Text], int], exact: Exact) -> float:
    """Return the probability of at least this difference under exact sampling.

    Tokens after the same text form a group. If the text is too rare, the group has the tokens
    of all such texts of a prompt with this length, counted by their rank.
    """
    seen: dict[tuple[int, Text], Counter[int]] = defaultdict(Counter)
    shares: dict[tuple[int, Text], dict[int, float]] = {}
    for (at, text), n in texts.items():
        for i, share in enumerate(exact(at, text)):
            seen[at, text[:i]][text[i]] += n
            shares[at, text[:i]] = share
    sums: dict[Any, list[Any]] = {}
    for (at, text), counts in seen.items():
        n, share = counts.total(), shares[at, text]
        if counts.keys() - share.keys():
            return 0.0  # a token that sampling never chooses
        p = np.zeros(SAMPLING["top_k"])
        p[: len(share)] = [*share.values()]
        off = -n * p
        off[: len(share)] += [counts[id] for id in share]
        group = (at, text if n * p[: len(share)].min() >= LEAST else len(text))
        one = sums.setdefault(group, [0.0, 0.0])
        one[0], one[1] = one[0] + off, one[1] + n * (np.diag(p) - np.outer(p, p))
    found = [
        (d @ np.linalg.pinv(v, LIMIT) @ d, np.linalg.matrix_rank(v, LIMIT * v.max()))
        for d, v in sums.values()
    ]
    statistic, df = (float(sum(part)) for part in zip(*found, strict=True))
    z = ((statistic / df) ** (1 / 3) - 1 + 2 / (9 * df)) / math.sqrt(2 / (9 * df))
    return math.erfc(z / math.sqrt(2)) / 2  # Wilson and Hilferty


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 if no p-value is below 1e-3."""
    p = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    p.add_argument("kinds", nargs="*", choices=[*KINDS, []], help="draft methods (default: all)")
    p.add_argument(
        "-n", type=int, default=100_000, help="tokens per method, half of the tokens by each path"
    )
    args = p.parse_args(argv)
    print("| draft method | tokens | drafted | accepted | p, `stream` | p, engine | other texts |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    worst, exact = 1.0, cache(Exact)
    for name in args.kinds or KINDS:
        n = -(-args.n // (2 * LENGTH))
        first = 2 * n * [*KINDS].index(name)
        runs = by_stream(name, n, first), by_engine(name, n, first + n)
        values = [p_value(run.texts, exact(KINDS[name].target)) for run in runs]
        worst = min(worst, *values)
        drafted, accepted = (
            sum(getattr(r, f"n_{what}") for r in runs) for what in ("drafted", "accepted")
        )
        cells = [f"{2 * n * LENGTH:,}", f"{drafted:,}", f"{accepted / max(drafted, 1):.1%}"]
        cells += [f"{value:.3f}" for value in values]
        n_texts = min(n, TEXTS)
        cells.append(f"{n_other(name, n_texts, first)} of {2 * n_texts}")
        print(f"| `{name}` | {' | '.join(cells)} |", flush=True)
    return int(worst < BOUND)


if __name__ == "__main__":
    sys.exit(main())
