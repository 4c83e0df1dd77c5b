"""Constraints of requests, by their names in llama.cpp, OpenAI, vLLM, SGLang, NIM and TGI.

Every field that looks like a constraint is applied or refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from ggml_py.errors import GrammarError
from llama_py.grammar.response_format import read_grammar, read_response_format
from llama_py.grammar.schema import enforce_schema, format_pointers
from llama_py_server.schema.json_schemas import ANY, Schema
from llama_py_server.wire.body import Body, check_unsupported
from llama_py_server.wire.errors import invalid

_LIKE = re.compile(r"guided|structur|grammar|schema|regex|ebnf|lark|constrain|^format$")
REPLACED = "functions", "function_call"  # fields of chats that `tools` and `tool_choice` replace
_ANY = ("json_schema", "guided_json", "json", "format", "choice", "guided_choice")  # though false


class ConstraintField(NamedTuple):
    """A field of SamplingParams (json_schema, grammar, regex, lark), its value, and the name of
    the field in the request."""

    kind: str
    value: Any
    name: str


def find_constraint(body: Mapping[str, Any]) -> ConstraintField | None:
    """Return the constraint of a request. HTTPError for several, or for unknown constraints."""
    check_unsupported(body, REPLACED)
    name = "response_format"
    try:
        form = [ConstraintField(*one, name) for one in read_response_format(body.get(name))]
        found = [*_iter_constraints(body), *form]
    except GrammarError as e:
        raise invalid(str(e)) from None
    if all(one.kind == "json_schema" for one in found):  # a schema implies `{}`, any JSON object
        found = [one for one in found if one.value != {}] or found[:1]
    if any(one[:2] != found[0][:2] for one in found):
        raise invalid(f"Cannot use both {found[0].name} and {found[1].name}")
    if not found:
        return None
    one = _check_constraint(found[0])
    if one.kind == "json_schema" and _is_strict(body.get("response_format")):
        _enforce(one)
    return one


def _is_strict(form: Any) -> bool:
    """Return True if `response_format` has `"strict": true`."""
    given = form.get("json_schema") if isinstance(form, Mapping) else None
    return any(isinstance(one, Mapping) and one.get("strict") is True for one in (form, given))


def _enforce(one: ConstraintField) -> None:
    """Raise HTTPError for a schema that no grammar enforces as a whole."""
    left_out = enforce_schema(json.dumps(one.value)).left_out
    if left_out:
        raise invalid(
            f"'{one.name}': strict is true, but the grammar does not enforce "
            f"{format_pointers(left_out)}; remove these keywords, or strict"
        )


def is_constraint(name: str) -> bool:
    """Return True if a field of a request is, or looks like, a constraint."""
    return name in ("response_format", *_INNER) or _LIKE.search(name) is not None


def select(body: Body, fields: Collection[str]) -> Body:
    """Return the declared fields of a request, and all fields that look like constraints.

    Readers of requests get no others: a field that /openapi.json lacks has no effect.
    """
    return {key: v for key, v in body.items() if key in fields or is_constraint(key)}


def drop_constraint(body: Body) -> Body:
    """Return a request without its constraint, which another object has."""
    return {key: v for key, v in body.items() if not is_constraint(key)}


def _iter_constraints(body: Mapping[str, Any], prefix: str = "") -> Iterator[ConstraintField]:
    for name, value in body.items():
        absent = value in (None, "") or (value in (False, []) and name not in _ANY)
        if absent or not (prefix or name in _INNER or _LIKE.search(name)):
            continue
        if name in _INNER:
            if not isinstance(value, Mapping):
                raise invalid(f"'{name}' must be an object")
            yield from _iter_constraints(value, f"{name}.")
        elif name in _NAMED:
            yield ConstraintField(*_NAMED[name](value), f"{prefix}{name}")
        elif name not in _WITHOUT_EFFECT and not (prefix == "nvext." and not _LIKE.search(name)):
            raise invalid(
                f"'{prefix}{name}' is not supported; known constraints: {', '.join(_NAMED)}"
            )


def _choice(value: Any) -> tuple[str, Any]:
    texts = value if isinstance(value, list) else []
    if not texts or not all(isinstance(text, str) for text in texts):
        raise invalid(f"a choice must be a non-empty array of strings, got {json.dumps(value)}")
    return "lark", "start: " + " | ".join(map(json.dumps, texts))


def _keep_value(kind: str) -> Callable[[Any], tuple[str, Any]]:
    return lambda value: (kind, value)


_INNER = ("structured_outputs", "nvext")  # objects of vLLM and NIM with constraints
_NAMED: dict[str, Callable[[Any], tuple[str, Any]]] = {
    "json_schema": _keep_value("json_schema"),
    "grammar": read_grammar,
    "regex": _keep_value("regex"),
    "lark": _keep_value("lark"),
    "ebnf": _keep_value("grammar"),
    "json": _keep_value("json_schema"),
    "choice": _choice,
    "json_object": lambda value: ("json_schema", {}),
    "guided_json": _keep_value("json_schema"),
    "guided_regex": _keep_value("regex"),
    "guided_choice": _choice,
    "guided_grammar": read_grammar,
    "guided_json_object": lambda value: ("json_schema", {}),
    "format": lambda value: ("json_schema", {} if value == "json" else value),
}
FIELDS: dict[str, Schema] = dict.fromkeys(("response_format", *_NAMED, *_INNER), ANY)
_WITHOUT_EFFECT = ("guided_decoding_backend", "backend", "_backend", "disable_fallback")


def _check_constraint(one: ConstraintField) -> ConstraintField:
    kind, value, name = one
    if kind != "json_schema":
        if not isinstance(value, str):
            raise invalid(f"Field '{name}': must be a string, got {json.dumps(value)}")
        return one
    if isinstance(value, str):  # SGLang's format
        try:
            value = json.loads(value)
        except ValueError as e:
            raise invalid(f"Field '{name}': must be a JSON schema: {e}") from None
    if not isinstance(value, Mapping | bool):
        raise invalid(f"Field '{name}': must be a JSON schema (an object), got {value!r}")
    return ConstraintField(kind, value if value != {} else {"type": "object"}, name)
