"""Every part of a message in the three interfaces is read, refused by its name, or listed in docs.

The schemas are those of the clients' packages: each TypedDict is filled with samples of its types.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from ggml_py.errors import ModelError
from llama_py_server.models.state import ModelState
from llama_py_server.schema import from_anthropic, from_responses
from llama_py_server.schema.chat import read_chat
from llama_py_server.wire.errors import HTTPError

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
        name
        for name, hint in marked.items()
        if kind.__total__ or typing.get_origin(hint) is Required
    )


def unions(kind: Any) -> Iterator[Any]:
    """The alternatives of a type, those of a union in turn."""
    if isinstance(kind, typing.TypeAliasType if hasattr(typing, "TypeAliasType") else ()):
        kind = kind.__value__
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        for one in typing.get_args(kind):
            yield from unions(one)
    else:
        yield kind


def item_of(kind: Any) -> Any:
    """The type of a list's items; None for another type."""
    origin = typing.get_origin(kind)
    is_list = origin in (list, typing.Iterable) or "Iterable" in str(origin)
    return typing.get_args(kind)[0] if is_list or "Sequence" in str(origin) else None


def sample(kind: Any) -> Any:
    """A value of a type: of a union the first, of a TypedDict what it requires."""
    kind = next(one for one in unions(kind) if one is not type(None))
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return args[0]
    if hasattr(kind, "__required_keys__"):
        fields = required(kind) | ({"content", "schema"} & set(hints(kind)))
        return {name: sample(hints(kind)[name]) for name in sorted(fields)}
    if origin is dict:
        return {WORD: sample(args[1])} if args[1] is not object else {"not": {"const": WORD}}
    if items := item_of(kind):
        return [sample(items)]
    return {str: WORD, int: 3, float: 0.25, bool: True, object: WORD}.get(kind, WORD)


def samples(kind: Any) -> Iterator[Body]:
    """The sample of a TypedDict, and with each alternative of a required field."""
    first = sample(kind)
    yield first
    for name in sorted(required(kind)):
        for one in unions(hints(kind)[name]):
            if one is not type(None) and sample(one) != first[name]:
                yield {**first, name: sample(one)}


def values(kind: Any) -> list[Any]:
    """Values of a field that may have an effect: every alternative and word."""
    found: list[Any] = []
    for one in unions(kind):
        if typing.get_origin(one) is typing.Literal:
            found += typing.get_args(one)
        elif one in (str, int):
            found += [sample(one), "other" if one is str else 4]
        elif typing.get_origin(one) is dict:
            found += [sample(one), {"type": "integer"}]
        elif items := item_of(one):
            found += [[value] for value in values(items)]
        elif one is bool:
            found += [True, False]
        elif one is not type(None):
            found.append(sample(one))
    return found


def understood(state: ModelState, convert: Convert, body: Body) -> Any:
    """What a request becomes, or the words of its refusal."""
    try:
        prompt, *asked = read_chat(state, convert(body))
    except (HTTPError, ModelError) as e:
        return str(e)
    said = prompt.text + str(prompt.messages)  # a template may leave thoughts out
    request, delivery = asked
    return said, prompt.tools, prompt.options, replace(request, chat=None), delivery


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
    return {
        "messages": [
            USER,
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [found]},
        ]
    }


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


def test_parts_of_messages(state: ModelState) -> None:
    left = []
    for path, convert, kind, body in cases():
        given = sample(kind)
        type_ = str(given.get("type", given.get("role")))
        found = understood(state, convert, body(given))
        if not (names(found, type_) if isinstance(found, str) else WORD in found[0]):
            left += [] if type_ in listed(path) else [f"{path} {kind.__name__}: {found[0]}"]
    assert not left, f"{LEFT}: {left}"


def test_fields_of_parts(state: ModelState) -> None:
    if not described("openai", "anthropic"):
        pytest.skip("docs/server.md lists the fields of other versions")
    left = []
    for path, convert, kind, body in cases():

        def makes(part: Any, convert: Convert = convert, body: Any = body) -> Any:
            return understood(state, convert, body(part))

        if sample(kind).get("type") not in listed(path):
            unread = unread_of(makes, fields(kind, kind.__name__), listed(path))
            left += [f"{path} {one}" for one in unread]
    assert not left, f"{LEFT}: {left}"


def names(message: str, what: str) -> bool:
    """Whether a refusal has a name, or says which kind of input it is."""
    return what in message or what.split("_")[0] in message


def fields(kind: Any, name: str) -> Iterator[tuple[str, Any, list[Any]]]:
    """The fields within a type: dotted name, a value of the whole, the same with other fields."""
    for one in unions(kind):
        if items := item_of(one):
            inner = fields(items, name)
            yield from ((at, [base], [[value] for value in other]) for at, base, other in inner)
        for field, hint in hints(one).items() if hasattr(one, "__required_keys__") else ():
            at = f"{name}.{field}"
            inner = [*fields(hint, at)] if name.count(".") < 4 else []
            for base in samples(one) if not inner else [sample(one)]:
                for path, value, other in inner or [(at, base.get(field), values(hint))]:
                    yield path, {**base, field: value}, [{**base, field: v} for v in other]


def requests() -> Iterator[tuple[str, Convert, type, Body]]:
    from anthropic.types.beta.message_create_params import MessageCreateParamsBase as Messages
    from openai.types.chat.completion_create_params import CompletionCreateParamsBase as Chat
    from openai.types.responses.response_create_params import ResponseCreateParamsBase as Responses

    chat = {"messages": [USER], "max_tokens": 9}
    yield "/v1/chat/completions", dict, Chat, chat
    yield "/v1/responses", from_responses.chat_body, Responses, {"input": "Hi"}
    yield "/v1/messages", from_anthropic.chat_body, Messages, chat


def test_fields_of_requests(state: ModelState) -> None:
    """Those within others, too, but not the parts of messages."""
    if not described("openai", "anthropic"):
        pytest.skip("docs/server.md lists the fields of other versions")
    tool = {"name": WORD, "input_schema": {}, "function": {"name": WORD}, "type": "function"}
    given = {"tool_choice": {"tools": [tool]}, "function_call": {"functions": [{"name": WORD}]}}
    left = []
    for path, convert, kind, least in requests():
        for name in hints(kind).keys() - {"messages", "input", "model"}:
            body = least | given.get(name, {})

            def makes(value: Any, c: Convert = convert, b: Body = body, name: str = name) -> Any:
                return understood(state, c, {**b, name: value})

            hint, plain = hints(kind)[name], makes(None)
            found = [one for one in fields(hint, name) if name != "tools" or makes(one[1]) != plain]
            found = [(name, None, values(hint)), *found]
            left += [f"{path} {at}" for at in unread_of(makes, found, listed(path, "### Fields"))]
    assert not left, f"{LEFT}: {left}"


def unread_of(
    makes: Callable[[Any], Any], found: Iterable[tuple[str, Any, list[Any]]], without: set[str]
) -> Iterator[str]:
    """The fields that change nothing, and are neither refused nor listed as without effect."""
    for at, base, others in found:
        others = [other for other in others if other not in (base, {}, [{}])]
        known = any(f".{one}." in f".{at}." for one in without)
        if not others or at.endswith(".type") or known:
            continue
        before, after = makes(base), [makes(other) for other in others]
        told = [one for one in after if isinstance(one, str)]
        refused = any(names(one, part) for one in told for part in at.split("."))
        if not (isinstance(before, str) or refused or any(one != before for one in after)):
            yield at
