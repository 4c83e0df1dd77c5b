"""What a completion asks for: the fields of a request (server-schema.cpp), each declared once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ggml_py.errors import ModelError
from llama_py.chat.arguments import Arguments, response_of
from llama_py.params import SamplingParams
from llama_py.params.sampling import CONSTRAINTS
from llama_py_server.schema.constraints import constraint_of
from llama_py_server.schema.fields import (
    RequestField,
    biases,
    flag,
    integer,
    number,
    samplers,
    stops,
    strings,
)
from llama_py_server.wire.errors import HTTPError, invalid

if TYPE_CHECKING:
    from llama_py.text.chat_prompt import ChatPrompt
    from llama_py.tokenizer import Tokenizer
    from llama_py_server.models.state import ModelOptions, ModelState

INT32 = 2**31 - 1
INT64 = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class ReplyTask:
    """How prompts are continued, and what is told of that.

    sampling      how tokens are chosen
    chat          the prompt of a conversation, whose replies are messages; None: they are text
    marks         where other prompts may go on from it
    lora          scales of adapters by number; None: as the server has them
    echo          the response begins with the prompt
    has_logprobs  the response has log probabilities, even if n_probs is 0
    """

    sampling: SamplingParams
    n_predict: int = -1
    n_keep: int = 0
    n_discard: int = 0
    n_indent: int = 0
    n_cmpl: int = 1
    n_probs: int = 0
    echo: bool = False
    has_logprobs: bool = False
    t_max_predict_ms: int = -1
    post_sampling_probs: bool = False
    stream: bool = False
    include_usage: bool = False
    cache_prompt: bool = True
    return_tokens: bool = False
    return_progress: bool = False
    timings_per_token: bool = False
    verbose: bool = False
    sse_ping_interval: int = 30
    id_slot: int = -1
    stop: tuple[str, ...] = ()
    preserved_tokens: tuple[int, ...] = ()
    response_fields: tuple[str, ...] = ()
    lora: Mapping[int, float] | None = None
    chat: ChatPrompt | None = field(default=None, repr=False)
    marks: Sequence[int] | None = None

    @property
    def response(self) -> Arguments | None:
        """The schema of the response; None: it is no JSON of a schema."""
        found = None if self.chat is None else self.chat.format.response
        return found or response_of(self.sampling)

    @property
    def is_checked(self) -> bool:
        """Whether the end of an answer needs a check, which may take long."""
        called = self.chat is not None and bool(self.chat.format.arguments)
        return called or (self.response is not None and bool(self.response.left_out))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Lines about assertions of schemas that no grammar enforces."""
        found = () if self.chat is None else self.chat.format.warnings
        response = self.response
        return found or ((response.warning,) if response and response.warning else ())

    @property
    def logprobs(self) -> int | None:
        """How many of the most likely tokens each token has; None for no log probabilities."""
        return self.n_probs if self.n_probs or self.has_logprobs else None


# Fields of ReplyTask by their names in a request; those behind the first are other names.
_TASK: dict[str, RequestField] = {
    "verbose": flag(), "timings_per_token": flag(), "stream": flag(), "cache_prompt": flag(),
    "return_tokens": flag(), "return_progress": flag(), "post_sampling_probs": flag(),
    "sse_ping_interval": integer(-1, INT32),
    "n_predict": integer(-1, INT32, others=("max_completion_tokens", "max_tokens")),
    "n_indent": integer(0, INT32), "n_keep": integer(-1, INT32),
    "n_discard": integer(0, INT32),
    "t_max_predict_ms": integer(-1, INT64), "n_probs": integer(0, INT32, others=("logprobs",)),
    "id_slot": integer(-1, INT32), "response_fields": strings(), "stop": stops(),
}  # fmt: skip

# Fields of SamplingParams; `into` where it has another name.
_SAMPLING: dict[str, RequestField] = {
    "top_k": integer(0, INT32, clamped=True), "top_p": number(0, 1), "min_p": number(0, 1),
    "top_n_sigma": number(), "xtc_probability": number(0, 1), "xtc_threshold": number(0, 1),
    "typical_p": number(0, 1), "temperature": number(0, into="temp"),
    "dynatemp_range": number(0), "dynatemp_exponent": number(0, into="dynatemp_exp"),
    "repeat_last_n": integer(0, INT32), "repeat_penalty": number(1e-38),
    "frequency_penalty": number(), "presence_penalty": number(),
    "dry_multiplier": number(), "dry_base": number(1, below_is_default=True),
    "dry_allowed_length": integer(0, INT32), "dry_penalty_last_n": integer(0, INT32),
    "dry_sequence_breakers": strings(least=1),
    "mirostat": integer(0, 2, clamped=True), "mirostat_tau": number(0, 1e6, into="mirostat_ent"),
    "mirostat_eta": number(0, 1e6, into="mirostat_lr"),
    "adaptive_target": number(high=1), "adaptive_decay": number(0, 0.99, clamped=False),
    "min_keep": integer(0, INT32), "ignore_eos": flag(),
    "seed": integer(-1, 2**32 - 1), "samplers": samplers(),
}  # fmt: skip


def names(fields: Mapping[str, RequestField]) -> set[str]:
    return {other for name, f in fields.items() for other in (name, *f.others)}


KNOWN = names(_TASK) | names(_SAMPLING)


def defaults_of(o: ModelOptions) -> ReplyTask:
    """Return the task of a request that leaves everything open."""
    return ReplyTask(
        sampling=o.sampling,
        n_predict=max(o.generate.max_tokens, -1),
        n_keep=o.generate.n_keep,
        stop=tuple(o.generate.stop),
        cache_prompt=o.server.cache_prompt,
        sse_ping_interval=o.listen.sse_ping_interval,
        verbose=o.verbose,
    )


def read(body: Mapping[str, Any], state: ModelState) -> ReplyTask:
    """The task that a request describes. HTTPError, with the field's name, for what none can be;
    a null is as if it were not there."""
    defaults = defaults_of(state.options)
    found = _taken(body, _TASK, defaults)
    sampling = _taken(body, _SAMPLING, defaults.sampling)
    if isinstance(sampling.get("samplers"), str):  # characters
        sampling["sampler_seq"], sampling["samplers"] = sampling["samplers"], ()
    else:
        sampling |= {"sampler_seq": ""} if "samplers" in sampling else {}
    options = body.get("stream_options")
    if isinstance(options, Mapping) and "include_usage" in options:
        found["include_usage"] = _of("include_usage", flag(), options["include_usage"])
    for name, read_one in _MORE.items():
        if body.get(name) is not None:
            more = _of(name, RequestField(partial(read_one, tokenizer=state.tokenizer)), body[name])
            (sampling if name == "logit_bias" else found)[name] = more
    cmpl = next((n for n in ("n_cmpl", "n") if body.get(n) is not None), None)
    if cmpl is not None:
        found["n_cmpl"] = _of(cmpl, integer(1, state.engine.n_slots), body[cmpl])
    if (limit := constraint_of(body)) is not None:
        sampling |= dict.fromkeys(CONSTRAINTS, "") | {limit.kind: limit.value}
    if not found.get("stop"):
        found.pop("stop", None)
    try:
        made = replace(defaults.sampling, **sampling)
    except ModelError as e:
        raise invalid(str(e)) from None
    return replace(defaults, sampling=made, **found)


def _taken(
    body: Mapping[str, Any], fields: Mapping[str, RequestField], defaults: Any
) -> dict[str, Any]:
    found = {}
    for name, f in fields.items():
        given = next((n for n in (name, *f.others) if body.get(n) is not None), None)
        if given is None:
            continue
        into = f.into or name
        value = _of(given, f, body[given])
        found[into] = getattr(defaults, into) if value is f.default else value
    return found


def _of(name: str, f: RequestField, value: Any) -> Any:
    try:
        return f.read(value)
    except (HTTPError, ModelError, ValueError, TypeError, KeyError) as e:
        raise invalid(f"Field '{name}': {e}") from None


def _lora(value: Any, tokenizer: Tokenizer) -> dict[int, float]:
    return scales(value)


def scales(value: Any) -> dict[int, float]:
    """Scales of adapters by number, of `[{"id": 0, "scale": 0.5}, ...]`. ValueError for others."""
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ValueError("'lora' must be an array of objects with 'id' and 'scale' fields")
    read_id, read_scale = integer(0, INT32).read, number().read
    return {read_id(one.get("id", -1)): read_scale(one.get("scale", 0.0)) for one in value}


def _preserved(value: Any, tokenizer: Tokenizer) -> tuple[int, ...]:
    ids = [tokenizer.tokenize(text, False) for text in strings().read(value)]
    return tuple(one[0] for one in ids if len(one) == 1)


_MORE: dict[str, Callable[..., Any]] = {
    "logit_bias": biases,
    "lora": _lora,
    "preserved_tokens": _preserved,
}
