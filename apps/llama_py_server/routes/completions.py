"""Routes of text completion: /completion, /completions, /v1/completions, /infill."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from starlette.requests import Request as HTTPRequest
from starlette.responses import Response

from llama_py.text.infill import infill_ids
from llama_py_server.schema.completion import Delivery, read, with_params
from llama_py_server.schema.prompts import check_text, parse_prompts
from llama_py_server.stream.response import respond
from llama_py_server.stream.writers.native import NativeWriter
from llama_py_server.stream.writers.openai import CompletionWriter
from llama_py_server.stream.writers.settings import all_settings
from llama_py_server.wire import work
from llama_py_server.wire.body import Body, check_length, objects, read_object, text, value
from llama_py_server.wire.errors import HTTPError, invalid, not_supported
from llama_py_server.wire.sse import dumps

if TYPE_CHECKING:
    from llama_py.serving import Request
    from llama_py_server.models.state import ModelState

MAX_ECHO_PROBS = 50  # likely tokens for each token of a prompt
MAX_REPEATED = 64 << 20  # bytes of settings in all replies to a request


async def native(http: HTTPRequest, state: ModelState) -> Response:
    """Return a completion in llama-server's format."""
    body = await read_object(http)
    found = await work.read(http, read_prompts, state, body)
    return await respond(http, state, *found, NativeWriter(state))


async def openai(http: HTTPRequest, state: ModelState) -> Response:
    """Return a completion of OpenAI's API."""
    body = await read_object(http)
    if body.get("best_of") not in (None, 1):
        raise invalid("'best_of' is not supported; use 'n'")
    suffix, echo = text(body, "suffix"), value(body, "echo", False)
    if suffix and echo:
        raise invalid("Cannot use both suffix and echo")
    read_one = read_suffix if suffix else read_prompts
    requests, delivery = await work.read(http, read_one, state, body)
    if body.get("logprobs") is not None and body["logprobs"] is not False:  # 0 is a valid value
        requests = [with_params(one, logprobs=one.params.logprobs or 0) for one in requests]
    if echo:
        if (requests[0].params.logprobs or 0) > MAX_ECHO_PROBS:
            raise invalid(f"Field 'logprobs': with 'echo' it must be at most {MAX_ECHO_PROBS}")
        requests = [replace(one, prompt_logprobs=one.params.logprobs) for one in requests]
    delivery = replace(delivery, echo=echo)
    return await respond(http, state, requests, delivery, CompletionWriter(state))


def read_suffix(state: ModelState, body: Body) -> tuple[list[Request], Delivery]:
    """Return prompts for the text between a prompt and the suffix."""
    if missing := _missing(state):
        raise invalid(f"'suffix' is not supported by this model: {missing}")
    (request, *_), delivery = read_prompts(state, body)
    given = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
    if not all(isinstance(one, str) for one in given):
        raise invalid("a request with 'suffix' must have a string, or strings, as 'prompt'")
    prompts = [_infill_prompt(state, one, body["suffix"]) for one in given]
    return [replace(request, prompt=prompt) for prompt in prompts], delivery


def read_prompts(state: ModelState, body: Body) -> tuple[list[Request], Delivery]:
    """Return the requests of a completion, one per prompt. HTTPError for a wrong field."""
    if "prompt" not in body:
        raise invalid('"prompt" is required')
    request, delivery = read(body, state)
    prompts = parse_prompts(state.tokenizer, body["prompt"], state.see if state.sees else None)
    _check_repeated(state, request, delivery, len(prompts) * delivery.n_cmpl)
    return [replace(request, prompt=prompt) for prompt in prompts], delivery


def _check_repeated(state: ModelState, request: Request, delivery: Delivery, n: int) -> None:
    """Raise HTTPError if replies, each with its settings, become too large."""
    if n == 1:
        return
    size = len(dumps(all_settings(request, delivery, state)))
    if n * size > MAX_REPEATED:
        why = f"{n} responses each repeat settings of {size} bytes"
        raise HTTPError("request_too_large", f"'prompt': {why}; send fewer prompts per request")


async def infill(http: HTTPRequest, state: ModelState) -> Response:
    """Complete the text between two texts."""
    if missing := _missing(state):
        raise not_supported(f"Infill is not supported by this model: {missing}")
    body = await read_object(http)
    request, delivery = await work.read(http, _read_infill, state, body)
    return await respond(http, state, [request], delivery, NativeWriter(state))


def _missing(state: ModelState) -> str:
    """Return which tokens for infill the model lacks."""
    names = (("fim_pre", "prefix"), ("fim_suf", "suffix"), ("fim_mid", "middle"))
    special = state.tokenizer.special_ids
    return "".join(f"{what} token is missing. " for name, what in names if name not in special)


def _infill_prompt(state: ModelState, prefix: str, suffix: str, **more: Any) -> list[int]:
    return infill_ids(
        state.tokenizer,
        prefix,
        suffix,
        n_ctx=state.engine.n_ctx,
        n_predict=max(state.options.generate.max_tokens, 0),
        n_batch=state.engine.params.n_batch,
        spm=state.params.spm_infill,
        **more,
    )


def _read_infill(state: ModelState, body: Body) -> tuple[Request, Delivery]:
    for name in ("input_prefix", "input_suffix"):
        if not isinstance(body.get(name), str):
            raise invalid(f'"{name}" is required')
    if not isinstance(body.get("prompt", ""), str):
        raise invalid('"prompt" must be a string')
    extra = objects(body, "input_extra")
    check_length("input_extra", len(extra))
    for chunk in extra:
        if not isinstance(chunk.get("text"), str):
            raise invalid('extra_context chunk must contain a "text" field with a string value')
        if not isinstance(chunk.get("filename", ""), str):
            raise invalid('extra_context chunk\'s "filename" field must be a string')
    request, delivery = read(body, state)
    for one in (body["input_prefix"], body["input_suffix"], *(chunk["text"] for chunk in extra)):
        check_text(one)
    more = {"prompt": text(body, "prompt"), "extra": extra}
    prompt = _infill_prompt(state, body["input_prefix"], body["input_suffix"], **more)
    return replace(request, prompt=prompt), delivery
