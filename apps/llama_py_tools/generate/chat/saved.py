"""Conversations in files: JSON with messages and non-default settings."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ggml_py.errors import ModelError
from llama_py.chat.messages import IMAGE
from llama_py_tools.generate.chat import settings

KIND = "llama-py conversation"
VERSION = 1
MAX_BYTES = 64 << 20
ROLES = ("system", "user", "assistant", "tool")
TEXTS = ("content", "reasoning_content", "name", "tool_call_id")
KEYS = ("role", *TEXTS, "tool_calls")
_NEEDED_ROLES = {"tool_calls": "assistant", "name": "tool", "tool_call_id": "tool"}

Message = dict[str, Any]


def save(
    path: Path, model: str, messages: Sequence[Mapping[str, Any]], now: Mapping[str, Any]
) -> None:
    """Write a conversation to a private file, replacing a file of this name.
    ModelError for a conversation that `load` would refuse."""
    data = {
        "kind": KIND,
        "version": VERSION,
        "model": model,
        "messages": [{k: m[k] for k in KEYS if k in m} for m in messages],
        "settings": {name: _to_json(value) for name, value in now.items() if value != _usual(name)},
    }
    text = json.dumps(data, indent=1) + "\n"
    if len(text) > MAX_BYTES:  # all ASCII
        raise ModelError(
            f"the conversation with its images has {len(text) >> 20} MiB, more than the "
            f"{MAX_BYTES >> 20} MiB that /load accepts, so it is not saved; start one with fewer "
            "images (/clear)"
        )
    made = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)


def load(path: Path) -> tuple[list[Message], dict[str, Any]]:
    """Load messages and settings; ModelError if the file is not a conversation."""
    with path.open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise ModelError(f"{path} must have at most {MAX_BYTES >> 20} MiB; load another file")
    try:
        data = json.loads(raw, parse_constant=_no_number)
    except (ValueError, RecursionError) as e:
        raise ModelError(f"{path} is not a conversation: {str(e)[:60]}") from None
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise ModelError(f"{path} is not a conversation saved by /save")
    if data.get("version") != VERSION:
        raise ModelError(f"{path} must have version {VERSION}, got {_shorten(data.get('version'))}")
    try:
        return _messages(data.get("messages")), _settings(data.get("settings", {}))
    except ModelError as e:
        raise ModelError(f"{path}: {e}") from None


def _messages(found: Any) -> list[Message]:
    if not isinstance(found, list):
        raise ModelError("messages must be a list")
    for i, m in enumerate(found):
        if not isinstance(m, dict) or not m.keys() <= {*KEYS} or "content" not in m:
            raise ModelError(f"message {i} must have role and content, and no other keys")
        if m.get("role") not in ROLES or (m["role"] == "system" and i):
            raise ModelError(
                f"message {i} has role {_shorten(m.get('role'))}; only the first message may be "
                "system"
            )
        texts = [m.get(k, "") for k in TEXTS]
        if any(key in m and m["role"] != role for key, role in _NEEDED_ROLES.items()):
            raise ModelError(f"message {i} must have role and content, and keys of its role only")
        if "tool_calls" in m:
            texts = [texts[0] or "", *texts[1:], *_check_calls(m["tool_calls"])]
        if isinstance(texts[0], list) and m["role"] == "user":
            texts[:1] = _check_texts(texts[0])
        if not all(isinstance(text, str) and _is_text(text) for text in texts):
            raise ModelError(f"message {i} must have string content")
    return found


def _check_calls(calls: Any) -> list[Any]:
    """Return the values that must be texts in tool calls."""
    found: list[Any] = []
    for call in calls if isinstance(calls, list) else [None]:
        if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
            return [None]
        found += [call["function"].get(key) for key in ("name", "arguments")]
        found.append(call.get("id", ""))
    return found


def _check_texts(parts: list[Any]) -> list[Any]:
    """Return the values that must be texts in a content with images: its texts, and URLs."""
    found = []
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        value = part.get(kind) if kind in ("text", IMAGE) else None
        found.append(value.get("url") if kind == IMAGE and isinstance(value, dict) else value)
    return found


def _is_text(text: str) -> bool:
    """Return True if a text has no lone surrogates, except bytes that are not UTF-8."""
    return not any("\ud800" <= c <= "\udfff" and not "\udc80" <= c <= "\udcff" for c in text)


def _settings(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ModelError("settings must be an object of names and values")
    return {name: _value(name, value) for name, value in found.items()}


def _value(name: str, value: Any) -> Any:
    known = settings.settings().get(name)
    if known is None:
        raise ModelError(f"unknown setting {_shorten(name)}; /set lists all")
    usual = _usual(name)
    if isinstance(usual, Mapping):
        return dict(_pairs(name, value))
    if isinstance(usual, tuple) or isinstance(value, list):
        if not isinstance(value, list) or not all(isinstance(x, str) for x in value):
            raise ModelError(f"{name} must be a list of strings, got {_shorten(value)}")
        return tuple(value)
    option = known[1]
    if option.check is not None and not option.check.holds(value):
        raise ModelError(f"{name} must be {option.check.text}, got {_shorten(value)}")
    return value


def _pairs(name: str, value: Any) -> list[tuple[int | str, float]]:
    good = isinstance(value, list) and all(
        isinstance(p, list)
        and len(p) == 2
        and isinstance(p[0], (int, str))
        and isinstance(p[1], (int, float))
        for p in value
    )
    if not good:
        got = _shorten(value)
        raise ModelError(f"{name} must be a list of pairs, such as [[15043, 1.0]], got {got}")
    return [(key, -math.inf if bias <= -1e30 else bias) for key, bias in value]


def _to_json(value: Any) -> Any:
    """Convert a value to its JSON form."""
    if isinstance(value, Mapping):
        return [[key, max(bias, -1e30)] for key, bias in value.items()]
    return list(value) if isinstance(value, tuple) else value


def _usual(name: str) -> Any:
    field, _ = settings.settings()[name]
    return {} if field.default_factory is dict else field.default


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not a number")


def _shorten(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return repr(text[:60]) if isinstance(value, str) else text[:60]
