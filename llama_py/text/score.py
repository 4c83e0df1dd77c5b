"""Probabilities of given texts: continuations of a prompt, without generating any text.

Continuations share the prompt's keys and values in memory, or copies of its recurrent states, and
are computed together in one batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

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
        sequences = Sequences.for_context(self._context(n_cells, n, n_copies))
        found = score(sequences, prompt, continuations, max(n_top, 1))
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
            _check_scores(made)
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


def score(
    sequences: Sequences,
    prompt: Sequence[int],
    continuations: Sequence[Sequence[int]],
    n_top: int = 0,
) -> list[tuple[Score, ...]]:
    """Score continuations with sequence 0, which keeps the prompt, and copies in the others."""
    sequences.start(0, prompt)
    try:
        sequences.advance([0])
        first = score_alternatives(sequences.next_row(0), [ids[0] for ids in continuations], n_top)
    finally:
        sequences.finish(0, whole=False)
    found = [[one] for one in first]
    rests = [i for i, ids in enumerate(continuations) if len(ids) > 1]
    for group in _groups(sequences.ctx, len(prompt), rests, continuations):
        texts = [continuations[i] for i in group]
        for i, scores in zip(group, _score_copies(sequences, prompt, texts, n_top), strict=True):
            found[i] += scores
    return [tuple(scores) for scores in found]


def _groups(
    ctx: Context, n_prompt: int, rests: Sequence[int], continuations: Sequence[Sequence[int]]
) -> Iterator[list[int]]:
    """Group continuations that fit into the context together, with their padding."""
    padded = not ctx.memory.allows_unequal_lengths
    if padded:  # similar lengths together
        rests = sorted(rests, key=lambda i: -len(continuations[i]))
    group: list[int] = []
    left = room = ctx.n_ctx - n_prompt
    for i in rests:
        n = len(continuations[group[0] if padded and group else i]) - 1
        if group and (n > left or len(group) == ctx.cparams.n_seq_max - 1):
            yield group
            group, left, n = [], room, len(continuations[i]) - 1
        group.append(i)
        left -= n
    if group:
        yield group


def _score_copies(
    sequences: Sequences, prompt: Sequence[int], texts: Sequence[Sequence[int]], n_top: int
) -> list[list[Score]]:
    """Score the tokens of texts after their first token, with copies of sequence 0.

    Recurrent states require ubatches with equal numbers of tokens per sequence: texts are padded
    with tokens at their ends, which do not change the scores before them.
    """
    memory, most = sequences.ctx.memory, max_rows(sequences.ctx.model.hparams.n_vocab)
    longest = 0 if memory.allows_unequal_lengths else max(map(len, texts))
    found: dict[int, list[Score]] = {seq_id: [] for seq_id in range(1, len(texts) + 1)}
    tops = dict.fromkeys(found, n_top)
    try:
        for seq_id, ids in zip(found, texts, strict=True):
            memory.seq_cp(0, seq_id)
            padding = [ids[-1]] * (longest - len(ids))
            sequences.extend(seq_id, [*ids, *padding], prompt, drafts=False)
        while wanted := {s: n for s in found if (n := len(sequences.pending(s)) - 1)}:
            for seq_id, scores in score_pending(sequences, _limit_rows(wanted, most), tops).items():
                found[seq_id] += scores
    finally:
        for seq_id in found:
            sequences.finish(seq_id, whole=False)
            memory.seq_rm(seq_id)
    return [scores[: len(ids) - 1] for ids, scores in zip(texts, found.values(), strict=True)]


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


def _check_scores(ctx: Context) -> None:
    """Raise ContextError if the model has no probabilities of continuations."""
    check_predicts(ctx)
    if ctx.model.has_encoder or not ctx.memory.parts:
        raise ContextError(
            f"architecture {ctx.model.arch!r} does not continue a prompt token by token, so it "
            "cannot score continuations; use a decoder-only language model"
        )
