"""Training of a control vector from pairs of prompts (llama.cpp: tools/cvector-generator)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ggml_py.errors import ContextError
from llama_py.batch.prompts import Prompt
from llama_py.context import Context
from llama_py.loading.model import LoadedModel
from llama_py.params import Progress
from llama_py.steering.reduce import METHODS
from llama_py.steering.vector import ControlVector

Rows = npt.NDArray[np.float32]
Pairs = Sequence[tuple[Prompt, Prompt]]
SAME = 1e-6  # maximum difference of rows in the common beginning of two prompts
N_CTX_LEAST = 64


def train(
    model: LoadedModel | Context,
    pairs: Pairs,
    method: str = "pca",
    tokens: str = "all",
    progress: Progress | None = None,
) -> ControlVector:
    """Return the direction from the second prompts to the first, for each layer.

    Both prompts of a pair are run, the shorter one padded with spaces at its end. The direction
    of layer N uses the differences in its input, the result of layer N - 1.

    model   model, or a context, which is cleared
    pairs   of texts, or of token ids
    method  "pca" or "mean", see llama_py.steering.reduce; directions have the length 1
    tokens  "all": a difference for each token; "last": of the last tokens only, and no spaces
    progress  called with (finished pairs, all pairs, "")

    Raises ContextError for pairs that do not differ, or prompts that do not fit.
    """
    _check(pairs, method, tokens)
    own, loaded = (model, model.model) if isinstance(model, Context) else (None, model)
    encoded = [_encode_pair(loaded, pair, tokens == "all") for pair in pairs]
    ctx = own or Context(loaded, n_ctx=max(count_longest_prompt(loaded, pairs), N_CTX_LEAST))
    try:
        differences = _differences(ctx, encoded, tokens, progress)
    finally:
        ctx.clear()
        if own is None:
            ctx.close()
    reduce = METHODS[method]
    return ControlVector(np.array([reduce(rows) for rows in differences], np.float32), loaded.arch)


def count_longest_prompt(model: LoadedModel, pairs: Pairs) -> int:
    """Return the number of tokens of the longest prompt."""
    return max(len(_ids(model, prompt)) for pair in pairs for prompt in pair)


def _ids(model: LoadedModel, prompt: Prompt) -> list[int]:
    return model.tokenize(prompt) if isinstance(prompt, (str, bytes)) else list(prompt)


def _check(pairs: Pairs, method: str, tokens: str) -> None:
    if not pairs:
        raise ContextError("no pairs of prompts to train with; pass at least one")
    if method not in METHODS:
        raise ContextError(f"unknown method {method!r}; known: {', '.join(METHODS)}")
    if tokens not in ("all", "last"):
        raise ContextError(f"tokens must be 'all' or 'last', got {tokens!r}")


def _encode_pair(
    model: LoadedModel, pair: tuple[Prompt, Prompt], pad: bool
) -> tuple[list[int], list[int]]:
    """Return the tokens of both prompts, the shorter one padded if `pad`."""
    a, b = (_ids(model, prompt) for prompt in pair)
    if pad and len(a) != len(b):
        space = model.tokenize(" ", add_special=False, parse_special=False)[-1:]
        n = max(len(a), len(b))
        a, b = (ids + space * (n - len(ids)) for ids in (a, b))
    return a, b


def _differences(
    ctx: Context,
    encoded: Sequence[tuple[list[int], list[int]]],
    tokens: str,
    progress: Progress | None,
) -> list[Rows]:
    """Return differences of each layer but the first. [n, n_embd]"""
    points = [f"blocks.{il}.hook_resid_pre" for il in range(1, ctx.model.hparams.n_layer)]
    if not points:
        raise ContextError("control vectors need a model of at least two layers, got one")
    found: list[list[Rows]] = [[] for _ in points]
    with ctx.capture(*points) as values:
        for i, both in enumerate(encoded):
            if progress is not None:
                progress(i, len(encoded), "")
            read = []
            for ids in both:
                values.clear()
                ctx.clear()
                ctx.decode(ids)
                read.append([np.concatenate(values.history(point)) for point in points])
            for rows, a, b in zip(found, *read, strict=True):
                rows.append(_subtract_rows(a, b, tokens))
    if progress is not None:
        progress(len(encoded), len(encoded), "")
    layers = [np.concatenate(rows) for rows in found]
    for point, rows in zip(points, layers, strict=True):
        if not len(rows):
            raise ContextError(
                f"the prompts of all pairs have the same activations at {point}; use prompts "
                "that differ"
            )
    return layers


def _subtract_rows(a: Rows, b: Rows, tokens: str) -> Rows:
    """Return differences of the rows that differ between two prompts."""
    if a.ndim != 2:
        raise ContextError(
            f"the residual stream of this model must have shape [n_tokens, n_embd], got {a.shape}"
        )
    rows = a[-1:] - b[-1:] if tokens == "last" else a - b
    changed: Rows = rows[np.abs(rows).max(axis=1) > SAME]
    return changed
