"""Requests of text-generation-inference (TGI) as requests of the engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from llama_py_server.schema.completion import Delivery, read, with_params
from llama_py_server.schema.fields import (
    RequestField,
    absent,
    flag,
    integer,
    number,
    read_fields,
    stops,
)
from llama_py_server.schema.prompts import parse_prompt
from llama_py_server.wire.body import Body
from llama_py_server.wire.errors import invalid

if TYPE_CHECKING:
    from llama_py.serving import Request
    from llama_py_server.models.state import ModelState

_INT32 = 2**31 - 1
_TINY = 1e-38

# Fields of `parameters` that are fields of AnswerParams.
SAMPLING: dict[str, RequestField] = {
    "max_new_tokens": integer(1, _INT32, into="max_tokens"),
    "temperature": number(_TINY, clamped=False, into="temp"),
    "top_k": integer(0, _INT32),
    "top_p": number(_TINY, 1, clamped=False),
    "typical_p": number(_TINY, 1, clamped=False),
    "repetition_penalty": number(_TINY, clamped=False, into="repeat_penalty"),
    "frequency_penalty": number(-2, 2, clamped=False),
    "seed": integer(0, 2**32 - 2),
    "stop": stops(),
}


def _watermark(value: Any) -> bool:
    if value is not False:
        raise ValueError("must be false, because watermarks are not supported")
    return False


OTHERS: dict[str, RequestField] = {
    "best_of": integer(1, 1),
    "do_sample": flag(),
    "return_full_text": flag(),
    "truncate": integer(1, _INT32),
    "details": flag(),
    "decoder_input_details": flag(),
    "top_n_tokens": integer(0, 5),
    "watermark": RequestField(_watermark, schema={"const": False}),
    "adapter_id": absent("name adapters with /lora-adapters"),
}
NEUTRAL = {"temp": 1.0, "top_k": 0, "top_p": 1.0, "typical_p": 1.0}  # these do not sample


@dataclass(frozen=True)
class ResponseContents:
    """Contents of a response. prefix: text before the generated text"""

    prefix: str = ""
    details: bool = False
    prefill: bool = False
    n_top: int = 0


def parse_generation(
    state: ModelState, body: Body, stream: bool
) -> tuple[Request, Delivery, ResponseContents]:
    """Return the engine's request, its delivery, and the contents of the response.

    Raises:
        HTTPError: A field has a wrong value; the error names it.
    """
    inputs, parameters = body.get("inputs"), body.get("parameters")
    if not isinstance(inputs, str) or not inputs:
        raise invalid('"inputs" must be a non-empty string')
    if not isinstance(parameters, dict | None):
        raise invalid('"parameters" must be an object')
    given: Body = {"do_sample": True} if parameters is None else parameters
    sampling, others = read_fields(given, SAMPLING), read_fields(given, OTHERS)
    if stream and others.get("decoder_input_details"):
        raise invalid("Field 'decoder_input_details': a stream has no details of its prompt")
    request, delivery = read({"grammar": given.get("grammar"), "stream": stream}, state)
    chooses = any(sampling.get(name, same) != same for name, same in NEUTRAL.items())
    if not chooses and not others.get("do_sample", False):
        sampling["temp"] = 0.0
    if not sampling.get("stop"):
        sampling.pop("stop", None)
    prefill = others.get("decoder_input_details", False)
    details = others.get("details", False) or prefill
    wanted = ResponseContents(
        inputs if others.get("return_full_text", False) else "",
        details,
        prefill,
        others.get("top_n_tokens", 0),
    )
    if details or stream:
        sampling["logprobs"] = wanted.n_top
    ids = parse_prompt(state.tokenizer, inputs)[-others.get("truncate", 0) :]
    request = with_params(replace(request, prompt=ids), **sampling)
    if prefill:
        request = replace(request, prompt_logprobs=0)
    return request, delivery, wanted
