"""Fields of completion requests, each declared once.

server-schema.cpp has the same fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ggml_py.errors import ModelError
from llama_py.params import AnswerParams, SamplingParams
from llama_py.params.sampling import CONSTRAINTS
from llama_py.serving import Request
from llama_py_server.schema import constraints
from llama_py_server.schema.constraints import REPLACED, find_constraint, select
from llama_py_server.schema.fields import (
    Fields,
    RequestField,
    biases,
    by_name,
    flag,
    integer,
    number,
    parse_field,
    read_fields,
    samplers,
    stops,
    strings,
)
from llama_py_server.schema.json_schemas import (
    FLAG,
    NUMBER,
    OBJECT,
    REFUSED,
    STRINGS,
    TOKEN,
    Schema,
    array,
    either,
    optional_fields,
    record,
)
from llama_py_server.wire.body import Body, check_length
from llama_py_server.wire.errors import invalid

if TYPE_CHECKING:
    from llama_py.tokenizer import Tokenizer
    from llama_py_server.models.state import ModelOptions, ModelState

INT32 = 2**31 - 1
INT64 = 2**63 - 1
MAX_PROBS = 2048  # likely tokens per token of a response
N_PROBS = 20  # default of `logprobs` without `top_logprobs`


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """Delivery of replies: complete or as a stream, and the fields.

    Attributes:
        n_cmpl: Number of replies to each prompt.
        echo: A reply begins with its prompt.
        lora: Scales of adapters by number, as the request has them.
    """

    n_cmpl: int = 1
    echo: bool = False
    stream: bool = False
    include_usage: bool = False
    return_tokens: bool = False
    return_progress: bool = False
    timings_per_token: bool = False
    verbose: bool = False
    sse_ping_interval: int = 30
    response_fields: tuple[str, ...] = ()
    lora: Mapping[int, float] | None = None


def _seconds(value: Any) -> float:
    return float(max(_MILLISECONDS.read(value), 0) / 1000)


_MILLISECONDS = integer(-1, INT64)


# Fields of Delivery by their names in a request; `others` are further names.
DELIVERY: dict[str, RequestField] = {
    "verbose": flag(),
    "timings_per_token": flag(),
    "stream": flag(),
    "return_tokens": flag(),
    "return_progress": flag(),
    "sse_ping_interval": integer(-1, INT32),
    "response_fields": strings(),
}

# Fields of the engine's Request; `into` is their name there.
REQUEST: dict[str, RequestField] = {
    "cache_prompt": flag(),
    "post_sampling_probs": flag(),
    "n_indent": integer(0, INT32),
    "n_discard": integer(0, INT32),
    "t_max_predict_ms": replace(_MILLISECONDS, read=_seconds, into="t_max_predict"),
    "id_slot": integer(-1, INT32),
}

# Fields of AnswerParams.
PARAMS: dict[str, RequestField] = {
    "n_predict": integer(
        -1, INT32, others=("max_completion_tokens", "max_tokens"), into="max_tokens"
    ),
    "n_keep": integer(-1, INT32),
    "n_probs": integer(0, MAX_PROBS, others=("logprobs",), into="logprobs"),
    "stop": stops(),
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


KNOWN = by_name(DELIVERY | REQUEST | PARAMS)


def build_defaults(o: ModelOptions) -> tuple[Request, Delivery]:
    """Return the defaults of a request, which has no prompt yet."""
    params = AnswerParams(
        **{f.name: getattr(o.sampling, f.name) for f in fields(SamplingParams)},
        max_tokens=max(o.generate.max_tokens, -1),
        n_keep=o.generate.n_keep,
        stop=tuple(o.generate.stop),
        special=o.generate.special,
        context_shift=o.generate.context_shift,
    )
    cached, t_max = o.server.cache_prompt, float(o.listen.timeout)
    request = Request(prompt=(), params=params, cache_prompt=cached, t_max=t_max)
    ping = o.listen.sse_ping_interval
    return request, Delivery(sse_ping_interval=ping, verbose=o.verbose)


def read(body: Body, state: ModelState) -> tuple[Request, Delivery]:
    """Return the engine's request, without a prompt, and the response's delivery.

    A null is as if it were not there.

    Raises:
        HTTPError: A field has a wrong value; the error names it.
    """
    body = select(body, FIELDS)
    request, delivery = build_defaults(state.options)
    given, told = read_fields(body, REQUEST), read_fields(body, DELIVERY)
    params = read_fields(body, PARAMS)
    if isinstance(params.get("samplers"), str):  # characters
        params["sampler_seq"], params["samplers"] = params["samplers"], ()
    else:
        params |= {"sampler_seq": ""} if "samplers" in params else {}
    options = body.get("stream_options")
    if isinstance(options, Mapping) and "include_usage" in options:
        told["include_usage"] = parse_field("include_usage", flag(), options["include_usage"])
    for name, f in _MORE.items():
        if body.get(name) is not None:
            f = replace(f, read=partial(f.read, tokenizer=state.tokenizer))
            (told if name == "lora" else params)[name] = parse_field(name, f, body[name])
    cmpl = next((n for n in ("n_cmpl", "n") if body.get(n) is not None), None)
    if cmpl is not None:
        told["n_cmpl"] = parse_field(cmpl, integer(1, state.engine.n_slots), body[cmpl])
    if (limit := find_constraint(body)) is not None:
        params |= dict.fromkeys(CONSTRAINTS, "") | {limit.kind: limit.value}
    if not params.get("stop"):
        params.pop("stop", None)
    params["logprobs"] = params.get("logprobs") or None
    if (id := given.get("id_slot", -1)) >= state.engine.n_slots:
        raise invalid(f"id_slot must be from 0 to {state.engine.n_slots - 1}, got {id}")
    if "lora" in told:
        given["loras"] = state.find_adapters(told["lora"])
    try:
        given["params"] = replace(request.params, **params)
    except ModelError as e:
        raise invalid(str(e)) from None
    return replace(request, **given), replace(delivery, **told)


def with_params(request: Request, **changes: Any) -> Request:
    """Return a request with other options of its answer."""
    return replace(request, params=replace(request.params, **changes))


def _lora(value: Any, tokenizer: Tokenizer) -> dict[int, float]:
    return scales(value)


def scales(value: Any) -> dict[int, float]:
    """Parse scales of adapters, `[{"id": 0, "scale": 0.5}, ...]`, by number; ValueError if
    invalid."""
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ValueError("'lora' must be an array of objects with 'id' and 'scale' fields")
    check_length("lora", len(value))
    read_id, read_scale = integer(0, INT32).read, number().read
    return {read_id(one.get("id", -1)): read_scale(one.get("scale", 0.0)) for one in value}


def _parse_preserved_tokens(value: Any, tokenizer: Tokenizer) -> tuple[int, ...]:
    ids = [tokenizer.tokenize(text, False) for text in strings().read(value)]
    return tuple(one[0] for one in ids if len(one) == 1)


# Fields whose readers need the tokenizer.
_MORE: dict[str, RequestField] = {
    "logit_bias": RequestField(biases, schema=either(OBJECT, array({"type": "array"}))),
    "lora": RequestField(_lora, schema=array(record(id=TOKEN, scale=NUMBER))),
    "preserved_tokens": RequestField(_parse_preserved_tokens, schema=STRINGS),
}

_COUNT: Schema = {"type": "integer", "minimum": 1}

# All fields of `read`.
FIELDS: Fields = {
    **KNOWN,
    **_MORE,
    **constraints.FIELDS,
    **dict.fromkeys(REPLACED, REFUSED),
    "n": _COUNT,
    "n_cmpl": _COUNT,
    "stream_options": optional_fields(include_usage=FLAG),
}
