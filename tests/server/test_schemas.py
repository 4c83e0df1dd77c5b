"""Every part of a message in the three interfaces is read, refused by its name, or listed in docs.

The schemas are those of the clients' packages: each TypedDict is filled with samples of its types.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from ggml_py.errors import ModelError
from llama_py_server import from_anthropic, from_responses
from llama_py_server.chat import conversation
from llama_py_server.errors import HTTPError
from llama_py_server.state import State

Body = dict[str, Any]
Convert = Callable[[Body], Body]
DOCS = (Path(__file__).parents[2] / "docs" / "server.md").read_text("utf-8")
LEFT = "read it, refuse it by its name, or list it in docs/server.md"
WORD = "MARKER"  # in every text of a sample
USER = {"role": "user", "content": "Hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def listed(path: str, table: str = "### Parts") -> set[str]:
    """The names that the docs call without effect."""
    table = DOCS.partition(table)[2].partition("\n#")[0]
    (line,) = re.findall(rf"^\| `{path}` \|.*\|(.*) \|$", table, re.MULTILINE)
    return set(re.findall(r"`([^`]+)`", line))


@cache
def hints(kind: type) -> dict[str, Any]:
    from typing_extensions import get_type_hints  # as the packages use it

    return get_type_hints(kind)


@cache
def required(kind: Any) -> frozenset[str]:
    """The fields that a TypedDict must have; its own list does not know postponed annotations."""
    from typing_extensions import Required, get_type_hints

    marked = get_type_hints(kind, include_extras=True)
    return frozenset(
        name for name, hint in marked.items()
        if kind.__total__ or typing.get_origin(hint) is Required
    )  # fmt: skip


def unions(kind: Any) -> Iterator[Any]:
    """The alternatives of a type, those of a union in turn."""
    if isinstance(kind, typing.TypeAliasType if hasattr(typing, "TypeAliasType") else ()):
        kind = kind.__value__
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        for one in typing.get_args(kind):
            yield from unions(one)
    else:
        yield kind


def sample(kind: Any, depth: int = 0) -> Any:
    """A value of a type: of a union the first, of a TypedDict what it requires."""
    kind = next(one for one in unions(kind) if one is not type(None))
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return args[0]
    if hasattr(kind, "__required_keys__"):
        fields = required(kind) | ({"content"} & set(hints(kind)))
        return {name: sample(hints(kind)[name], depth + 1) for name in sorted(fields)}
    if origin is dict:
        return {WORD: WORD}
    if origin in (list, typing.Iterable) or "Iterable" in str(origin) or "Sequence" in str(origin):
        return [sample(args[0], depth + 1)]
    return {str: WORD, int: 3, float: 0.25, bool: True, object: WORD}.get(kind, WORD)


def values(kind: Any) -> list[Any]:
    """Values of a field that may have an effect: every alternative and word."""
    found: list[Any] = []
    for one in unions(kind):
        if typing.get_origin(one) is typing.Literal:
            found += typing.get_args(one)
        elif one is bool:
            found += [True, False]
        elif one is not type(None):
            found.append(sample(one))
    return found


def understood(state: State, convert: Convert, body: Body) -> Any:
    """What a request becomes, or the words of its refusal."""
    try:
        found = conversation(state, convert(body))
    except (HTTPError, ModelError) as e:
        return str(e)
    answering: Any = found.task.answering
    asked = answering._asked
    said = found.prompt + str(asked.messages)  # a template may leave thoughts out
    return said, replace(asked, messages=()), replace(found.task, answering=None)


def chat(message: Body) -> Body:
    of_call = message["role"] in ("tool", "function")
    before = [{"role": "assistant", "content": None, "tool_calls": [CALL]}] if of_call else []
    return {"messages": [USER, *before, message, *([USER] if not of_call else [])]}


def responses(item: Body) -> Body:
    call = {"type": "function_call", "call_id": WORD, "name": "f", "arguments": "{}"}
    of_call = str(item.get("type")).endswith("_output")
    return {"input": [USER, *([call] if of_call else []), item, *([USER] if not of_call else [])]}


def anthropic(role: str, *blocks: Body) -> Body:
    return {"messages": [USER, {"role": role, "content": [*blocks]}, USER]}


def result(*blocks: Body) -> Body:
    found = {"type": "tool_result", "tool_use_id": "t", "content": [*blocks]}
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    return {"messages": [
        USER, {"role": "assistant", "content": [call]}, {"role": "user", "content": [found]}
    ]}  # fmt: skip


def typed_dicts(kind: Any) -> list[type]:
    return [one for one in unions(kind) if hasattr(one, "__required_keys__")]


def cases() -> Iterator[tuple[str, Convert, type, Callable[[Body], Body]]]:
    """The path, its conversion, a TypedDict, and what makes a request of a sample."""
    from anthropic import types as a
    from openai.types import chat as c
    from openai.types import responses as r

    for message in typed_dicts(c.ChatCompletionMessageParam):
        yield "/v1/chat/completions", dict, message, chat
    for part in typed_dicts(c.ChatCompletionContentPartParam):
        yield "/v1/chat/completions", dict, part, lambda p: chat({"role": "user", "content": [p]})
    convert = from_responses.chat_body
    for item in typed_dicts(r.ResponseInputItemParam):
        yield "/v1/responses", convert, item, responses
    for part in typed_dicts(r.ResponseInputContentParam):
        yield "/v1/responses", convert, part, lambda p: responses({"role": "user", "content": [p]})
    convert = from_anthropic.chat_body
    for block in typed_dicts(a.ContentBlockParam):
        role = "assistant" if "hinking" in block.__name__ or "Use" in block.__name__ else "user"
        yield "/v1/messages", convert, block, partial(anthropic, role)
    for block in typed_dicts(typing.get_args(hints(a.ToolResultBlockParam)["content"])[1]):
        yield "/v1/messages", convert, block, result


def described(*packages: str) -> bool:
    """Whether the docs are of the installed packages: others may have more fields."""
    short = (f"{name} {'.'.join(version(name).split('.')[:2])}" for name in packages)
    return all(name in DOCS for name in short)


def test_parts_of_messages(state: State) -> None:
    left = []
    for path, convert, kind, body in cases():
        given = sample(kind)
        type_ = str(given.get("type", given.get("role")))
        found = understood(state, convert, body(given))
        if not (names(found, type_) if isinstance(found, str) else WORD in found[0]):
            left += [] if type_ in listed(path) else [f"{path} {kind.__name__}: {found[0]}"]
    assert not left, f"{LEFT}: {left}"


def test_fields_of_parts(state: State) -> None:
    if not described("openai", "anthropic"):
        pytest.skip("docs/server.md lists the fields of other versions")
    left = []
    for path, convert, kind, body in cases():
        given = sample(kind)
        before = understood(state, convert, body(given))
        if isinstance(before, str):
            continue
        for name in sorted(set(hints(kind)) - set(given) - listed(path) - {"type"}):
            found = [understood(state, convert, body({**given, name: value}))
                     for value in values(hints(kind)[name])]
            if not any(names(one, name) if isinstance(one, str) else one != before
                       for one in found):
                left.append(f"{path} {kind.__name__} {name}")
    assert not left, f"{LEFT}: {left}"


def names(message: str, what: str) -> bool:
    """Whether a refusal has a name, or says which kind of input it is."""
    return what in message or what.split("_")[0] in message


def test_fields_of_messages(state: State) -> None:
    """OpenAI's are in test_fields.py."""
    from anthropic.types.message_create_params import MessageCreateParamsBase as Params

    if not described("anthropic"):
        pytest.skip("docs/server.md lists the fields of another version")

    def asked(**more: Any) -> Any:
        body = {"messages": [USER], "max_tokens": 9, **more}
        return understood(state, from_anthropic.chat_body, body)

    left = []
    without = listed("/v1/messages", "### Fields") | {"messages", "model"}
    for name in sorted(set(hints(Params)) - without):
        more = {"tools": [{"name": "f", "input_schema": {}}]} if name == "tool_choice" else {}
        changed = [asked(**more, **{name: value}) for value in values(hints(Params)[name])]
        changed += [asked(**more, **{name: {"effort": "low"}})] if "config" in name else []
        if all(one == asked(**more) for one in changed):
            left.append(name)
    assert not left, f"{LEFT}: {left}"
