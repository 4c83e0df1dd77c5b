"""Requests of lm-evaluation-harness, computed by an engine: log probabilities of continuations and
of whole texts, and generated texts.

Tokens, windows and limits are the same as in the harness's class for transformers
(lm_eval/models/huggingface.py:HFLM). This module does not import the harness.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from ggml_py.errors import ContextError, ModelError
from llama_py import Model
from llama_py.memory.specs import KVCacheSpec
from llama_py.params import AnswerParams, ContextParams
from llama_py.serving import Engine, Event, Request
from llama_py.serving.pending_scores import Scores
from llama_py.support.resource import Resource
from llama_py_tools.measure.choices import limit_sequences, memory_specs

log = logging.getLogger("llama_py")

N_CTX_LEAST, N_CTX_STEP = 4096, 1024  # cells of the context
N_SCORED, N_TEXTS = 64, 16  # continuations and generated texts that are computed in parallel
N_AHEAD = 4  # submitted requests per sequence, so that a sequence never waits for one
MAX_QUEUE = 1 << 20  # a prompt may have any number of continuations

# Options of generated texts by the harness's names; it passes them to transformers or vLLM.
_SAMPLING = {
    "temperature": "temp", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p",
    "typical_p": "typical_p", "repetition_penalty": "repeat_penalty",
    "presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty",
    "seed": "seed",
}  # fmt: skip
_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")

Pair = tuple[list[int], list[int]]
LogLikelihood = tuple[float, bool]
F = TypeVar("F")
T = TypeVar("T")
Report = Callable[[int, Any], None]


@dataclass(frozen=True, kw_only=True)
class EvaluationParams:
    """Options of an evaluation.

    Attributes:
        max_length: Maximum tokens of a prompt with its continuation; None: the training context.
        max_gen_toks: Generated tokens of requests without a limit.
        add_bos_token: Whether a prompt begins with BOS; None: as the file specifies.
        prefix_token_id: Token before an empty prompt; None: BOS, or EOS without BOS.
        think_end_token: Text at the end of the model's reasoning, which is removed.
        enable_thinking: Variable of the chat template; None: the template's default.
        seed: Seed of the first generated text; each further text adds 1.
    """

    max_length: int | None = None
    max_gen_toks: int = 256
    add_bos_token: bool | None = None
    prefix_token_id: int | None = None
    think_end_token: str = ""
    enable_thinking: bool | None = None
    seed: int = 1234


class Evaluator(Resource):
    """A model that answers the requests of an evaluation, several in each batch.

    Attributes:
        model: The loaded model.
        max_length: Maximum tokens of a prompt with its continuation.
        prefix_id: Token before an empty prompt.
    """

    def __init__(
        self,
        model: Model,
        params: EvaluationParams | None = None,
        n_seq_max: int | None = None,
        **options: Any,
    ) -> None:
        """Create the evaluator; its context is created for the longest of the first requests.

        Args:
            model: Model to evaluate; the caller closes it.
            params: Options of the evaluation.
            n_seq_max: Sequences computed in parallel; None: 64 for scores, fewer for large
                recurrent states, and 16 for texts.
            options: Other fields of ContextParams.

        Raises:
            ModelError: The model has no BOS or EOS token, and `prefix_token_id` is not set; or
                `max_length` is less than 2.
            TypeError: Unknown options.
        """
        self.model, self.params = model, params or EvaluationParams()
        self.max_length = self.params.max_length or model.hparams.n_ctx_train
        if self.max_length < 2:
            raise ModelError(f"max_length must be at least 2, got {self.max_length}")
        # No request continues another, and common beginnings are in the cells of others.
        plain = all(isinstance(s, KVCacheSpec) and not s.window for s in memory_specs(model))
        self._options = {"kv_unified": True, "cache_ram": 0 if plain else None, **options}
        ContextParams(**self._options)  # raises for unknown names before the first request
        self._n_scored = n_seq_max or limit_sequences(model, N_SCORED)
        self._n_texts = n_seq_max or N_TEXTS
        self._engine: Engine | None = None
        t, given = model.tokenizer, self.params.prefix_token_id
        prefix = next((id for id in (given, t.bos, t.eos) if id is not None), None)
        if prefix is None:
            raise ModelError("the model has no BOS or EOS token; set prefix_token_id to a token id")
        self.prefix_id = prefix
        self._prefix_text = t.token_to_piece(prefix, special=True).decode("utf-8", "replace")

    def close(self) -> None:
        """Release the context's memory; the model remains open."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def encode(self, text: str, add_special: bool | None = None) -> list[int]:
        """Tokenize a text, with special tokens.

        By default the text gets BOS as `add_bos_token` specifies, unless it begins with the text of
        that token, like the result of a chat template.
        """
        if add_special is None:
            add_special = self.params.add_bos_token
            if self._prefix_text and text.startswith(self._prefix_text):
                add_special = False
        t = self.model.tokenizer
        ids = t.tokenize(text, add_special=add_special is not False)
        if add_special and not t.add_bos and t.bos is not None:
            ids.insert(0, t.bos)
        return ids

    def encode_pair(self, context: str, continuation: str) -> Pair:
        """Tokenize a prompt and its continuation.

        White space at the end of the prompt moves to the continuation. The continuation has the
        tokens of both texts after the number of tokens of the prompt.
        """
        if not context:
            ids = self.encode(continuation, add_special=False)
            return (ids[:1], ids[1:]) if ids[:1] == [self.prefix_id] else ([self.prefix_id], ids)
        start = context.rstrip()
        whole, ids = self.encode(context + continuation), self.encode(start)
        return (ids, whole[len(ids) :]) if ids else ([self.prefix_id], whole)

    def score_pairs(
        self, pairs: Sequence[tuple[str, str]], report: Report | None = None
    ) -> list[LogLikelihood]:
        """Return the log probability of each continuation of a prompt, and whether greedy
        generation gives this continuation.

        Args:
            pairs: Prompt and continuation of each request.
            report: Called with index and result of each completed request.

        Raises:
            ContextError: A continuation has no tokens, or more than `max_length`.
        """
        encoded = [self._truncate(*self.encode_pair(*pair)) for pair in pairs]
        return self._score(encoded, report or _ignore)

    def score_texts(self, texts: Sequence[str], report: Report | None = None) -> list[float]:
        """Return the log probability of each text after the prefix token.

        A text longer than `max_length` is split into windows. Each token is scored once; the last
        window overlaps the one before it.
        """
        tokens = [self.encode(text) for text in texts]
        windows = [list(split_windows(ids, self.prefix_id, self.max_length)) for ids in tokens]
        owners = [i for i, own in enumerate(windows) for _ in own]
        totals, left = [0.0] * len(texts), [len(own) for own in windows]

        def add(at: int, result: LogLikelihood) -> None:
            text = owners[at]
            totals[text] += result[0]
            left[text] -= 1
            if report is not None and not left[text]:
                report(text, totals[text])

        self._score([pair for own in windows for pair in own], add)
        return totals

    def generate(
        self, requests: Sequence[tuple[str, Mapping[str, Any]]], report: Report | None = None
    ) -> list[str]:
        """Return the text that follows each prompt, without its stop string.

        Args:
            requests: Prompt and options of each request, by the harness's names: `until`,
                `max_gen_toks`, `do_sample`, `temperature`, `top_p` and others. Unknown options are
                ignored with a warning. Without `do_sample` and `temperature`, generation is greedy.
            report: Called with index and result of each completed request.

        Raises:
            ContextError: `max_gen_toks` is not less than `max_length`.
        """
        unknown = {name for _, how in requests for name in how} - _KNOWN
        if unknown:
            log.warning(
                "generation options %s are unknown and ignored; known: %s",
                ", ".join(sorted(unknown)),
                ", ".join(sorted(_KNOWN)),
            )
        made = [self._request(i, *one) for i, one in enumerate(requests)]
        longest = max((len(r.prompt) + r.params.max_tokens for r in made), default=0)

        def submit() -> Iterator[tuple[list[int], Future[str]]]:
            engine = self._open(longest, self._n_texts)
            for i in sorted(range(len(made)), key=lambda i: list(made[i].prompt)):
                yield [i], _submit(engine, made[i])

        end = self.params.think_end_token

        def read(text: str) -> list[str]:
            return [text.rpartition(end)[2].lstrip() if end in text else text] if end else [text]

        return self._collect(len(made), self._n_texts, submit(), read, report or _ignore)

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True
    ) -> str:
        """Return the prompt of a conversation by the model's chat template.

        Without `add_generation_prompt`, the prompt ends with the last message's content, which the
        response continues.
        """
        thinking = self.params.enable_thinking
        variables: dict[str, Any] = {} if thinking is None else {"enable_thinking": thinking}
        given = [dict(message) for message in messages]
        text = self.model.apply_chat_template(
            given, add_generation_prompt=add_generation_prompt, **variables
        )
        if add_generation_prompt or not messages:
            return text
        last = str(messages[-1]["content"])
        before, found, _ = text.rpartition(last.strip())
        spaces = last[len(last.rstrip()) :]
        return before + found + (spaces if text[len(before + found) :].startswith(spaces) else "")

    def _truncate(self, context: list[int], continuation: list[int]) -> Pair:
        """Remove tokens from the start of a prompt that is too long for its continuation."""
        n = len(continuation)
        if not 0 < n <= self.max_length:
            raise ContextError(
                f"a continuation must have 1 to {self.max_length} tokens, got {n}; use a larger "
                "max_length"
            )
        return context[-(self.max_length + 1 - n) :], continuation

    def _score(self, pairs: Sequence[Pair], report: Report) -> list[LogLikelihood]:
        """Score pairs of tokens: prompts that begin alike follow each other, and the continuations
        of a prompt are computed together."""
        groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for i, (context, _) in enumerate(pairs):
            groups[tuple(context)].append(i)
        longest = max((len(context) + len(more) for context, more in pairs), default=0)

        def submit() -> Iterator[tuple[list[int], Future[Scores]]]:
            engine = self._open(longest, self._n_scored)
            for context in sorted(groups):
                own = groups[context]
                yield own, engine.score(context, [pairs[i][1] for i in own], n_top=1)

        return self._collect(len(pairs), self._n_scored, submit(), _sums, report)

    def _collect(
        self,
        n: int,
        n_seq_max: int,
        submitted: Iterator[tuple[list[int], Future[F]]],
        read: Callable[[F], list[T]],
        report: Report,
    ) -> list[T]:
        """Submit requests a few ahead of their results. -> results in the order of requests"""
        found: dict[int, T] = {}
        pending: deque[tuple[list[int], Future[F]]] = deque()
        n_ahead, n_waiting = N_AHEAD * n_seq_max, 0

        def take() -> int:
            own, future = pending.popleft()
            for i, one in zip(own, read(future.result()), strict=True):
                found[i] = one
                report(i, one)
            return len(own)

        for own, future in submitted if n else ():
            pending.append((own, future))
            n_waiting += len(own)
            while n_waiting > n_ahead:
                n_waiting -= take()
        while pending:
            take()
        return [found[i] for i in range(n)]

    def _open(self, longest: int, n_seq_max: int) -> Engine:
        """Return the engine, or another one if the longest request or the sequences need it."""
        own = self._engine
        if own is not None and own.n_ctx >= longest and own.params.n_seq_max == n_seq_max:
            return own
        self.close()
        n_ctx = max(N_CTX_LEAST, -(-longest // N_CTX_STEP) * N_CTX_STEP)
        least = {"max_queue": MAX_QUEUE, "n_ctx": n_ctx, "n_seq_max": n_seq_max}
        options: dict[str, Any] = {**least, **self._options}
        self._engine = Engine(self.model, **options)
        return self._engine

    def _request(self, at: int, context: str, how: Mapping[str, Any]) -> Request:
        """Return the engine's request for a generated text."""
        lengths = (how[name] for name in _LENGTHS if how.get(name) is not None)
        n = int(next(lengths, self.params.max_gen_toks))
        if not 0 < n < self.max_length:
            raise ContextError(
                f"max_gen_toks must be in [1, {self.max_length}), got {n}; use a larger max_length"
            )
        ids = self.encode(context)[n - self.max_length :] or [self.prefix_id]
        given = {_SAMPLING[k]: v for k, v in how.items() if k in _SAMPLING and v is not None}
        if how.get("do_sample") is False or "temp" not in given:
            given["temp"] = 0.0
        until = how.get("until") or ()
        stop = [text for text in ([until] if isinstance(until, str) else until) if text]
        # Without this, the text would not have the stop strings that are special tokens.
        special = [self.model.tokenizer.tokenize(text, add_special=False) for text in stop]
        params = AnswerParams(
            max_tokens=n,
            stop=stop,
            preserved_tokens=[one[0] for one in special if len(one) == 1],
            repeat_last_n=self.max_length,
            **{"seed": self.params.seed + at, "top_k": 0, "top_p": 1.0, "min_p": 0.0, **given},
        )
        return Request(prompt=ids, params=params)


_KNOWN = {*_SAMPLING, *_LENGTHS, "until", "do_sample"}


def split_windows(ids: Sequence[int], prefix: int, n: int) -> Iterator[Pair]:
    """Yield prompts and continuations that score each token once, in at most n + 1 tokens.

    The first prompt is the prefix token. All others have at least one token, and the last one has
    all that fit.
    """
    if ids:
        yield [prefix], list(ids[:n])
    for start in range(n, len(ids), n):
        end = min(start + n, len(ids))
        yield list(ids[end - n - 1 : start]), list(ids[start:end])


def _submit(engine: Engine, request: Request) -> Future[str]:
    """Submit a request. -> a future of its text"""
    future: Future[str] = Future()
    parts: list[str] = []

    def receive(event: Event) -> None:
        parts.append(event.text)
        if event.error is not None:
            future.set_exception(event.error)
        elif event.finish_reason is not None:
            future.set_result("".join(parts))

    engine.submit(request, receive)
    return future


def _sums(scores: Scores) -> list[LogLikelihood]:
    return [
        (
            sum(one.logprob or 0.0 for one in tokens),
            all(one.token == one.top[0][0] for one in tokens),
        )
        for tokens in scores
    ]


def _ignore(at: int, result: Any) -> None:
    pass
