"""Generation by diffusion: all of a response is masked, and step by step the most confident tokens
are unmasked (examples/diffusion/diffusion.cpp).

    for step in diffuse(model, ids, 64, DiffusionParams(steps=32), SamplingParams(temp=0)):
        print(step.done, model.tokenizer.detokenize(step.tokens[len(ids):]))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ggml_py.errors import ContextError
from llama_py.batch import F32
from llama_py.context import Context
from llama_py.loading.model import LoadedModel
from llama_py.params.diffusion import ALGORITHMS, EPS, STEPS, DiffusionParams
from llama_py.params.sampling import SamplingParams

F64 = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
SHIFT = "diffusion.shift_logits"


class Step(NamedTuple):
    """The text [length] after `done` of `total` steps; masked tokens are `mask`."""

    done: int
    total: int
    tokens: npt.NDArray[np.int32]
    mask: int


def diffuse(
    model: LoadedModel,
    prompt: Sequence[int],
    length: int,
    how: DiffusionParams,
    sampling: SamplingParams,
) -> Iterator[Step]:
    """Yield the text, prompt and response, before each step and at the end.

    length    tokens of both together
    sampling  uses temp (0: most likely), top_k, top_p and seed

    Raises ContextError if the model has no diffusion, or steps or blocks do not fit.
    """
    mask = _mask_token(model)
    if not 0 < len(prompt) < length:
        raise ContextError(
            f"a prompt of {len(prompt)} tokens does not fit in {length} tokens; use a shorter "
            "prompt, or more tokens (-n, -ub)"
        )
    spans, steps = _spans(how, len(prompt), length)
    tokens = np.full(length, mask, np.int32)
    tokens[: len(prompt)] = prompt
    rng = np.random.default_rng(sampling.seed if sampling.has_seed else None)
    done, total = 0, steps * len(spans)
    with Context(model, n_ctx=length, n_batch=length, n_ubatch=length) as ctx:
        for start, end in spans:
            n_masked = int((tokens[start:end] == mask).sum())
            for step in range(steps):
                masked = start + np.flatnonzero(tokens[start:end] == mask)
                if not masked.size:
                    break
                yield Step(done + step, total, tokens.copy(), mask)
                logits = _logits(ctx, tokens, masked, len(prompt), mask, how.cfg_scale)
                n = _count(how, step, steps, masked.size, n_masked)
                _unmask(tokens, masked, logits, n, how, sampling, rng)
            done += steps
    yield Step(total, total, tokens.copy(), mask)


def _mask_token(model: LoadedModel) -> int:
    if model.architecture.diffusion is None:
        raise ContextError(f"architecture {model.arch!r} is not a diffusion model; use generate")
    mask = model.tokenizer.special_ids.get(model.architecture.diffusion.mask)
    if mask is None:
        raise ContextError(
            "the model has no mask token; set tokenizer.ggml.mask_token_id (--override-kv)"
        )
    return mask


def _spans(how: DiffusionParams, n_prompt: int, length: int) -> tuple[list[tuple[int, int]], int]:
    """Return spans to unmask one after another, and the number of steps per span."""
    steps, block = how.steps or STEPS, how.block_length
    if how.eps and block:
        raise ContextError("set either --diffusion-eps or --diffusion-block-length")
    if not block:
        return [(0, length)], steps
    if length % block or steps % (length // block):
        raise ContextError(
            f"--diffusion-block-length must divide {length} tokens, and steps must be a multiple "
            f"of the number of blocks, got {block} and {steps}"
        )
    starts = range(n_prompt, length, block)
    return [(at, min(at + block, length)) for at in starts], steps // (length // block)


def _count(how: DiffusionParams, step: int, steps: int, n: int, n_masked: int) -> int:
    """Return how many of n masked tokens this step unmasks (calculate_transfer_count).

    n_masked  masked tokens at the start of the block
    """
    if how.block_length:
        return n_masked // steps + (step < n_masked % steps)
    if step == steps - 1:
        return n
    f32, eps = np.float32, np.float32(how.eps or EPS)
    t = f32(1) - f32(step) / f32(steps) * (f32(1) - eps)
    s = f32(1) - f32(step + 1) / f32(steps) * (f32(1) - eps)
    return int(f32(n) * (f32(1) - s / t))


def _logits(
    ctx: Context, tokens: npt.NDArray[np.int32], masked: Ints, n_prompt: int, mask: int, cfg: float
) -> F32:
    """Compute logits of the masked tokens, [n_masked, n_vocab]."""
    rules = ctx.model.architecture.diffusion
    assert rules is not None
    shifts = ctx.model.file.metadata.get(SHIFT, rules.shifts)
    rows = np.maximum(masked - 1, 0) if shifts else masked
    logits = ctx.decode(tokens, "all")[rows]
    if cfg > 0:
        without = tokens.copy()
        without[:n_prompt] = mask
        plain = ctx.decode(without, "all")[rows]
        logits = plain + np.float32(cfg + 1) * (logits - plain)
    return logits


def _unmask(
    tokens: npt.NDArray[np.int32],
    masked: Ints,
    logits: F32,
    n: int,
    how: DiffusionParams,
    sampling: SamplingParams,
    rng: np.random.Generator,
) -> None:
    """Replace n of the masked tokens by drawn tokens."""
    algorithm, x = ALGORITHMS[how.algorithm], logits.astype(np.float64)
    if how.add_gumbel_noise and sampling.temp > 0:
        x = x - sampling.temp * np.log(-np.log(np.maximum(rng.random(x.shape), 1e-20)))
    drawn, confidence = _draw(x, sampling, rng, algorithm)
    if algorithm == "origin":
        chosen = np.flatnonzero(rng.random(masked.size) < n / masked.size)
    else:
        if how.alg_temp > 0:  # the largest n with Gumbel noise are n draws without replacement
            confidence = confidence / how.alg_temp + rng.gumbel(size=confidence.shape)
        chosen = np.argsort(-confidence, kind="stable")[:n]
    tokens[masked[chosen]] = drawn[chosen]


def _draw(
    logits: F64, sampling: SamplingParams, rng: np.random.Generator, algorithm: str
) -> tuple[Ints, F64]:
    """Draw a token from each row [n, n_vocab]; return tokens and confidences, [n] each."""
    k = min(sampling.top_k, logits.shape[1]) if sampling.top_k > 0 else logits.shape[1]
    order = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    x = np.take_along_axis(logits, order, 1)
    if sampling.top_p < 1:
        before = np.cumsum(_softmax(x), axis=1) - _softmax(x)
        x = np.where((before < sampling.top_p) | (np.arange(k) == 0), x, -np.inf)
    p = _softmax(x / sampling.temp if sampling.temp > 0 else x)
    at = np.zeros(len(p), np.intp)
    if sampling.temp > 0:
        at = np.minimum((np.cumsum(p, axis=1) < rng.random((len(p), 1))).sum(1), k - 1)
    drawn = np.take_along_axis(order, at[:, None], 1)[:, 0]
    if algorithm == "entropy":
        return drawn, (p * np.log(p + 1e-10)).sum(1)
    if algorithm == "margin":
        return drawn, p[:, 0] - p[:, 1] if k > 1 else p[:, 0]
    if algorithm == "random":
        return drawn, rng.random(len(p))
    return drawn, np.take_along_axis(p, at[:, None], 1)[:, 0]


def _softmax(x: F64) -> F64:
    e = np.exp(x - x.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True), np.float64)
