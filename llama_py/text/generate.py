"""Text generation token by token, with timings."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Literal

from ggml_py._moved import Former
from ggml_py.errors import AnswerError, ContextError, ModelError
from ggml_py.machine.building import clock
from llama_py.batch import F32, Batch
from llama_py.batch.prompts import MixedPrompt, Prompt, is_mixed, n_cells, tokenize_prompt
from llama_py.context import Context
from llama_py.context.warmup import compile_kernels
from llama_py.decoding.keep import keep_rule
from llama_py.decoding.scores import token_logprobs
from llama_py.decoding.sequences import Sequences
from llama_py.decoding.speculator import drafting_options
from llama_py.params import GenerateParams, SamplingParams
from llama_py.params.choosers import Answers, Chooser, ConstrainedSampler
from llama_py.params.other_names import resolve_aliases
from llama_py.sampler.constraint import ConstraintEnded
from llama_py.support.signature import describe_options
from llama_py.text.text_stream import TextStream

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from llama_py.chat.arguments import Arguments
    from llama_py.chat.stream import AnswerDelta
    from llama_py.params.answer_options import StreamOptions
    from llama_py.tokenizer import Tokenizer

log = logging.getLogger("llama_py")

FinishReason = Literal["stop", "length", "eos", "grammar"]


class Greedy:
    """Always the most likely token. ModelError for NaN and +inf."""

    def sample(self, logits: F32) -> int:
        best = int(logits.argmax())  # the first NaN, if any
        if not isfinite(logits[best]):
            raise ModelError(
                f"logit of token {best} is {logits[best]}; check the model for NaN or overflow"
            )
        return best

    def accept(self, id: int) -> None:
        """Ignore the token: greedy choice does not depend on earlier tokens."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Piece of a response, with its progress.

    text           may be empty within a character, or within a possible stop string
    token          None if no token could be generated
    prompt_tokens, prompt_seconds   the prompt's
    gen_tokens, gen_seconds         the response's; without the caller's time and compilation
    finish_reason  on the last piece: stop string (or a complete grammar without an end token),
                   full context or max_tokens, the model's end token, or no token that the grammar
                   allows
    reasoning      reasoning, which is not in `text` (`Conversation`)
    tool_calls     tool calls (`Model.stream_chat`)
    n_discarded    tokens of the sequence that context shifts discarded
    logprob        log probability of the token before sampling, with `logprobs`
    top            the `logprobs` most likely tokens with their log probabilities
    error          on the last piece: violation of the part of the JSON schema that no grammar
                   enforces
    """

    text: str
    token: int | None
    prompt_tokens: int
    prompt_seconds: float
    gen_tokens: int
    gen_seconds: float
    finish_reason: FinishReason | None = None
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    reasoning: str = ""
    n_discarded: int = 0
    tool_calls: tuple[AnswerDelta, ...] = ()
    error: str = ""

    @property
    def prompt_rate(self) -> float:
        """Prompt tokens per second."""
        return self.prompt_tokens / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def gen_rate(self) -> float:
        """Generated tokens per second, without the first, which the prompt's step produces."""
        return max(self.gen_tokens - 1, 0) / self.gen_seconds if self.gen_seconds else 0.0

    thought = Former("reasoning")
    calls = Former("tool_calls")


Pieces = Generator[Piece, None, None]


@describe_options(GenerateParams)
def stream(ctx: Context, prompt: Prompt, **options: Unpack[StreamOptions]) -> Pieces:
    """Continue a sequence with a prompt and yield the response during generation.

    options are the fields of GenerateParams; without a sampler, the most likely token is chosen.
    An encoder-decoder encodes the prompt; its response is a separate text.

    The last token of the response is not in memory: begin the next prompt with that token.
    Raises ContextError if the prompt does not fit.
    """
    p = GenerateParams(**resolve_aliases(options))
    response, pieces = unenforced_schema(p.sampler), _stream(ctx, prompt, p)
    return pieces if response is None else _check(pieces, response)


def unenforced_schema(sampler: Chooser | None) -> Arguments | None:
    """Return the schema of a sampler's responses if no grammar enforces it fully; else None."""
    params = getattr(sampler, "params", None)
    if not isinstance(params, SamplingParams) or not params.constraints:
        return None
    from llama_py.chat.arguments import response_arguments

    response = response_arguments(params)
    return response if response is not None and response.left_out else None


def _check(pieces: Pieces, response: Arguments) -> Pieces:
    """Set the error of the last piece if the response violates its schema."""
    text = ""
    with closing(pieces):
        for piece in pieces:
            text += piece.text
            ends = piece.finish_reason is not None
            yield replace(piece, error=response.problem(text)) if ends else piece


def join_pieces(pieces: Iterator[Piece]) -> str:
    """Return the text of a response. Raises AnswerError if it violates its schema."""
    text = error = ""
    for piece in pieces:
        text, error = text + piece.text, piece.error
    if error:
        raise AnswerError(f"the response does not satisfy its JSON schema: {error}", text)
    return text


def check_predicts(ctx: Context) -> None:
    """Raise ContextError if the model gives scores of options instead of logits."""
    if ctx.model.hparams.decides:
        raise ContextError(
            f"architecture {ctx.model.arch!r} scores marked options, so it cannot generate text; "
            "use ctx.encode(Batch(tokens, marks=marks))"
        )


def _stream(ctx: Context, prompt: Prompt, p: GenerateParams) -> Pieces:
    check_predicts(ctx)
    if not ctx.memory.parts:
        raise ContextError(
            f"architecture {ctx.model.arch!r} has no KV cache or state, so it cannot generate "
            "text; use model.embed, or ctx.decode for a forward pass"
        )
    tokenizer = ctx.model.tokenizer
    ids = _prompt_ids(ctx, prompt, p.seq_id)
    choose = Choice(p, [*p.before, *ids])
    text = choose.text_stream(tokenizer)
    drafts = p.drafts
    if drafts and is_mixed(p.before, ids):
        raise ContextError(
            "draft models do not support prompts with images; generate without drafters"
        )
    sequences = Sequences.for_context(ctx, drafting_options(p) if drafts else None)
    sequences.keeps_rows = bool(p.logits_processors)  # processors may write to the rows, or decode
    n_prompt = len(ids) + ctx.memory.seq_pos_max(p.seq_id) + 1
    keep = keep_rule(ctx, p, n_prompt, is_mixed(ids, sequences.cache.tokens(p.seq_id)))
    n_discarded = 0
    try:
        for one in sequences.contexts if drafts else (ctx,):
            compile_kernels(one, len(ids), 1 + sequences.n_max if drafts else 1)
        start = clock()
        _read(sequences, _encode(ctx, ids, p.seq_id) if ctx.model.has_encoder else ids, p)
        piece = Piece("", None, n_cells(ids), clock() - start, 0, 0.0)
        room = ctx.cparams.n_ctx_seq - ctx.memory.seq_pos_max(p.seq_id)  # the last needs no cell
        room -= ids.n_beyond if isinstance(ids, MixedPrompt) else 0
        if keep is not None:
            room = sys.maxsize
        n_max = room if p.max_tokens < 0 else min(p.max_tokens, room)
        if n_max < 1:
            yield replace(piece, finish_reason="length")
        for n in range(1, n_max + 1):
            start = clock()
            try:
                if not sequences.has_rows(p.seq_id):
                    if keep is not None:
                        n_discarded += sequences.make_room(p.seq_id, keep)
                    if drafts:
                        sequences.limit(p.seq_id, n_max - n + 1, choose.count_allowed)
                    sequences.advance([p.seq_id])
                id, logits = sequences.take(p.seq_id, choose)
            except ConstraintEnded as e:
                yield _end_piece(piece, text.flush(), e)
                return
            spent = piece.gen_seconds + clock() - start
            shown, reason = push_token(text, id, tokenizer.is_eog(id), n == n_max)
            logprob, top = token_logprobs(logits, id, p.logprobs)
            piece = Piece(
                shown,
                id,
                piece.prompt_tokens,
                piece.prompt_seconds,
                n,
                spent,
                reason,
                logprob,
                top,
                n_discarded=n_discarded,
            )
            yield piece
            if reason is not None:
                return
    finally:
        sequences.finish(p.seq_id)  # the memory then has all but the last token


def _read(sequences: Sequences, ids: Sequence[int], p: GenerateParams) -> None:
    """Continue a sequence with a prompt."""
    if isinstance(ids, MixedPrompt):
        sequences.read_mixed(p.seq_id, ids)
    else:
        sequences.extend(p.seq_id, ids, p.before, p.drafts)
        sequences.advance([p.seq_id])


def _encode(ctx: Context, ids: Sequence[int], seq_id: int) -> list[int]:
    """Encode a text, and return the tokens that the decoder starts with."""
    ctx.memory.seq_rm(seq_id)
    ctx.encode(Batch(ids, seq_ids=[(seq_id,)] * len(ids)))
    return [ctx.model.architecture.start_token]


class Choice:
    """Sampler and logit processors, which receive every token."""

    def __init__(self, p: GenerateParams, prompt: Sequence[int]) -> None:
        self.params = p
        self.sampler: Chooser = p.sampler or Greedy()
        self.processors = p.logits_processors
        self.ids = [id for id in prompt if id >= 0]  # negative ids are image positions
        self.answers = self.sampler if isinstance(self.sampler, Answers) else None
        if self.answers is not None:
            self.answers.begin(p.thinking)
        for id in self.ids:
            self.sampler.accept(id)

    @property
    def count_allowed(self) -> Callable[[Sequence[int]], int] | None:
        """Function that returns how many tokens of a draft the sampler allows."""
        return None if self.answers is None else self.answers.n_allowed

    def text_stream(self, tokenizer: Tokenizer) -> TextStream:
        """Return the text of the response's tokens."""
        p = self.params
        return TextStream(
            tokenizer,
            p.stop,
            p.special,
            p.preserved_tokens,
            p.turn_ends,
            lambda: isinstance(self.sampler, ConstrainedSampler) and self.sampler.is_constrained,
        )

    def __call__(self, logits: F32) -> int:
        for process in self.processors:
            logits = process(self.ids, logits)
        id = self.sampler.sample(logits)
        self.sampler.accept(id)
        self.ids.append(id)
        return id


def _end_piece(piece: Piece, text: str, e: ConstraintEnded) -> Piece:
    """Return the last piece of a response after its constraint has ended."""
    if not e.complete:
        log.warning("the grammar allows no token here, so the response is incomplete")
    reason: FinishReason = "stop" if e.complete else "grammar"
    return replace(piece, text=text, token=None, finish_reason=reason)


def push_token(
    text: TextStream, id: int, ends: bool, last: bool
) -> tuple[str, FinishReason | None]:
    """Return the text that is final after a token, and the reason if it is the last one."""
    shown = "" if ends else text.push(id)
    if text.stopped is None and (ends or last):
        shown += text.flush()
    if text.stopped is not None:
        return shown, "stop"
    return shown, "eos" if ends else "length" if last else None


def _prompt_ids(ctx: Context, prompt: Prompt, seq_id: int) -> list[int]:
    return tokenize_prompt(ctx.model.tokenizer, prompt, ctx.memory.seq_pos_max(seq_id) < 0)
