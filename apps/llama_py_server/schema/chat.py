"""Chat requests: conversion of messages, tools and options to the engine's request
(server-common.cpp:oaicompat_chat_params_parse)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING, Any

from llama_py.chat.reasoning_formats import REASONING_FORMATS
from llama_py.text.chat_prompt import ChatOptions, ChatPrompt
from llama_py_server.schema import completion
from llama_py_server.schema.chat_messages import MESSAGES, parse_messages
from llama_py_server.schema.completion import N_PROBS, Delivery, read, with_params
from llama_py_server.schema.constraints import REPLACED, drop_constraint, find_constraint, select
from llama_py_server.schema.fields import Fields
from llama_py_server.schema.json_schemas import (
    FLAG,
    INTEGER,
    OBJECT,
    OBJECTS,
    REFUSED,
    STRING,
    STRINGS,
    array,
    constant,
    either,
    record,
)
from llama_py_server.schema.media import Media, TextOnly
from llama_py_server.wire.body import (
    Body,
    check_length,
    check_unsupported,
    inner,
    objects,
    text,
    value,
)
from llama_py_server.wire.errors import invalid

if TYPE_CHECKING:
    from llama_py.serving import Request
    from llama_py_server.models.state import ModelState

_UNSUPPORTED = ("audio", "moderation", "web_search_options")
MAX_VARIABLES = 256  # variables of a template
MAX_TOOLS = 512  # functions; each one adds a part to the grammar
_CHOICES = ("auto", "none", "required")
_TOOLS = array(record(type=constant("function"), function=record(name=STRING)), most=MAX_TOOLS)

# All fields of `read_chat`.
FIELDS: Fields = {
    **completion.FIELDS, **dict.fromkeys(_UNSUPPORTED, REFUSED),
    "messages": MESSAGES, "tools": _TOOLS, "tool_choice": either({"enum": [*_CHOICES]}, OBJECT),
    "functions": OBJECTS, "function_call": either({"enum": ["auto", "none"]}, OBJECT),
    "parallel_tool_calls": FLAG,
    "reasoning_format": {"enum": [*REASONING_FORMATS]}, "reasoning_effort": STRING,
    "reasoning_budget_tokens": INTEGER, "thinking_budget_tokens": INTEGER,
    "reasoning_budget_message": STRING, "add_generation_prompt": FLAG,
    "continue_final_message": either(FLAG, STRING), "chat_template_kwargs": OBJECT,
    "logprobs": either(FLAG, INTEGER), "top_logprobs": INTEGER, "modalities": STRINGS,
}  # fmt: skip


def read_chat(state: ModelState, body: Body) -> tuple[ChatPrompt, Request, Delivery]:
    """Return the prompt of a conversation, the engine's request, and the response's delivery.

    The request lacks the ids of the prompt.

    Raises:
        HTTPError: The body is no conversation.
        ModelError: The template does not take it.
    """
    body = select(body, FIELDS)
    check_unsupported(body, _UNSUPPORTED)
    body = _with_tools(body)
    if body.get("modalities") not in (None, [], ["text"]):
        raise invalid("'modalities' must be [\"text\"], because responses are text")
    tools = objects(body, "tools")
    if len(tools) > MAX_TOOLS:
        raise invalid(f"'tools' must have at most {MAX_TOOLS} functions, got {len(tools)}")
    choice = _tool_choice(body)
    if not state.talk.jinja and (tools or choice != "auto"):
        raise invalid("tools param requires --jinja flag")
    limit = find_constraint(body)
    schema = limit.value if limit is not None and limit.kind == "json_schema" else None
    messages = _messages(state, body, Media(state))
    options = _options(state, body, messages, choice, schema)
    if tools and choice != "none" and limit is not None and schema is None:
        raise invalid("Cannot use custom grammar constraints with tools.")
    if options.continue_final_message and isinstance(messages[-1].get("content"), list):
        texts = (part["text"] for part in messages[-1]["content"] if "text" in part)
        messages[-1] = {**messages[-1], "content": "\n\n".join(texts)}  # like llama-server
    chat = ChatPrompt(state.model, messages, tools, options)
    n_probs = _n_probs(body)
    body = {**body, "n_probs": n_probs, "logprobs": None}
    if schema is not None:  # the chat format applies the schema
        body = drop_constraint(body)
    request, delivery = read(body, state)
    most = request.params.max_tokens or 1  # llama-server checks the limit after a token
    request = with_params(request, max_tokens=most, logprobs=n_probs)
    return chat, replace(request, chat=chat), delivery


def read_text(state: ModelState, body: Body, begins: bool, continues: bool) -> str:
    """Return the text of a conversation that gets no response (vLLM's pooling).

    Args:
        state: The model.
        body: The request; its fields are `messages` and `chat_template_kwargs`.
        begins: Add the start of a response.
        continues: Omit the end of the last message.

    Raises:
        HTTPError: The body is no conversation, or the model has no chat template.
        ModelError: The template does not take it.
    """
    if state.model.chat_template is None:
        raise invalid(
            "Field 'messages': the model has no chat template; start the server with"
            " --chat-template, or send 'input'"
        )
    if begins and continues:
        raise invalid(
            "Field 'continue_final_message': cannot be combined with 'add_generation_prompt'"
        )
    messages = _messages(state, body, TextOnly(state))
    if not messages:
        raise invalid("Field 'messages': must not be empty")
    if continues and messages[-1]["role"] != "assistant":
        raise invalid(
            "Field 'continue_final_message': the last message must have the role assistant"
        )
    options = ChatOptions(
        add_generation_prompt=begins,
        continue_final_message=continues,
        variables=_variables(state, body),
    )
    return ChatPrompt(state.model, messages, [], options).text


def _messages(state: ModelState, body: Body, media: Media) -> list[Body]:
    """Return the messages of a request, after the system prompt of a created model."""
    messages = parse_messages(body, media)
    system = state.talk.system_prompt
    if system and not any(one["role"] == "system" for one in messages):
        messages = [{"role": "system", "content": system}, *messages]
    return messages


def _with_tools(body: Body) -> Body:
    """Return a request with `functions` and `function_call` as `tools` and `tool_choice`."""
    older = [name for name in REPLACED if body.get(name) is not None]
    newer = [name for name in ("tools", "tool_choice") if body.get(name) is not None]
    if older and newer:
        raise invalid(f"Cannot use both {older[0]} and {newer[0]}")
    if not older:
        return body
    choice, functions = body.get("function_call"), objects(body, "functions")
    names = ("auto", "none", *(one.get("name") for one in functions))
    if choice and (choice.get("name") if isinstance(choice, dict) else choice) not in names:
        raise invalid(f"'function_call' must name one of 'functions', got {choice!r}")
    return {
        **{key: v for key, v in body.items() if key not in REPLACED},
        "tools": [{"type": "function", "function": one} for one in functions],
        "tool_choice": {"function": choice} if isinstance(choice, dict) else choice,
        "parallel_tool_calls": False,
    }


def _tool_choice(body: Body) -> Any:
    """Return OpenAI's tool choice: a word, or an object that names a function."""
    choice = body.get("tool_choice")
    if choice is None:
        return "auto"
    if isinstance(choice, dict):
        function = inner(choice, "function")
        name, kind = text(function, "name") or text(choice, "name"), choice.get("type")
        if not name or kind not in (None, "function", "tool"):
            raise invalid(f"'tool_choice' of type {kind!r} is not supported; name a function")
        return {"type": "function", "function": {"name": name}}
    if choice not in _CHOICES:
        raise invalid(f"Invalid tool_choice: {choice}")
    return choice


def _options(
    state: ModelState, body: Body, messages: list[Body], choice: Any, schema: Any
) -> ChatOptions:
    talk = state.talk
    budget = value(body, "reasoning_budget_tokens", value(body, "thinking_budget_tokens", -1))
    continued, prompted = _find_continuation(state, body, messages)
    parallel = body.get("parallel_tool_calls")
    return ChatOptions(
        tool_choice=choice,
        json_schema=schema,
        add_generation_prompt=prompted,
        continue_final_message=continued,
        parallel_tool_calls=parallel if isinstance(parallel, bool) else None,
        reasoning_format=text(body, "reasoning_format", talk.reasoning_format),
        budget=talk.reasoning_budget if budget < 0 else budget,
        budget_message=text(body, "reasoning_budget_message", talk.reasoning_budget_message),
        variables=_variables(state, body),
        plain=state.talk.skip_chat_parsing,
    )


def _find_continuation(
    state: ModelState, body: Body, messages: list[Body]
) -> tuple[bool | str, bool]:
    """Return which part of the last message continues, and True if a new message begins."""
    prompted = value(body, "add_generation_prompt", True)
    given = body.get("continue_final_message")
    continued = given if given in (True, "content", "reasoning_content") else False
    last = bool(messages) and messages[-1]["role"] == "assistant"
    if not continued and state.talk.prefill_assistant and last:
        continued, prompted = True, False
    if continued and prompted:
        raise invalid("Cannot set both add_generation_prompt and continue_final_message to true.")
    if continued and last and messages[-1].get("tool_calls"):
        raise invalid("Cannot continue an assistant message that contains tool calls.")
    return continued and last, prompted


def _variables(state: ModelState, body: Body) -> dict[str, Any]:
    """Return the template's variables: from the command line, then from the request."""
    given = inner(body, "chat_template_kwargs")
    check_length("chat_template_kwargs", len(given), MAX_VARIABLES)
    found = {**state.talk.chat_template_kwargs, **given}
    if taken := sorted(found.keys() & _arguments()):
        why = f"{taken[0]!r} is not a template variable; use the request field of this name"
        raise invalid(f"Field 'chat_template_kwargs': {why}")
    if not isinstance(found.get("enable_thinking", True), bool):
        raise invalid('invalid type for "enable_thinking" (expected boolean, got string)')
    if state.talk.reasoning != "auto":
        found.setdefault("enable_thinking", state.talk.reasoning == "on")
    effort = body.get("reasoning_effort")
    if effort == "none":
        found["enable_thinking"] = False
        found.pop("reasoning_effort", None)
    elif isinstance(effort, str) and effort:
        found["reasoning_effort"] = effort
    return found


@cache
def _arguments() -> frozenset[str]:
    """Return names that variables cannot have, since arguments of the renderers have them."""
    from llama_py.chat.template import ChatTemplate
    from llama_py.chat.tools import build_format  # slow import

    parameters = [*signature(ChatTemplate.render).parameters.values()]
    parameters += signature(build_format).parameters.values()
    return frozenset(p.name for p in parameters if p.kind is not p.VAR_KEYWORD)


def _n_probs(body: Body) -> int | None:
    """Return the number of requested alternatives per token; None for no log probabilities.

    A number in `logprobs` is the format of /v1/completions.
    """
    given, top = body.get("logprobs"), body.get("top_logprobs")
    if not isinstance(given, bool | int | None):
        raise invalid(f"'logprobs' must be true or false, got {given!r}")
    if given:
        return top if top is not None else N_PROBS if given is True else given
    if top is not None:
        raise invalid("top_logprobs requires logprobs to be set to true")
    return body.get("n_probs") or None
