"""Conversion of Ollama's requests to requests of chats and completions (api/types.go)."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Mapping
from typing import Any

from llama_py_server.schema import chat
from llama_py_server.schema.fields import Fields
from llama_py_server.schema.json_schemas import (
    FLAG,
    INTEGER,
    NUMBER,
    OBJECT,
    OBJECTS,
    STRING,
    STRINGS,
    TOKEN,
    array,
    constant,
    either,
)
from llama_py_server.wire.body import Body, check_length, check_unsupported, inner, objects, value
from llama_py_server.wire.errors import invalid

log = logging.getLogger("llama_py")

MAX_TOP = 20  # most likely tokens for each token
NEVER = -1.0  # a keep_alive without an end
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|ms|s|m|h)")
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)")

_SAME = (
    *("temperature", "top_k", "top_p", "min_p", "typical_p", "seed", "stop"),
    *("repeat_last_n", "repeat_penalty", "presence_penalty", "frequency_penalty"),
    *("mirostat", "mirostat_tau", "mirostat_eta"),
)
# Options that are fields of completion requests, by Ollama's names.
_OPTIONS = {"num_predict": "n_predict", "num_keep": "n_keep", **{name: name for name in _SAME}}
# Options for loading a model, and older options.
_WITHOUT_EFFECT = frozenset(
    (
        *("num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "use_mmap", "use_mlock"),
        *("numa", "low_vram", "f16_kv", "logits_all", "vocab_only", "embedding_only"),
        *("penalize_newline", "tfs_z", "draft_num_predict"),
    )
)

# All fields of /api/embed, /api/embeddings, /api/chat and /api/generate.
_EVERY: Fields = {
    "model": STRING, "options": OBJECT, "keep_alive": either(STRING, NUMBER), "truncate": FLAG,
}  # fmt: skip
EMBED: Fields = {**_EVERY, "dimensions": INTEGER, "input": either(STRING, STRINGS)}
EMBEDDINGS: Fields = {**_EVERY, "dimensions": INTEGER, "prompt": STRING}
_ANSWER: Fields = {
    **_EVERY, "stream": FLAG, "format": either(STRING, OBJECT), "think": either(FLAG, STRING),
    "logprobs": FLAG, "top_logprobs": INTEGER,
}  # fmt: skip
CHAT: Fields = {
    **_ANSWER, "messages": OBJECTS, "tools": OBJECTS, "tool_choice": chat.FIELDS["tool_choice"],
}  # fmt: skip
GENERATE: Fields = {
    **_ANSWER, "prompt": STRING, "suffix": STRING, "system": STRING, "raw": FLAG,
    "images": STRINGS, "context": array(TOKEN), "template": constant(""),
}  # fmt: skip


def keep_alive(body: Body) -> float | None:
    """Return the seconds that a model stays loaded after a request: NEVER for any time, None
    without the field.

    Raises:
        HTTPError: The field is not a number of seconds and not a duration such as "5m".
    """
    given = body.get("keep_alive")
    if given is None:
        return None
    if isinstance(given, int | float) and not isinstance(given, bool) and math.isfinite(given):
        return NEVER if given < 0 else float(given)
    if isinstance(given, str) and re.fullmatch(r"[+-]?\d+", given) and len(given) < 20:
        return NEVER if int(given) < 0 else float(given)
    if not isinstance(given, str) or len(given) > 100 or not _is_duration(given):
        raise invalid(f"'keep_alive' must be seconds, or a duration such as '5m', got {given!r}")
    if given.startswith("-"):
        return NEVER
    return sum(float(n) * _UNITS[unit] for n, unit in _PART.findall(given))


def _is_duration(text: str) -> bool:
    return re.fullmatch(rf"{_DURATION.pattern}(?:{_PART.pattern})*", text) is not None


def chat_body(body: Body, n_ctx: int) -> Body:
    """Return a body for /v1/chat/completions. n_ctx: cells of a sequence

    Raises:
        HTTPError: The body is no chat of Ollama.
    """
    messages = objects(body, "messages")
    check_length("messages", len(messages))
    found = _common_fields(body, n_ctx) | {"messages": [_message(one) for one in messages]}
    found |= {name: body[name] for name in ("tools", "tool_choice") if body.get(name)}
    return found | _think_fields(body)


def generate_body(body: Body, n_ctx: int) -> Body:
    """Return a body for /v1/chat/completions with a prompt as a user's message.

    Raises:
        HTTPError: The body is no request for a response to a prompt.
    """
    message = {"role": "user", "content": _string(body, "prompt"), "images": body.get("images")}
    system = _string(body, "system")
    before = [{"role": "system", "content": system}] if system else []
    found = _common_fields(body, n_ctx) | {"messages": [*before, _message(message)]}
    return found | _think_fields(body)


def raw_body(body: Body, n_ctx: int) -> Body:
    """Return a body for /completion, whose prompt is used unchanged."""
    for name in ("template", "system", "context"):
        if body.get(name):
            raise invalid("raw mode does not support template, system, or context")
    check_unsupported(body, ("images",))
    found = _common_fields(body, n_ctx) | {"prompt": _string(body, "prompt")}
    found["n_probs"] = found.pop("top_logprobs", 0)
    found.pop("logprobs", None)
    return found


def wants_logprobs(body: Body) -> bool:
    return value(body, "logprobs", False)


def _string(body: Mapping[str, Any], name: str) -> str:
    found = body.get(name)
    if not isinstance(found, str | None):
        raise invalid(f"'{name}' must be a string, got {found!r}")
    return found or ""


def _common_fields(body: Body, n_ctx: int) -> Body:
    stream, form = body.get("stream"), body.get("format")
    found: Body = {"stream": True if stream is None else stream, "cache_prompt": True}
    found |= options(inner(body, "options"), n_ctx)
    if form not in (None, ""):
        if not isinstance(form, Mapping) and form != "json":
            raise invalid(f"'format' must be 'json' or a JSON schema, got {form!r}")
        found["format"] = form
    top = body.get("top_logprobs")
    if top is not None and not (type(top) is int and 0 <= top <= MAX_TOP):
        raise invalid(f"top_logprobs must be between 0 and {MAX_TOP}")
    if not isinstance(body.get("logprobs"), bool | None):
        raise invalid(f"'logprobs' must be true or false, got {body['logprobs']!r}")
    return found | ({"logprobs": True, "top_logprobs": top or 0} if wants_logprobs(body) else {})


def options(given: Mapping[str, Any], n_ctx: int) -> Body:
    """Return Ollama's options as fields of a completion; others are ignored, like in Ollama."""
    found = {_OPTIONS[name]: v for name, v in given.items() if name in _OPTIONS and v is not None}
    unknown = sorted(given.keys() - _OPTIONS.keys() - _WITHOUT_EFFECT)
    if unknown:
        log.info("unknown options of a request are ignored: %s", ", ".join(unknown[:16])[:400])
    if _is_number(found.get("n_predict")) and found["n_predict"] <= 0:
        found["n_predict"] = -1
    if _is_number(found.get("repeat_last_n")) and found["repeat_last_n"] < 0:
        found["repeat_last_n"] = n_ctx
    if _is_number(found.get("seed")):  # llama.cpp's seeds have 32 bits
        found["seed"] = int(found["seed"]) % 2**32 if found["seed"] >= 0 else -1
    return found


def num_ctx(body: Body, n_ctx: int) -> int:
    """Return the requested context length, at most `n_ctx`, which the server has."""
    given = inner(body, "options").get("num_ctx")
    if given is None:
        return n_ctx
    if type(given) is not int:
        raise invalid(f"option 'num_ctx' must be an integer, got {given!r}")
    return min(given, n_ctx) if given > 0 else n_ctx


def _is_number(found: Any) -> bool:
    return isinstance(found, int | float) and math.isfinite(found)


def _think_fields(body: Body) -> Body:
    think = body.get("think")
    if think is None:
        return {}
    if isinstance(think, bool):
        return {"chat_template_kwargs": {"enable_thinking": think}}
    if think not in ("low", "medium", "high", "max"):
        raise invalid(f"'think' must be true, false, 'low', 'medium', 'high' or 'max': {think!r}")
    effort = "high" if think == "max" else think
    return {"chat_template_kwargs": {"enable_thinking": True}, "reasoning_effort": effort}


def _message(message: Body) -> Body:
    found: Body = {"role": message.get("role"), "content": _string(message, "content")}
    if images := message.get("images"):
        if not isinstance(images, list) or not all(isinstance(one, str) for one in images):
            raise invalid("'images' must be an array of strings in Base64")
        check_length("images", len(images))
        parts: list[Body] = [_image(one) for one in images]
        found["content"] = [*parts, {"type": "text", "text": found["content"]}]
    if thinking := _string(message, "thinking"):
        found["reasoning_content"] = thinking
    if calls := objects(message, "tool_calls"):
        found["tool_calls"] = [_call(one) for one in calls]
    if name := _string(message, "tool_name"):
        found["name"] = name
    if id := _string(message, "tool_call_id"):
        found["tool_call_id"] = id
    return found


def _image(data: str) -> Body:
    """Return an image part. Its URL has a scheme: the data must not be fetched as a URL."""
    return {"type": "image_url", "image_url": {"url": f"data:image/any;base64,{data}"}}


def _call(call: Body) -> Body:
    function = inner(call, "function")
    given = function.get("arguments", {})
    if not isinstance(given, str):
        given = json.dumps(given, ensure_ascii=False, separators=(",", ":"))
    found = {"type": "function", "function": {"name": function.get("name"), "arguments": given}}
    return {**found, "id": call["id"]} if isinstance(call.get("id"), str) else found
