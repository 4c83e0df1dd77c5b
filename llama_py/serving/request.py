"""Requests to an engine, and events of their responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from ggml_py.errors import GGMLError
from llama_py.adapters.lora import Adapter
from llama_py.params import AnswerParams
from llama_py.sampler.constraint import Constraint

if TYPE_CHECKING:
    from llama_py.text.chat_prompt import ChatPrompt

# A stop string (or a grammar's end, without an end token), a limit, the model's end token, a
# grammar that the vocabulary cannot go on with, the time limit, whoever asked does not want more.
Reason = Literal["stop", "length", "eos", "grammar", "time", "cancelled", "error"]


class Busy(GGMLError):
    """Too many requests wait: ask again later."""


class Closed(GGMLError):
    """The engine was closed, so there is no answer."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Request for one completion.

    prompt        ids, at least one; with images, a `llama_py.vision.prompt.ImagePrompt`, whose
                  answer is not drafted, and ends with the context
    params        parameters of the response: every field of `AnswerParams` but those of drafting
                  (`Engine` has them for all), `seq_id` and `before`
    chat          the conversation of this prompt, which completes `params`, `constraint` and
                  `marks`; None: the prompt is no conversation
    constraint    constraint of the response, unless `params` specify it
    loras         adapters of the model and their scales; None: those of the engine
    id_slot       sequence to use; -1: the one that has most of the prompt
    cache_prompt  use the prefix cache for the prompt
    marks         positions at which other prompts may diverge, see `PrefixCache.start`
    n_drafts      maximum number of draft tokens; 0: none, None: the engine's maximum
    prompt_logprobs  the prompt's tokens have log probabilities, and as many of the most likely
                     tokens; the whole prompt is computed. None: they have none
    post_sampling_probs  probabilities are those that the sampler drew from
    n_discard     tokens to discard in a context shift (0: half of those that are not kept)
    n_indent      the answer ends before a line that is indented by fewer spaces and tabs (0: off)
    t_max_predict seconds after which the answer ends with its line (0: no limit)
    t_max         seconds after which it ends in any case, those in the queue included (0: no limit)
    """

    prompt: Sequence[int]
    params: AnswerParams = field(default_factory=AnswerParams)
    chat: ChatPrompt | None = field(default=None, repr=False)
    constraint: Constraint | None = None
    loras: Mapping[Adapter, float] | None = None
    id_slot: int = -1
    cache_prompt: bool = True
    marks: Sequence[int] | None = None
    n_drafts: int | None = None
    prompt_logprobs: int | None = None
    post_sampling_probs: bool = False
    n_discard: int = 0
    n_indent: int = 0
    t_max_predict: float = 0.0
    t_max: float = 0.0


@dataclass(frozen=True, slots=True)
class Timings:
    """Progress of a request; seconds are those of the steps that it was part of.

    n_prompt, n_reused, n_done   tokens of the prompt, those that were cached, and those that the
                                 memory has now
    prompt_seconds, gen_seconds  until the first token, and from then on
    n_gen                        tokens of the answer
    n_drafted, n_accepted        draft tokens that were verified, and those accepted
    n_discarded                  tokens discarded by context shifts
    """

    n_prompt: int = 0
    n_reused: int = 0
    n_done: int = 0
    prompt_seconds: float = 0.0
    n_gen: int = 0
    gen_seconds: float = 0.0
    n_drafted: int = 0
    n_accepted: int = 0
    n_discarded: int = 0

    @property
    def n_computed(self) -> int:
        """Tokens of the prompt that were not held."""
        return self.n_prompt - self.n_reused

    @property
    def prompt_rate(self) -> float:
        """Tokens of the prompt computed in a second."""
        n = self.n_done - self.n_reused
        return n / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def gen_rate(self) -> float:
        """Tokens of the answer in a second; the first comes out of the prompt."""
        return max(self.n_gen - 1, 0) / self.gen_seconds if self.gen_seconds else 0.0


class Score(NamedTuple):
    """A token of the prompt, its log probability, and the most likely tokens with theirs."""

    token: int
    logprob: float | None
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened to a request: a part of its prompt was read, or it has another token.

    timings   so far;  slot  the sequence that answers, -1 if none does yet
    text      that is certain with this token; empty: a part of a character, or of a stop string
    token     None: there is none, it is about the prompt, or the end
    logprob   of the token, and `top` the most likely with theirs, if `params.logprobs` is given;
              natural logarithms of what `Request.post_sampling_probs` says
    finish_reason  on the last event, and only there
    stopped_by     the stop string that was found
    truncated      the context is full, or tokens of it left
    error     why there is no answer, with the reason "error"
    data      bytes of the token in the text
    scores    tokens of the prompt that were read, with `Request.prompt_logprobs`; none of the first
    """

    timings: Timings
    slot: int = -1
    text: str = ""
    token: int | None = None
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    finish_reason: Reason | None = None
    stopped_by: str = ""
    truncated: bool = False
    error: Exception | None = None
    data: bytes = b""
    scores: tuple[Score, ...] = ()
