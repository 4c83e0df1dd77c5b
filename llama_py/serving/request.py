"""Requests to an engine, and events of their responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ggml_py._moved import former_names
from ggml_py.errors import GGMLError
from llama_py.adapters.lora import Adapter
from llama_py.decoding.scores import Score
from llama_py.params import AnswerParams
from llama_py.sampler.constraint import Constraint

if TYPE_CHECKING:
    from llama_py.text.chat_prompt import ChatPrompt

# Stop string (or a complete grammar without an end token), limit, the model's end token, no token
# that the grammar allows, time limit, cancelled by the client.
Reason = Literal["stop", "length", "eos", "grammar", "time", "cancelled", "error"]


class Busy(GGMLError):
    """Too many requests wait: ask again later."""


class EngineClosed(GGMLError):
    """Error of a request to a closed engine."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Request for one completion.

    prompt        ids, at least one; with images, a `llama_py.vision.prompt.ImagePrompt`: its
                  response has no drafts, and ends when the context is full
    params        parameters of the response: every field of `AnswerParams` except `seq_id`,
                  `before` and drafting, which `Engine` sets for all requests
    chat          the conversation of this prompt, which completes `params`, `constraint` and
                  `marks`; None: the prompt is no conversation
    constraint    constraint of the response, unless `params` specify it
    loras         adapters of the model and their scales; None: the engine's default
    id_slot       sequence to use; -1: the slot with the longest common prefix
    cache_prompt  use the prefix cache for the prompt
    marks         positions at which other prompts may diverge, see `PrefixCache.start`
    n_drafts      maximum number of draft tokens; 0: no drafts, None: the engine's maximum
    prompt_logprobs  return log probabilities of the prompt's tokens, and of this number of most
                     likely tokens, see `Event.scores`. None: do not return any
    score_from    first prompt position with a log probability, at least 1; the prompt is computed
                  from the token before it on
    alternatives  tokens whose log probabilities after the prompt the last event has; the request
                  must have max_tokens=0 and prompt_logprobs
    post_sampling_probs  return the probabilities after the sampler's filters
    n_discard     tokens to discard in a context shift (0: half of the tokens after the kept part)
    n_indent      end the response before a line indented by fewer spaces and tabs (0: off)
    t_max_predict seconds after which the response ends with its line (0: no limit)
    t_max         seconds after which it ends in any case, including the queue (0: no limit)
    client        name of the client: clients share the slots and the time of a step
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
    score_from: int = 1
    alternatives: Sequence[int] = ()
    post_sampling_probs: bool = False
    n_discard: int = 0
    n_indent: int = 0
    t_max_predict: float = 0.0
    t_max: float = 0.0
    client: str = ""


@dataclass(frozen=True, slots=True)
class Timings:
    """Progress of a request; times include only its steps.

    n_prompt, n_reused, n_done   tokens of the prompt, cached tokens, and tokens in memory now
    prompt_seconds, gen_seconds  until the first token, and from then on
    n_gen                        tokens of the response
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
        """Prompt tokens that were not cached."""
        return self.n_prompt - self.n_reused

    @property
    def prompt_rate(self) -> float:
        """Computed prompt tokens per second."""
        n = self.n_done - self.n_reused
        return n / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def gen_rate(self) -> float:
        """Generated tokens per second, without the first, which the prompt's step produces."""
        return max(self.n_gen - 1, 0) / self.gen_seconds if self.gen_seconds else 0.0


@dataclass(frozen=True, slots=True)
class Event:
    """Progress of a request: a processed part of its prompt, or another token.

    timings   current timings;  slot  sequence of the response, -1 before it has one
    text      text that is final with this token; empty within a character or a stop string
    token     None for prompt progress and the end
    logprob   natural logarithm of the token's probability, and `top` of the most likely tokens, if
              `params.logprobs` is set; see `Request.post_sampling_probs`
    finish_reason  set on the last event only
    stopped_by     stop string that ended the response
    truncated      the context is full, or a context shift discarded tokens
    error     exception, with the reason "error"
    data      bytes of the token in the text
    scores    processed prompt tokens from `Request.score_from` on; in the last event
              `Request.alternatives`
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


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, Closed="EngineClosed")
