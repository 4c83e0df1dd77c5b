"""Conversion of Anthropic's requests to OpenAI's
(server-chat.cpp:server_chat_convert_anthropic_to_oai)."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Any

from llama_py_server.schema import chat, constraints
from llama_py_server.schema.blocks import convert_blocks, refuse_part, string
from llama_py_server.schema.constraints import is_constraint, select
from llama_py_server.schema.fields import Fields
from llama_py_server.schema.json_schemas import (
    INTEGER,
    OBJECT,
    OBJECTS,
    REFUSED,
    STRING,
    STRINGS,
    array,
    either,
    record,
)
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

log = logging.getLogger("llama_py")

MAX_TOKENS, BUDGET = 4096, 10000
_UNSUPPORTED = ("mcp_servers", "thread")
_THINKING = ("enabled", "disabled", "adaptive", "between_tools")
_SAME = ("temperature", "top_p", "top_k", "stream", "chat_template_kwargs")
_CHOICES = {"auto": "auto", "any": "required", "tool": "required", "none": "none"}
_MESSAGE = record(role={"enum": ["user", "assistant"]}, content=either(STRING, OBJECTS))

# All fields of a request.
FIELDS: Fields = {
    **constraints.FIELDS, **dict.fromkeys(_UNSUPPORTED, REFUSED),
    **{name: chat.FIELDS[name] for name in _SAME},
    "messages": array(_MESSAGE), "max_tokens": INTEGER, "system": either(STRING, OBJECTS),
    "tools": OBJECTS, "tool_choice": OBJECT, "stop_sequences": STRINGS, "thinking": OBJECT,
    "output_config": OBJECT, "output_format": OBJECT,
}  # fmt: skip


def chat_body(body: Body) -> Body:
    """Return a body for /v1/chat/completions; HTTPError without messages."""
    body = select(body, FIELDS)
    if "messages" not in body:
        raise invalid("'messages' is required")
    if not isinstance(body["messages"], list):
        raise invalid("Expected 'messages' to be an array")
    check_unsupported(body, _UNSUPPORTED)
    check_length("messages", len(body["messages"]))
    messages = _system(body.get("system"))
    for message in body["messages"]:
        messages += _messages(message) if isinstance(message, dict) else [message]
    found: Body = {"messages": messages, "max_tokens": body.get("max_tokens", MAX_TOKENS)}
    if isinstance(body.get("tools"), list):
        found["tools"] = [_tool(tool) for tool in objects(body, "tools") if _is_function(tool)]
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping):
        found |= _choice(choice)
    if "stop_sequences" in body:
        found["stop"] = body["stop_sequences"]
    found |= {key: body[key] for key in _SAME if key in body}
    found |= {key: v for key, v in body.items() if is_constraint(key)}
    form = body.get("output_format", inner(body, "output_config").get("format"))
    if form is not None:
        found["response_format"] = form
    thinking = inner(body, "thinking")
    kind = thinking.get("type", "adaptive")
    if kind not in _THINKING:
        raise refuse_part("thinking", kind, f"send one of {', '.join(_THINKING)}")
    if kind == "enabled":
        found["thinking_budget_tokens"] = value(thinking, "budget_tokens", BUDGET)
    elif kind == "disabled":
        kwargs = inner(found, "chat_template_kwargs")
        found["chat_template_kwargs"] = {"enable_thinking": False, **kwargs}
    effort = inner(body, "output_config").get("effort")
    return found | ({"reasoning_effort": effort} if effort is not None else {})


def _choice(choice: Mapping[str, Any]) -> Body:
    found: Body = {}
    kind = text(choice, "type")
    if kind in _CHOICES:
        found["tool_choice"] = _CHOICES[kind]
    if kind == "tool" and text(choice, "name"):
        function = {"name": text(choice, "name")}
        found["tool_choice"] = {"type": "function", "function": function}
    if "disable_parallel_tool_use" in choice:
        found["parallel_tool_calls"] = not choice["disable_parallel_tool_use"]
    return found


def _is_function(tool: Body) -> bool:
    """Return False for tools that Anthropic's servers run or define."""
    kind = tool.get("type")
    if kind in (None, "custom"):
        return True
    log.warning("tools of type %r are ignored", kind)
    return False


def _tool(tool: Mapping[str, Any]) -> Body:
    function = {
        "name": text(tool, "name"),
        "description": text(tool, "description"),
        "parameters": tool.get("input_schema", {}),
    }
    return {"type": "function", "function": function}


def _system(given: Any) -> list[Body]:
    if given is None:
        return []
    if isinstance(given, str):
        said = _steady(given)
    else:
        blocks = objects({"system": given}, "system")
        check_length("system", len(blocks))
        parts = convert_blocks(blocks)
        if any(part["type"] != "text" for part in parts):
            raise refuse_part("system block", "image", "send 'text'")
        said = "".join(_steady(part["text"]) for part in parts)
    return [{"role": "system", "content": said}]


def _steady(said: str) -> str:
    """Return a system prompt without the changing stamp that a client puts before it, which would
    prevent cache hits."""
    return _STAMP.sub(r"\1fffff", said, count=1)


_STAMP = re.compile(r"\A(x-anthropic-billing-header:[^\n]*?cch=).{5}(?=;)")


def _messages(message: Body) -> list[Any]:
    """Return the messages for one; tool results follow their calls as separate messages."""
    content = message.get("content")
    if "content" not in message and message.get("role") == "assistant":
        return []
    if not isinstance(content, list):
        return [message]
    parts: list[Body] = []
    calls: list[Body] = []
    results: list[Body] = []
    thoughts = ""
    for block in objects(message, "content"):
        kind = block.get("type")
        if kind == "thinking":
            thoughts += string(block, "thinking")
        elif kind == "tool_use":
            calls.append(_call(block))
        elif kind == "tool_result":
            results.append(_result(block))
        elif kind != "redacted_thinking":  # encrypted
            parts += convert_blocks([block])
    found: list[Any] = []
    if parts or calls or thoughts:
        said: Body = {"role": text(message, "role"), "content": parts or ""}
        said |= {"tool_calls": calls} if calls else {}
        said |= {"reasoning_content": thoughts} if thoughts else {}
        found.append(said)
    return [*results, *found]


def _call(block: Body) -> Body:
    given = block.get("input", {})
    if not isinstance(given, str):  # a string is from a truncated response
        given = json.dumps(given, ensure_ascii=False, separators=(",", ":"))
    function = {"name": string(block, "name"), "arguments": given}
    return {"id": text(block, "id"), "type": "function", "function": function}


def _result(block: Body) -> Body:
    content = block.get("content")
    if not isinstance(content, str):
        parts = convert_blocks(objects(block, "content"))
        texts = [str(part["text"]) for part in parts if part["type"] == "text"]
        content = "\n".join(texts) if len(texts) == len(parts) else parts
    return {"role": "tool", "tool_call_id": text(block, "tool_use_id"), "content": content}
