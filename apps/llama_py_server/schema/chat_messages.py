"""Messages of chat requests: roles, contents and their parts."""

from __future__ import annotations

from llama_py_server.schema.json_schemas import (
    OBJECTS,
    STRING,
    Schema,
    array,
    constant,
    either,
    record,
)
from llama_py_server.schema.media import KINDS, Media
from llama_py_server.wire.body import Body, check_length, objects, text
from llama_py_server.wire.errors import invalid

IMAGE_PART = record(type=constant("image_url"), image_url=record(url=STRING))
_PART = either(
    record(type=constant("text"), text=STRING),
    record(type=constant("refusal"), refusal=STRING),
    IMAGE_PART,
)
_MESSAGE: Schema = {
    "type": "object",
    "properties": {
        "role": {"enum": ["system", "developer", "user", "assistant", "tool", "function"]},
        "content": either(STRING, array(_PART), {"type": "null"}),
        "tool_calls": OBJECTS,
        "tool_call_id": STRING,
    },
    "required": ["role"],
}
MESSAGES = array(_MESSAGE, 1)


def parse_messages(body: Body, media: Media) -> list[Body]:
    """Return the messages of a request; HTTPError for an invalid message."""
    if "messages" not in body:
        raise invalid("'messages' is required")
    if not isinstance(body["messages"], list):
        raise invalid("Expected 'messages' to be an array")
    messages = objects(body, "messages")
    check_length("messages", sum(map(_n_items, messages)))
    return [_message(message, media) for message in messages]


def _n_items(message: Body) -> int:
    """Return the number of a message, its parts and its calls."""
    lists = (message.get("content"), message.get("tool_calls"))
    return 1 + sum(len(one) for one in lists if isinstance(one, list))


def _message(message: Body, media: Media) -> Body:
    role = message.get("role")
    if not isinstance(role, str):
        raise invalid("each message must have a 'role' of type string")
    if role == "assistant":
        message = _answer(message)
    elif "content" not in message:
        raise invalid("All non-assistant messages must contain 'content'")
    if role == "function":  # older role of a tool result
        message = {**message, "role": "tool"}
    content = message.get("content")
    if isinstance(content, list):
        parts = [_part(part, media) for part in objects(message, "content")]
        return {**message, "content": parts}
    if content is not None and not isinstance(content, str):
        raise invalid("Expected 'content' to be a string or an array")
    return message


def _answer(message: Body) -> Body:
    """Return an earlier answer: its refusal as content, a `function_call` among its calls."""
    found = {key: v for key, v in message.items() if key not in _OF_ANSWERS}
    if isinstance(message.get("audio"), dict):
        raise invalid("'audio' of a message is not supported; send its transcript as 'content'")
    if refusal := text(message, "refusal"):
        content = found.get("content") or []
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        found["content"] = [*parts, {"type": "refusal", "refusal": refusal}]
    if isinstance(message.get("function_call"), dict):
        call = {"type": "function", "function": message["function_call"]}
        found["tool_calls"] = [*objects(message, "tool_calls"), call]
    return found


_OF_ANSWERS = ("audio", "refusal", "function_call")


def _part(part: Body, media: Media) -> Body:
    kind = text(part, "type")
    if kind in ("text", "refusal"):
        if not isinstance(part.get(kind), str):
            raise invalid(f"'{kind}' of a content part must be a string")
        return {"type": "text", "text": part[kind]}
    if kind in KINDS:
        return media.part(part)
    raise invalid(f"unsupported content[].type {kind!r}; send its text as type 'text'")
