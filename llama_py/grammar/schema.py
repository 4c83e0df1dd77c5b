"""A JSON schema in llguidance's form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ggml_py.errors import GrammarError
from llama_py.grammar.closed import closed
from llama_py.grammar.formats import exact
from llama_py.grammar.messages import one_line
from llama_py.grammar.place import error_at
from llama_py.grammar.trial import trial

MAX_DEPTH = 100
MAX_ALONE = 2000  # characters
MAX_PARTS = 200  # that are tried to find the wrong one
# Between parts of the answer: nothing, a space, or a new line and what indents it.
SPACE = r"| |\n[ \t]{0,20}"
ONE_OF = "oneOf constraints are not supported"

Path = tuple[str | int, ...]


def schema_text(text: str) -> tuple[str, tuple[str, ...]]:
    """llguidance's form, and what to warn of. Raises GrammarError for what is no JSON, or no
    schema that can be kept."""
    schema = _read(text)
    warnings: tuple[str, ...] = ()
    form, error = _tried(schema, whitespace_pattern=SPACE)
    if ONE_OF in error:
        form, error = _tried(schema, whitespace_pattern=SPACE, coerce_one_of=True)
        warnings = ("oneOf is kept as anyOf: an answer may be what more than one of them takes",)
    if error:
        raise GrammarError(f"{one_line('json_schema', error)}{_where(schema, error)}")
    return form, warnings


def schema_in_lark(text: str) -> str:
    """A schema for `%json` in a Lark grammar. Raises GrammarError, as `schema_text`."""
    _, warnings = schema_text(text)
    guided = json.loads(_read(text))
    guided["x-guidance"] = {"whitespace_pattern": SPACE, "coerce_one_of": bool(warnings)}
    return json.dumps(guided, ensure_ascii=False)


def _tried(schema: str, **how: Any) -> tuple[str, str]:
    """llguidance's form, and what is wrong."""
    from llguidance import LLMatcher

    options: Any = how
    try:
        form = str(LLMatcher.grammar_from_json_schema(schema, overrides=options))
    except ValueError as e:  # numbers that only Python reads
        return "", str(e)
    return form, trial(form)


def _no_number(name: str) -> Any:
    raise GrammarError(f"JSON schema: {name} is no number of JSON")


def _read(text: str) -> str:
    try:
        schema = json.loads(text, parse_constant=_no_number)
    except json.JSONDecodeError as e:
        raise error_at(text, e.pos, e.msg[:1].lower() + e.msg[1:], "JSON schema") from None
    except RecursionError:
        raise GrammarError(f"JSON schema: more than {MAX_DEPTH} brackets in one another") from None
    except GrammarError:
        raise
    except ValueError:
        raise GrammarError("JSON schema: a number has thousands of digits") from None
    if schema is True:
        return "{}"
    if not isinstance(schema, dict):
        raise GrammarError(
            f"JSON schema: it must be an object, as {{\"type\": \"string\"}}, it is {text[:20]!r}"
        )
    for path, _ in _parts(schema):
        if len(path) > MAX_DEPTH:
            raise GrammarError(f"JSON schema: more than {MAX_DEPTH} brackets in one another")
    found = json.dumps(exact(closed(schema)), ensure_ascii=False)
    try:
        found.encode()
    except UnicodeEncodeError:
        raise GrammarError("JSON schema: half a character, \\ud800 to \\udfff") from None
    return found


def _parts(schema: Any) -> Iterator[tuple[Path, Any]]:
    """All values and where they stand, those in others later."""
    left: list[tuple[Path, Any]] = [((), schema)]
    for path, value in left:
        yield path, value
        if isinstance(value, dict):
            left += [((*path, key), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            left += [((*path, i), inner) for i, inner in enumerate(value)]


def _where(text: str, error: str) -> str:
    """` (at /properties/a)`: the smallest part that alone is wrong in the same way."""
    found: Path = ()
    inner = [path for path, value in _parts(json.loads(text)) if isinstance(value, dict)]
    for path in inner[1:MAX_PARTS]:
        part = json.loads(text)
        for key in path:
            part = part[key]
        if path[: len(found)] != found or "$ref" in part:
            continue
        alone = json.dumps(part)
        if len(alone) < MAX_ALONE and _tried(alone)[1] == error:
            found = path
    return f" (at /{'/'.join(map(str, found))})" if found else ""
