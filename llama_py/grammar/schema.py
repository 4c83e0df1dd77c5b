"""Conversion of a JSON schema to llguidance's form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ggml_py.errors import GrammarError
from llama_py.grammar.closed import close_objects
from llama_py.grammar.formats import exact
from llama_py.grammar.messages import one_line
from llama_py.grammar.place import position_error
from llama_py.grammar.places import Part, walk_schema
from llama_py.grammar.trial import trial
from llama_py.grammar.widen import UNSATISFIABLE, widen_schema, without_values

MAX_DEPTH = 100
MAX_ALONE = 2000  # characters
MAX_SHOWN = 8  # pointers in a message
MAX_PARTS = 200  # limit of the search for the wrong part
# Between parts of the response: empty, a space, or a newline and indentation.
SPACE = r"| |\n[ \t]{0,20}"
ONE_OF = "oneOf constraints are not supported"
SLOW = "simplify it"  # end of the errors of schemas that take too long or too much memory

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class EnforcedSchema:
    """The part of a schema that a grammar can enforce.

    Attributes:
        form: The schema in llguidance's form.
        schema: The enforced schema, as JSON.
        options: llguidance's options for the schema.
        left_out: JSON pointers of the assertions that the grammar does not enforce.
    """

    form: str
    schema: str
    options: Mapping[str, Any]
    left_out: tuple[str, ...] = ()

    @property
    def in_lark(self) -> str:
        """The schema for `%json` in a Lark grammar."""
        guided = {**_exact(self.schema), "x-guidance": dict(self.options)}
        return json.dumps(guided, ensure_ascii=False)


@lru_cache(256)
def enforce_schema(text: str, lenient: bool = False) -> EnforcedSchema:
    """Return the part of a schema that a grammar can enforce.

    Args:
        text: The schema as JSON.
            lenient: If True, replace malformed schemas by a wider one as well.

    Raises:
        GrammarError: The text is not JSON, the schema is malformed, or no value meets it.
    """
    schema = close_objects(_read(text))
    left_out = widen_schema(schema, lenient)
    found, error = _compile(schema, left_out)
    if error and not error.endswith(SLOW) and UNSATISFIABLE not in error:
        copy = json.loads(json.dumps(schema))
        more = [*left_out, *without_values(copy)]
        simpler, other = _compile(copy, more)
        found, error = (simpler, "") if not other and len(more) > len(left_out) else (found, error)
    elif not error and "coerce_one_of" not in found.options and _may_overlap(text, lenient):
        found = replace(found, left_out=(*found.left_out, *_oneof_paths(schema)))
    if error and lenient:
        found, error = _compile({"type": "object"} if _is_object(schema) else {}, [""])
    if error:
        raise GrammarError(
            f"{one_line('json_schema', error)}{_error_path(json.dumps(schema), error)}"
        )
    return found


def format_pointers(pointers: Sequence[str]) -> str:
    """Return JSON pointers as a text; the whole schema is `/`."""
    shown = [pointer or "/" for pointer in pointers[:MAX_SHOWN]]
    more = f" and {len(pointers) - MAX_SHOWN} more" if len(pointers) > MAX_SHOWN else ""
    return json.dumps(", ".join(shown))[1:-1] + more


def _compile(schema: Part, left_out: Sequence[str]) -> tuple[EnforcedSchema, str]:
    """Compile a schema; return llguidance's error, "" if it takes the schema."""
    text = json.dumps(schema, ensure_ascii=False)
    form, coerced, error = _form(text)
    options: dict[str, Any] = {"whitespace_pattern": SPACE}
    if coerced:
        options["coerce_one_of"] = True
        left_out = [*left_out, *_oneof_paths(schema)]
    return EnforcedSchema(form, text, options, tuple(left_out)), error


def _oneof_paths(schema: Part) -> list[str]:
    return [f"{at}/oneOf" for at, one in walk_schema(schema) if "oneOf" in one]


def _may_overlap(text: str, lenient: bool) -> bool:
    """Return True if a value may meet two branches of `oneOf`, unless objects are closed."""
    schema = _read(text)
    widen_schema(schema, lenient)
    return bool(_oneof_paths(schema)) and _form(json.dumps(schema, ensure_ascii=False))[1]


@lru_cache(256)
def _form(text: str) -> tuple[str, bool, str]:
    """Return llguidance's form of a schema, whether it takes `oneOf` as `anyOf`, and its error."""
    exactly = json.dumps(_exact(text), ensure_ascii=False)
    form, error = _try_schema(exactly, whitespace_pattern=SPACE)
    if ONE_OF not in error:
        return form, False, error
    form, error = _try_schema(exactly, whitespace_pattern=SPACE, coerce_one_of=True)
    return form, True, error


def _exact(text: str) -> Part:
    return exact(json.loads(text))


def _is_object(schema: Part) -> bool:
    return bool(schema.get("type", "object") == "object")


def _try_schema(schema: str, **how: Any) -> tuple[str, str]:
    """Return llguidance's form, and its error message."""
    from llguidance import LLMatcher

    options: Any = how
    try:
        form = str(LLMatcher.grammar_from_json_schema(schema, overrides=options))
    except ValueError as e:  # numbers that are invalid JSON
        return "", str(e)
    return form, trial(form)


def _no_number(name: str) -> Any:
    raise GrammarError(f"JSON schema: {name} is not a JSON number")


def _read(text: str) -> Part:
    try:
        schema = json.loads(text, parse_constant=_no_number)
    except json.JSONDecodeError as e:
        raise position_error(text, e.pos, e.msg[:1].lower() + e.msg[1:], "JSON schema") from None
    except RecursionError:
        raise GrammarError(
            f"JSON schema: brackets must be nested at most {MAX_DEPTH} levels; simplify it"
        ) from None
    except GrammarError:
        raise
    except ValueError:
        raise GrammarError(
            "JSON schema: a number has too many digits; use a smaller number"
        ) from None
    if schema is True:
        return {}
    if not isinstance(schema, dict):
        raise GrammarError(
            f'JSON schema must be an object, such as {{"type": "string"}}, got {text[:20]!r}'
        )
    for path, _ in _parts(schema):
        if len(path) > MAX_DEPTH:
            raise GrammarError(
                f"JSON schema: brackets must be nested at most {MAX_DEPTH} levels; simplify it"
            )
    try:
        json.dumps(schema, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise GrammarError(
            "JSON schema: invalid character (half a surrogate pair, \\ud800 to \\udfff)"
        ) from None
    return dict(schema)


def _parts(schema: Any) -> Iterator[tuple[Path, Any]]:
    """Yield all values with their paths, outer values first."""
    left: list[tuple[Path, Any]] = [((), schema)]
    for path, value in left:
        yield path, value
        if isinstance(value, dict):
            left += [((*path, key), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            left += [((*path, i), inner) for i, inner in enumerate(value)]


def _error_path(text: str, error: str) -> str:
    """Return ` (at /properties/a)`: the smallest part with the same error."""
    found: Path = ()
    inner = [path for path, value in _parts(json.loads(text)) if isinstance(value, dict)]
    for path in inner[1:MAX_PARTS]:
        part = json.loads(text)
        for key in path:
            part = part[key]
        if path[: len(found)] != found or "$ref" in part:
            continue
        alone = json.dumps(part)
        if len(alone) < MAX_ALONE and _try_schema(alone)[1] == error:
            found = path
    return f" (at /{'/'.join(map(str, found))})" if found else ""
