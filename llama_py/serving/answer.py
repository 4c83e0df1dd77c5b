"""Response to one request: converts logits to text and decides when it ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ggml_py.errors import ContextError
from llama_py.batch import F32
from llama_py.batch.prompts import MixedPrompt, n_cells
from llama_py.decoding.scores import Score, Top, score_alternatives, token_logprobs
from llama_py.loading.model import LoadedModel
from llama_py.params import GenerateParams, SamplingParams
from llama_py.sampler import Sampler
from llama_py.sampler.constraint import ConstraintEnded
from llama_py.serving.request import Event, Reason, Request, Timings
from llama_py.text.generate import Choice, push_token


class Answer:
    """State of the response to a request.

    ended  reason for its end, None before that
    slot   sequence that generates it, -1 before it has one
    """

    def __init__(self, request: Request, model: LoadedModel) -> None:
        """Create the sampler; raises its errors, and ContextError for unsupported params."""
        _check(request)
        self.request, self.params = request, request.params
        p, self._tokenizer = request.params, model.tokenizer
        self._sampler = p.sampler or Sampler(
            p.part(SamplingParams), model.hparams.n_vocab, model.tokenizer, request.constraint
        )
        self.ids = [int(id) for id in request.prompt]
        self._choice = Choice(replace(p.part(GenerateParams), sampler=self._sampler), self.ids)
        self._text = self._choice.text_stream(model.tokenizer)
        self._lines = Lines(request.n_indent)
        self._before: Sampler | None = None  # copy before the last token, for post_sampling_probs
        self._n_max = self._room = sys.maxsize
        self._n = {"n_prompt": n_cells(request.prompt)}  # fields of timings
        self._prompt_seconds = self._gen_seconds = 0.0
        self.ended: Reason | None = None
        self.slot = -1

    @property
    def timings(self) -> Timings:
        """Current token counts and times."""
        return Timings(
            **self._n, prompt_seconds=self._prompt_seconds, gen_seconds=self._gen_seconds
        )

    @property
    def n_gen(self) -> int:
        """Number of generated tokens."""
        return self._n.get("n_gen", 0)

    def place(self, slot: int, n_reused: int) -> Event:
        """Note the response's slot, which has n_reused tokens of the prompt."""
        self.slot = slot
        self._n |= {"n_reused": n_reused, "n_done": n_reused}
        return self._event()

    def read(self, n_done: int, seconds: float) -> Event:
        """Note that memory has n_done tokens of the prompt; add the duration of a step."""
        self._n["n_done"] = n_done
        self._prompt_seconds += seconds
        return self._event()

    @property
    def is_score(self) -> bool:
        """True if the request is complete when its prompt is scored."""
        return self.params.max_tokens == 0 and self.request.prompt_logprobs is not None

    def score_alternatives(self, row: F32) -> tuple[Score, ...]:
        """Score the alternatives by the logits [n_vocab] after the prompt."""
        return score_alternatives(row, self.request.alternatives, self.request.prompt_logprobs)

    def spend(self, seconds: float) -> None:
        """Add the duration of a step that computed tokens of the response."""
        self._gen_seconds += seconds

    def count(self, what: str, n: int) -> None:
        """Add n to a field of timings: n_drafted, n_accepted, n_discarded."""
        self._n[what] = self._n.get(what, 0) + n

    def limit(self, room: int) -> None:
        """Limit the response to the `room` tokens that fit."""
        most = self.params.max_tokens
        self._room, self._n_max = room, room if most < 0 else min(room, most)

    @property
    def n_left(self) -> int:
        """Maximum number of further tokens."""
        return self._n_max - self.n_gen

    @property
    def count_allowed(self) -> Callable[[Sequence[int]], int] | None:
        """Function that returns how many tokens of a draft the sampler allows."""
        return self._choice.count_allowed

    def choose(self, logits: F32) -> int:
        """Choose the next token. Ended if a constraint has ended, ModelError for NaN."""
        self._before = None
        if self.request.post_sampling_probs and self.params.logprobs is not None:
            self._before = self._sampler.clone() if isinstance(self._sampler, Sampler) else None
        return self._choice(logits)

    def token(self, id: int, logits: F32) -> Event:
        """Add a token chosen from `logits` [n_vocab], and return the event with its text."""
        n = self._n["n_gen"] = self.n_gen + 1
        ends = self._tokenizer.is_eog(id)
        text, reason = push_token(self._text, id, ends, n >= self._n_max)
        text, cut = self._lines.push(text)
        if cut:
            reason = "length"
        late = 0 < self.request.t_max_predict < self._gen_seconds and "\n" in text
        self.ended = reason or ("time" if late else None)
        if late and not reason:
            text += self._text.flush()
        logprob, top = self._probabilities(logits, id)
        return self._event(text, id, logprob, top, b"" if ends else self._text.piece(id))

    def end(self, reason: Reason, error: Exception | None = None) -> Event:
        """End the response and return the event with the remaining buffered text."""
        self.ended = reason
        return replace(self._event(self._lines.push(self._text.flush())[0]), error=error)

    def end_constraint(self, e: ConstraintEnded) -> Event:
        """End the response because a constraint has ended."""
        return self.end("stop" if e.complete else "grammar")

    def _event(
        self,
        text: str = "",
        token: int | None = None,
        logprob: float | None = None,
        top: Top = (),
        data: bytes = b"",
    ) -> Event:
        t = self.timings
        full = self.ended == "length" and t.n_gen >= self._room
        return Event(
            t,
            self.slot,
            text,
            token,
            logprob,
            top,
            self.ended,
            self._text.stopped or "",
            full or t.n_discarded > 0,
            data=data,
        )

    def _probabilities(self, logits: F32, id: int) -> tuple[float | None, Top]:
        if self._before is None:
            return token_logprobs(logits, id, self.params.logprobs)
        left = self._before.candidates(logits, constrained=True)
        order = np.argsort(-left.logits, kind="stable")
        with np.errstate(divide="ignore"):
            logs = np.log(left.probabilities().astype(np.float64))
        found = {int(left.ids[i]): float(logs[i]) for i in order}
        return found.get(id, -np.inf), tuple(found.items())[: self.params.logprobs]


class Lines:
    """Text that ends before a line with too little indentation (llama-server's n_indent)."""

    def __init__(self, n_indent: int) -> None:
        self._most = n_indent
        self._n: int | None = None  # indentation; None after the line's first character

    def push(self, text: str) -> tuple[str, bool]:
        """Return the part of a text that belongs to the response, and True if it ends there."""
        if self._most <= 0:
            return text, False
        for i, c in enumerate(text):
            if self._n is not None and c in " \t":
                self._n += 1
            elif self._n is not None and self._n < self._most:
                return text[:i], True
            else:
                self._n = 0 if c == "\n" else None
        return text, False


def _check(request: Request) -> None:
    p = request.params
    if not len(request.prompt):
        raise ContextError("the prompt is empty; pass at least one token")
    if p.drafters or p.model_draft is not None:
        raise ContextError(
            "spec_type and model_draft are options of the engine; a request may set only n_drafts"
        )
    if p.seq_id or len(p.before):
        raise ContextError(
            "a request must not set seq_id or `before`; use id_slot to choose a sequence"
        )
    scored = request.prompt_logprobs is not None and request.score_from < len(request.prompt)
    if scored and isinstance(request.prompt, MixedPrompt):
        raise ContextError("a prompt with images has no prompt_logprobs; omit them")
    _check_scores(request)
    if p.sampler is not None and request.constraint is not None:
        raise ContextError(
            "set either sampler or constraint; a sampler already includes its constraint"
        )


def _check_scores(request: Request) -> None:
    n = len(request.prompt)
    if not 1 <= request.score_from <= n:
        raise ContextError(
            f"score_from must be in [1, {n}], the tokens of the prompt, got {request.score_from}"
        )
    if request.alternatives and (request.params.max_tokens or request.prompt_logprobs is None):
        raise ContextError(
            "a request with alternatives must have max_tokens=0 and prompt_logprobs, got "
            f"max_tokens={request.params.max_tokens}, prompt_logprobs={request.prompt_logprobs}"
        )
