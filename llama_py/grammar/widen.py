"""Widening of schemas: assertions that llguidance does not support are removed and listed.

The result accepts each value that the schema accepts, and possibly more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations
from typing import Any

from llama_py.grammar.formats import in_rust
from llama_py.grammar.places import Part, escape_pointer, sibling_schemas, target, walk_schema
from llama_py.grammar.trial import trial

# Keywords of JSON Schema that llguidance refuses.
_UNKNOWN = (
    "not",
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "uniqueItems",
    "propertyNames",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "unevaluatedProperties",
    "unevaluatedItems",
    "$dynamicRef",
    "$recursiveRef",
)
_LOW, _HIGH = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")
_NUMBERS = (*_LOW, *_HIGH, "multipleOf")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
EXACT = 2**53  # llguidance rounds numbers to float64
UNSATISFIABLE = "Unsatisfiable"  # begins the errors of schemas that no value meets


def widen_schema(schema: Part, lenient: bool) -> list[str]:
    """Change a schema into a form that llguidance supports.

    Args:
        schema: The schema, which is changed.
        lenient: If True, remove malformed values and references to other documents as well.

    Returns:
        JSON pointers of the removed assertions.
    """
    left_out: list[str] = []
    root = json.loads(json.dumps(schema))
    for path, part in [*walk_schema(schema)]:
        _rewrite(part, root)
        dropped = [key for key in _UNKNOWN if key in part and not _is_idle(key, part)]
        for key in _UNKNOWN:
            part.pop(key, None)
        left_out += [f"{path}/{key}" for key in (*dropped, *_values(part))]
    for path, part in [*walk_schema(schema)]:
        if "$ref" not in part or target(part["$ref"], schema) is not None:
            continue
        if lenient or target(part["$ref"], root) is not None:
            del part["$ref"]
            left_out.append(f"{path}/$ref")
    return left_out


def without_values(schema: Part) -> list[str]:
    """Remove all bounds, patterns and formats, which cannot be expressed together.

    Returns:
        Their JSON pointers.
    """
    found = []
    for path, part in walk_schema(schema):
        kinds = dict.fromkeys(("pattern", "format"), (str,)) | dict.fromkeys(_NUMBERS, (int, float))
        for key, types in kinds.items():
            if type(part.get(key)) in types:
                del part[key]
                found.append(f"{path}/{key}")
    return found


def _is_idle(key: str, part: Part) -> bool:
    """Return True if a keyword has no effect in its schema."""
    if key in ("then", "else"):
        return "if" not in part
    if key == "if":
        return "then" not in part and "else" not in part
    if key in ("minContains", "maxContains"):
        return "contains" not in part
    if key in ("uniqueItems", "not"):
        return part[key] is False
    return key != "contains" and part[key] in (True, {})


def _rewrite(part: Part, root: Part) -> None:
    """Replace keywords by others with the same meaning, which llguidance knows."""
    if "unevaluatedProperties" in part and not sibling_schemas(part, root):
        part.setdefault("additionalProperties", part.pop("unevaluatedProperties"))
    if "unevaluatedItems" in part and not sibling_schemas(part, root) and "contains" not in part:
        part.setdefault("items", part.pop("unevaluatedItems"))
    names = part.get("propertyNames")
    names = [*names.items()] if isinstance(names, dict) else []
    if len(names) == 1 and not {"properties", "patternProperties", "required"} & part.keys():
        [(key, value)] = names
        if key == "pattern" and _takes_pattern(value):
            rest = part.get("additionalProperties", True)
            part |= {"patternProperties": {value: rest}, "additionalProperties": False}
            del part["propertyNames"]
    each = part.get("oneOf")
    pairs = combinations(each, 2) if isinstance(each, list) and "anyOf" not in part else None
    if pairs is not None and all(_are_disjoint(a, b) for a, b in pairs):
        part["anyOf"] = part.pop("oneOf")


def _values(part: Part) -> Iterator[str]:
    """Remove values that llguidance cannot express; yield their keywords."""
    pattern = part.get("pattern")
    if isinstance(pattern, str) and not _takes_pattern(pattern):
        del part["pattern"]
        yield "pattern"
    types = part.get("type", "string")
    is_text = isinstance(types, str | list) and "string" in types
    if is_text and isinstance(part.get("format"), str) and not _takes({"format": part["format"]}):
        del part["format"]
        yield "format"
    known = part.get("patternProperties")
    if isinstance(known, dict):
        for name in [name for name in known if not _takes_pattern(name)]:
            del known[name]
            part.pop("additionalProperties", None)  # it would apply to these properties as well
            yield f"patternProperties/{escape_pointer(name)}"
    for key in [key for key in ("const", "enum") if _has_wide(part.get(key))]:
        given = part.pop(key)
        values = given if key == "enum" and isinstance(given, list) else [given]
        if all(type(one) is int for one in values):
            part.setdefault("type", "integer")
        yield key
    yield from _drop_numbers(part, _NUMBERS)
    for key in _COUNTS:
        if isinstance(part.get(key), float) and part[key].is_integer():
            part[key] = int(part[key])


def _drop_numbers(part: Part, keys: tuple[str, ...]) -> Iterator[str]:
    """Remove numbers until the others can be expressed together."""
    given = {key: part[key] for key in keys if _is_number(part.get(key))}
    what = "integer" if part.get("type") == "integer" else "number"
    wide = [key for key in given if key != "multipleOf" and abs(given[key]) >= EXACT]
    refused = (key for key in given if not _takes({"type": what, key: given[key]}))
    for key in dict.fromkeys([*wide, *refused]):
        del part[key], given[key]
        yield key
    while given and not _takes({"type": what, **given}):
        key, _ = given.popitem()
        del part[key]
        yield key


def _has_wide(value: Any) -> bool:
    """Return True if a value has an integer that float64 may not hold."""
    found: list[int] = []
    json.loads(json.dumps(value), parse_int=lambda text: found.append(int(text)))
    return any(abs(one) >= EXACT for one in found)


def _takes_pattern(pattern: Any) -> bool:
    return isinstance(pattern, str) and _takes({"type": "string", "pattern": in_rust(pattern)})


def _takes(part: Part) -> bool:
    """Return True if llguidance can express a schema, though perhaps no value meets it."""
    return _is_accepted(json.dumps(part))


@lru_cache(1024)
def _is_accepted(text: str) -> bool:
    from llguidance import LLMatcher

    try:
        error = trial(str(LLMatcher.grammar_from_json_schema(text)))
    except ValueError:
        return False
    return not error or UNSATISFIABLE in error


def _are_disjoint(a: Any, b: Any) -> bool:
    """Return True if ranges of numbers have no value in common."""
    parts = a, b
    if not all(isinstance(one, dict) and one.get("type") in ("integer", "number") for one in parts):
        return False
    (low, high), (other_low, other_high) = _range(a), _range(b)
    return high < other_low or other_high < low


def _range(part: Part) -> tuple[float, float]:
    """Return bounds that hold for all numbers of a schema."""
    low, high = ([part[key] for key in keys if _is_number(part.get(key))] for keys in (_LOW, _HIGH))
    return max(low, default=float("-inf")), min(high, default=float("inf"))


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)
