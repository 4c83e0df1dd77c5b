"""Constraint of a response in the form of the OpenAI API's `response_format`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ggml_py.errors import GrammarError

_START = re.compile(r"^\s*start\s*:", re.MULTILINE)  # start rule of a Lark grammar
_WRAPPER = {"name", "strict", "description", "schema"}  # keys next to the schema in `json_schema`


def read_response_format(form: Any, name: str = "response_format") -> Iterator[tuple[str, Any]]:
    """Yield the field of SamplingParams (json_schema, regex, grammar, lark) and its value for a
    `response_format`, if it constrains the response.

    {"type": "json_object"} may have a schema; {"type": "json_schema", "json_schema": {"schema":
    ...}} has one. Raises GrammarError for another form.
    """
    if form is None:
        return
    if not isinstance(form, Mapping):
        raise GrammarError(f"'{name}' must be an object")
    kind, value = form.get("type"), form.get("value")
    if kind in ("json_object", "json_schema", "json"):
        names = ("schema", "value", "json_schema")
        given: Any = next((form[k] for k in names if form.get(k) is not None), {})
        yield "json_schema", given if kind == "json" else _unwrap(given)
    elif kind == "regex":
        yield "regex", form.get("regex", form.get("pattern", value))
    elif kind == "grammar":
        yield read_grammar(form.get("grammar", value))
    elif kind not in (None, "", "text") or form.keys() - {"type"}:
        raise GrammarError(
            f'{name} type must be one of "text", "json_object", "json_schema", "regex" or'
            f' "grammar", but got: {kind}'
        )


def read_grammar(value: Any) -> tuple[str, Any]:
    """Return a grammar in GBNF or Lark, distinguished by their arrows; TGI has an object with the
    type."""
    if isinstance(value, Mapping):
        found = [*read_response_format(value, "grammar")]
        if found:
            return found[0]
    is_lark = isinstance(value, str) and "::=" not in value and _START.search(value)
    return ("lark" if is_lark else "grammar"), value


def sampling_options(form: Any) -> dict[str, Any]:
    """Return the fields of SamplingParams for a `response_format`; {} is any JSON object."""
    found = dict(read_response_format(form))
    if found.get("json_schema") == {}:
        found["json_schema"] = {"type": "object"}
    if isinstance(found.get("json_schema"), Mapping):
        found["json_schema"] = json.dumps(found["json_schema"])
    return found


def _unwrap(given: Any) -> Any:
    """Return the schema, which may be in an object with its name."""
    if not isinstance(given, Mapping):
        return given
    if given.get("schema") is not None:
        return given["schema"]
    return {} if given.keys() <= _WRAPPER else given
