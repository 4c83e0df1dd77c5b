"""Probabilities of given texts: continuations of prompts, without generating any text.

Continuations share their prompt's keys and values in memory, or copies of its recurrent states. A
batch has the prompts of several tasks, and the next batch all their continuations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from ggml_py.errors import ContextError, ModelError
from llama_py.batch.prompts import Prompt, TooLong, check_tokens, decode_text, tokenize_prompt
from llama_py.context import Context
from llama_py.decoding.prefix_cache import PrefixCache
from llama_py.decoding.scores import Score, max_rows, score_alternatives, score_pending
from llama_py.decoding.sequences import Sequences
from llama_py.loading.model import LoadedModel
from llama_py.support.resource import Resource
from llama_py.text.generate import check_predicts
from llama_py.tokenizer import Tokenizer

N_COPIES = 16  # maximum number of continuations in a batch
N_GRAPHS = 16  # cached graphs: prompts and continuations differ in length
N_CTX_LEAST = 2048  # minimum cells of the context
Boundary = Literal["together", "apart"]


class ScoreTask(NamedTuple):
    """A prompt and its continuations, as token ids: at least one token each."""

    prompt: Sequence[int]
    continuations: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class TextScore:
    """Probability of a continuation.

    logprob    natural logarithm of the probability of its tokens after the prompt
    is_greedy  each token is the most likely one: greedy generation gives this text
    tokens     its tokens, with their log probabilities and the most likely tokens
    """

    logprob: float
    is_greedy: bool
    tokens: tuple[Score, ...]


def check_continuations(prompt: Sequence[int], continuations: Sequence[Sequence[int]]) -> None:
    """Raise ContextError for an empty prompt, no continuation, or an empty one."""
    if not len(prompt):
        raise ContextError(
            "the prompt is empty, so its continuations have no probability; pass at least one "
            "token, such as the model's BOS or EOS token"
        )
    if not len(continuations):
        raise ContextError("continuations is empty; pass at least one text")
    empty = next((i for i, ids in enumerate(continuations) if not len(ids)), None)
    if empty is not None:
        raise ContextError(
            f"continuation {empty} has no tokens after the prompt, so it has no probability; pass "
            "a text with at least one token"
        )


def tokenize_continuations(
    tokenizer: Tokenizer,
    prompt: Prompt,
    continuations: Sequence[Prompt],
    boundary: Boundary = "together",
) -> tuple[list[int], list[list[int]]]:
    """Tokenize a prompt and its continuations; ids are unchanged.

    "together" is the rule of evaluation harnesses (lm-evaluation-harness): white space at the end
    of the prompt moves to the continuations, and a continuation's tokens are the tokens of both
    texts after the number of tokens of the prompt. "apart" tokenizes each text separately, without
    BOS in continuations; so do token ids.

    Raises:
        ModelError: Another boundary, or a prompt or a continuation of another type.
        ContextError: An empty prompt, no continuations, or an empty one.
    """
    if boundary not in get_args(Boundary):
        raise ModelError(f"boundary must be one of {get_args(Boundary)}, got {boundary!r}")
    if isinstance(continuations, (str, bytes, bytearray)):
        raise ModelError(
            f"continuations must be a list of texts, got {type(continuations).__name__}; put the "
            "text into a list"
        )
    if boundary == "together" and isinstance(prompt, (str, bytes, bytearray)):
        ids, found = _tokenize_together(tokenizer, decode_text(prompt), continuations)
    else:
        ids = tokenize_prompt(tokenizer, prompt)
        found = [tokenize_prompt(tokenizer, text, False) for text in continuations]
    check_continuations(ids, found)
    return ids, found


def _tokenize_together(
    tokenizer: Tokenizer, prompt: str, continuations: Sequence[Prompt]
) -> tuple[list[int], list[list[int]]]:
    start = prompt.rstrip()
    space = prompt[len(start) :]
    ids = tokenizer.tokenize(start)
    found = []
    for i, text in enumerate(continuations):
        if isinstance(text, (str, bytes, bytearray)):
            whole = tokenizer.tokenize(prompt + decode_text(text))
            if len(text) and len(whole) <= len(ids):
                raise ContextError(
                    f"continuation {i} joins the prompt's tokens: both texts have {len(whole)} "
                    f"tokens, and the prompt {len(ids)}; use boundary='apart'"
                )
            found.append(whole[len(ids) :])
        elif space:
            raise ModelError(
                "a prompt that ends with white space cannot precede token ids at the boundary "
                "'together'; pass texts only, ids only, or boundary='apart'"
            )
        else:
            found.append(tokenize_prompt(tokenizer, text))
    return ids, found


class Scorer(Resource):
    """A context for scores, with the cached tokens of the last prompts."""

    def __init__(self, model: LoadedModel) -> None:
        """Create the context with the first scores."""
        self.model = model
        self._ctx: Context | None = None

    def score(
        self, prompt: Sequence[int], continuations: Sequence[Sequence[int]], n_top: int = 0
    ) -> list[TextScore]:
        """Score continuations of a prompt, given as ids; see `Model.score`."""
        check_continuations(prompt, continuations)
        n_vocab = self.model.hparams.n_vocab
        for ids in (prompt, *continuations):
            check_tokens(ids, n_vocab)
        if not 0 <= n_top <= n_vocab:
            raise ContextError(f"n_top must be in [0, {n_vocab}], got {n_top}")
        n = len(prompt) + max(map(len, continuations))
        if n > self.model.hparams.n_ctx_train:
            raise TooLong(n, self.model.hparams.n_ctx_train)
        n_copies = min(sum(len(ids) > 1 for ids in continuations), N_COPIES)
        n_cells = len(prompt) + n_copies * (n - len(prompt) - 1)
        ctx = self._context(n_cells, n, n_copies)
        [found] = score_tasks(ctx, [ScoreTask(prompt, continuations)], max(n_top, 1))
        return [_total(scores, n_top) for scores in found]

    def _context(self, n_cells: int, n_least: int, n_copies: int) -> Context:
        """Return the context, or a larger one with its cached tokens."""
        own, most = self._ctx, self.model.hparams.n_ctx_train
        n_ctx = min(max(N_CTX_LEAST, 2 ** (n_cells - 1).bit_length()), most)
        n_seq = 1 + (2 ** (n_copies - 1).bit_length() if n_copies else 0)
        if own is not None and own.n_ctx >= min(n_ctx, n_least) and own.cparams.n_seq_max >= n_seq:
            return own
        n_ctx = max(n_ctx, own.n_ctx if own else 0)
        n_seq = max(n_seq, own.cparams.n_seq_max if own else 0)
        made = Context(self.model, n_ctx=n_ctx, n_seq_max=n_seq, kv_unified=True)
        try:
            check_scores(made)
        except ContextError:
            made.close()
            raise
        made.runner.n_graphs = N_GRAPHS
        if own is not None:
            PrefixCache.for_context(made).transfer_from(PrefixCache.for_context(own))
            own.close()
        self._ctx = made
        return made

    def close(self) -> None:
        """Release the context's memory."""
        if self._ctx is not None:
            self._ctx.close()
            self._ctx = None


def score_tasks(
    ctx: Context, tasks: Iterable[ScoreTask], n_top: int = 0
) -> Iterator[list[tuple[Score, ...]]]:
    """Yield the scores of each task's continuations, in order.

    Tasks are computed together if their prompts fit a batch (`n_batch`), and all their texts the
    context and its sequences. Afterwards sequence 0 has a prompt, for which the prefix cache is
    used, and the others are empty.

    Args:
        ctx: A context with at least two sequences, unless all continuations have one token.
        tasks: Tasks; a group is read when all results before it were used.
        n_top: Number of most likely tokens for each token.

    Raises:
        ContextError: A text does not fit the context.
    """
    sequences = Sequences.for_context(ctx)
    for group in _group_tasks(ctx, tasks):
        yield from _score_group(sequences, group, n_top)


def _group_tasks(ctx: Context, tasks: Iterable[ScoreTask]) -> Iterator[list[ScoreTask]]:
    """Group consecutive tasks that fit the context, and have prompts that fit a batch."""
    limits = np.array([ctx.cparams.n_seq_max, ctx.n_ctx, ctx.cparams.n_batch])
    group, total = list[ScoreTask](), 0 * limits
    for task in tasks:
        rests, n = [len(ids) - 1 for ids in task.continuations if len(ids) > 1], len(task.prompt)
        needed = np.array([1 + len(rests), n + sum(rests), n])
        if group and (total + needed > limits).any():
            yield group
            group, total = [], 0 * limits
        group.append(task)
        total = total + needed
    if group:
        yield group


class _Rest(NamedTuple):
    """Continuation `at` of a task of a group; it has several tokens."""

    task: int
    at: int
    ids: Sequence[int]


def _score_group(
    sequences: Sequences, tasks: Sequence[ScoreTask], n_top: int
) -> list[list[tuple[Score, ...]]]:
    """Score tasks: one sequence per prompt, then one copy of it per continuation."""
    ctx, heads = sequences.ctx, range(len(tasks))
    try:
        first = _score_first(sequences, tasks, n_top)
        found = [[[one] for one in scores] for scores in first]
        rests = [
            _Rest(i, at, ids)
            for i, task in enumerate(tasks)
            for at, ids in enumerate(task.continuations)
            if len(ids) > 1
        ]
        for group in _group_rests(ctx, tasks, rests):
            for one, scores in zip(
                group, _score_copies(sequences, tasks, group, n_top), strict=True
            ):
                found[one.task][one.at] += scores
    finally:
        for seq_id in heads[1:]:
            ctx.memory.seq_rm(seq_id)
    return [[tuple(scores) for scores in texts] for texts in found]


def _score_first(
    sequences: Sequences, tasks: Sequence[ScoreTask], n_top: int
) -> list[tuple[Score, ...]]:
    """Compute the prompts, and score the first tokens of their continuations."""
    heads = range(len(tasks))
    try:
        for seq_id, task in enumerate(tasks):
            sequences.start(seq_id, task.prompt)
        sequences.advance(heads)
        return [
            score_alternatives(sequences.next_row(i), [ids[0] for ids in task.continuations], n_top)
            for i, task in enumerate(tasks)
        ]
    finally:
        for seq_id in heads:
            sequences.finish(seq_id, whole=False)


def _group_rests(
    ctx: Context, tasks: Sequence[ScoreTask], rests: Sequence[_Rest]
) -> Iterator[list[_Rest]]:
    """Group continuations that fit next to the prompts together, with their padding."""
    padded = not ctx.memory.allows_unequal_lengths
    if padded:  # similar lengths together
        rests = sorted(rests, key=lambda one: -len(one.ids))
    group: list[_Rest] = []
    most = ctx.cparams.n_seq_max - len(tasks)
    left = room = ctx.n_ctx - sum(len(task.prompt) for task in tasks)
    for one in rests:
        n = len((group[0] if padded and group else one).ids) - 1
        if group and (n > left or len(group) == most):
            yield group
            group, left, n = [], room, len(one.ids) - 1
        group.append(one)
        left -= n
    if group:
        yield group


def _score_copies(
    sequences: Sequences, tasks: Sequence[ScoreTask], rests: Sequence[_Rest], n_top: int
) -> list[list[Score]]:
    """Score the tokens of texts after their first token, with copies of their prompts' sequences.

    Recurrent states require ubatches with equal numbers of tokens per sequence: texts are padded
    with tokens at their ends, which do not change the scores before them.
    """
    memory, most = sequences.ctx.memory, max_rows(sequences.ctx.model.hparams.n_vocab)
    longest = 0 if memory.allows_unequal_lengths else max(len(one.ids) for one in rests)
    found: dict[int, list[Score]] = {len(tasks) + i: [] for i in range(len(rests))}
    tops = dict.fromkeys(found, n_top)
    try:
        for seq_id, one in zip(found, rests, strict=True):
            memory.seq_cp(one.task, seq_id)
            padding = [one.ids[-1]] * (longest - len(one.ids))
            before = tasks[one.task].prompt
            sequences.extend(seq_id, [*one.ids, *padding], before, drafts=False)
        while wanted := {s: n for s in found if (n := len(sequences.pending(s)) - 1)}:
            for seq_id, scores in score_pending(sequences, _limit_rows(wanted, most), tops).items():
                found[seq_id] += scores
    finally:
        for seq_id in found:
            sequences.finish(seq_id, whole=False)
            memory.seq_rm(seq_id)
    return [scores[: len(one.ids) - 1] for one, scores in zip(rests, found.values(), strict=True)]


def _limit_rows(wanted: dict[int, int], most: int) -> dict[int, int]:
    """Return the first `most` of the wanted tokens, by sequence."""
    found = {}
    for seq_id, n in wanted.items():
        if n := min(n, most):
            found[seq_id] = n
            most -= n
    return found


def _total(scores: Sequence[Score], n_top: int) -> TextScore:
    """Return the sum of scores, which have at least one most likely token each."""
    tokens = tuple(Score(one.token, one.logprob, one.top[:n_top]) for one in scores)
    return TextScore(
        sum(one.logprob or 0.0 for one in scores),
        all(one.token == one.top[0][0] for one in scores),
        tokens,
    )


def check_scores(ctx: Context) -> None:
    """Raise ContextError if the model has no probabilities of continuations."""
    check_predicts(ctx)
    if ctx.model.has_encoder or not ctx.memory.parts:
        raise ContextError(
            f"architecture {ctx.model.arch!r} does not continue a prompt token by token, so it "
            "cannot score continuations; use a decoder-only language model"
        )
