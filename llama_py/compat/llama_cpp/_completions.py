"""Completions of prompts, in the form of the OpenAI API."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ggml_py.errors import ContextError
from llama_py.batch.prompts import decode_text
from llama_py.compat.llama_cpp._arguments import (
    CompletionOptions,
    ResponseOptions,
    StoppingCriteria,
)
from llama_py.compat.llama_cpp._engine import LlamaEngine
from llama_py.compat.llama_cpp._shapes import (
    Body,
    Logprobs,
    ResponseFields,
    count_usage,
    finish_reason,
)
from llama_py.compat.llama_cpp.llama_cache import BaseLlamaCache, longest_token_prefix
from llama_py.decoding.scores import token_logprobs
from llama_py.params import AnswerParams
from llama_py.support.signature import describe
from llama_py.text.generate import Piece, Pieces
from llama_py.text.infill import infill_ids

_INFILL = {"fim_pre", "fim_suf", "fim_mid"}


class LlamaCompletions(LlamaEngine):
    """Completions with stop texts, log probabilities, infill, and a cache of states."""

    cache: BaseLlamaCache | None = None

    def set_cache(self, cache: BaseLlamaCache | None) -> None:
        """Set the cache of states between completions; None: tokens in memory only."""
        self.cache = cache

    def __call__(self, prompt: str, **options: Any) -> Any:
        """Complete a prompt; see `create_completion`."""
        return self.create_completion(prompt, **options)

    def create_completion(self, prompt: str | Sequence[int], **options: Any) -> Any:
        """Return a completion as a dictionary, or with `stream` an iterator of chunks.

        options are the fields of CompletionOptions. ValueError if the prompt fills the context, or
        with `echo` and `logprobs` without `logits_all`.
        """
        o = CompletionOptions(**options)
        ids = self._prompt_ids(prompt, o.suffix)
        self.check_length(len(ids))
        p = self.response_params(o, o.temperature, o.max_tokens, len(ids), logprobs=o.logprobs)
        if o.echo and o.logprobs is not None and not self.options.logits_all:
            raise ContextError(
                "log probabilities of the prompt need all logits; create Llama with logits_all=True"
            )
        self._restore(ids)
        text = prompt if isinstance(prompt, str) else self.detokenize(ids).decode("utf-8", "ignore")
        pieces = self.run(ids, p, o.stopping_criteria)
        response = ResponseFields(o.model or self.model_path)
        if o.stream:
            return self._chunks(response, ids, pieces, self._logprobs(o.logprobs, len(text)))
        return self._collect(response, ids, pieces, text, o)

    def _prompt_ids(self, prompt: str | Sequence[int], suffix: str | None) -> list[int]:
        if not isinstance(prompt, (str, bytes)):
            return [int(id) for id in prompt]
        text, known = decode_text(prompt), self.vocabulary
        if suffix is not None and known.special_ids.keys() >= _INFILL:
            return infill_ids(known, text, suffix, n_batch=self._n_ctx, spm=self.options.spm_infill)
        ids = self.tokenize(text.encode("utf-8", "surrogateescape"), special=True)
        if len(ids) > 1 and ids[0] == ids[1] == known.bos:
            warnings.warn(
                f'Detected duplicate leading "{known.vocab.texts[ids[0]]}" in prompt, this will '
                "likely reduce response quality, consider removing it...",
                RuntimeWarning,
                stacklevel=4,
            )
        return ids

    def check_length(self, n: int) -> None:
        """Raise ContextError, a ValueError, if a prompt of n tokens fills the context."""
        if n >= self.n_ctx():
            raise ContextError(f"Requested tokens ({n}) exceed context window of {self.n_ctx()}")

    def response_params(
        self,
        o: ResponseOptions,
        temperature: float,
        max_tokens: int | None,
        n_prompt: int,
        **more: Any,
    ) -> AnswerParams:
        """Return the parameters of a response to n_prompt tokens, with its seed."""
        if o.seed is None:
            self.set_seed(random.Random(self._seed).randint(0, 2**32))
        else:
            self.set_seed(o.seed)
        stop = (o.stop,) if isinstance(o.stop, str) else tuple(o.stop or ())
        room = self.n_ctx() - n_prompt
        n_max = room if max_tokens is None or max_tokens <= 0 else min(max_tokens, room)
        bias = {int(id): float(value) for id, value in (o.logit_bias or {}).items()}
        how = {"stop": stop, "max_tokens": n_max, **more}
        return self.answer_params(self.sampling_fields(o, temperature), o, bias, **how)

    def run(
        self,
        ids: Sequence[int],
        p: AnswerParams,
        stops: StoppingCriteria | None = None,
        marks: Sequence[int] | None = None,
    ) -> Pieces:
        """Yield the response to a prompt, until a stopping criterion returns True."""
        all_ids, said = list(ids), 0
        for piece in self.respond(ids, p, marks):
            if self.is_stopped(stops, all_ids):
                done = b"".join(map(self.vocabulary.token_to_piece, all_ids[len(ids) :]))
                rest = done.decode("utf-8", "ignore")[said:]
                yield replace(piece, text=rest, token=None, finish_reason="stop")
                return
            if piece.token is not None:
                all_ids.append(piece.token)
            said += len(piece.text)
            yield piece

    def _restore(self, ids: Sequence[int]) -> None:
        """Load the state of the cache with the longest common prefix, if it is longer than the
        memory's."""
        if self.cache is None:
            return
        try:
            found = self.cache[ids]
        except KeyError:
            return
        known = found.input_ids[: found.n_tokens].tolist()
        if longest_token_prefix(known, ids) > longest_token_prefix(self._input_ids.tolist(), ids):
            self.load_state(found)

    def _store(self) -> None:
        """Save the state in the cache."""
        if self.cache is not None:
            state = self.save_state()
            self.cache[state.input_ids[: state.n_tokens].tolist()] = state

    def _logprobs(self, n: int | None, offset: int) -> Logprobs | None:
        return None if n is None else Logprobs(self.vocabulary, n, offset)

    def is_text(self, piece: Piece) -> bool:
        """Return True if a piece has a token that is not an end token."""
        return piece.token is not None and not self.vocabulary.is_eog(piece.token)

    def add_logprobs(self, logprobs: Logprobs | None, piece: Piece) -> None:
        """Add the token of a piece."""
        if logprobs is not None and piece.token is not None and self.is_text(piece):
            logprobs.add(piece.token, piece.logprob, piece.top)

    def _chunks(
        self,
        response: ResponseFields,
        ids: Sequence[int],
        pieces: Iterator[Piece],
        rows: Logprobs | None,
    ) -> Iterator[Body]:
        reason: str | None = "length"
        for piece in pieces:
            self.add_logprobs(rows, piece)
            reason = finish_reason(piece) or reason
            if piece.text:
                yield response.completion(piece.text, None, None if rows is None else rows.take())
        yield response.completion("", reason)
        self._store()

    def _collect(
        self,
        response: ResponseFields,
        ids: Sequence[int],
        pieces: Iterator[Piece],
        prompt: str,
        o: CompletionOptions,
    ) -> Body:
        rows = self._logprobs(o.logprobs, 0 if o.echo else len(prompt))
        if rows is not None and o.echo:
            rows.offset = 0
        text, n, reason, begun = "", 0, None, False
        for piece in pieces:
            if not begun and o.echo and rows is not None:
                self._add_prompt(rows, ids)
            begun = True
            self.add_logprobs(rows, piece)
            text, n = text + piece.text, n + self.is_text(piece)
            reason = finish_reason(piece) or reason
        self._store()
        if o.suffix is not None and not self.vocabulary.special_ids.keys() >= _INFILL:
            text += o.suffix
        return response.completion(
            prompt + text if o.echo else text,
            reason,
            None if rows is None else rows.take(),
            count_usage(len(ids), n),
        )

    def _add_prompt(self, rows: Logprobs, ids: Sequence[int]) -> None:
        """Add the tokens of the prompt, the first of its text without probability."""
        start = 1 if ids and ids[0] == self.token_bos() else 0
        for i, id in enumerate(ids[start:], start):
            if i == start:
                rows.add(id, None, ())
            else:
                rows.add(id, *token_logprobs(self.scores[i - 1], id, rows.n))


describe(LlamaCompletions.create_completion, CompletionOptions)
describe(LlamaCompletions.__call__, CompletionOptions)
