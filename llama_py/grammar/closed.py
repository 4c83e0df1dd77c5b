"""Objects without properties that nobody described, as in llama.cpp: a model would make them up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_ONE = ("items", "additionalProperties", "additionalItems")
# Where several schemas hold for one object, none may refuse what another describes.
_TOGETHER = {
    "allOf", "if", "dependentSchemas", "dependencies", "unevaluatedProperties", "propertyNames",
}  # fmt: skip
_OPEN = {
    "additionalProperties", "patternProperties", "anyOf", "oneOf", "$ref", "minProperties",
}  # fmt: skip


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with `"additionalProperties": false` in each object that has `properties` and does
    not say whether there may be others. Answers that meet it meet the schema.

    It is left as it is where objects are described by several schemas together.
    """
    parts = list(schemas(schema))
    if any(_TOGETHER & part.keys() or ("$ref" in part and "properties" in part) for part in parts):
        return schema
    for part in parts:
        known = part.get("properties")
        required = part.get("required", [])
        if isinstance(known, dict) and known and isinstance(required, list):
            names = {name for name in required if isinstance(name, str)}
            if not _OPEN & part.keys() and names <= known.keys():
                part["additionalProperties"] = False
    return schema


def schemas(schema: Any) -> Iterator[dict[str, Any]]:
    """The schema and those within."""
    left = [schema]
    while left:
        part = left.pop()
        if not isinstance(part, dict):
            continue
        yield part
        for key in _MAPS:
            inner = part.get(key)
            left += inner.values() if isinstance(inner, dict) else ()
        for key in _LISTS:
            inner = part.get(key)
            left += inner if isinstance(inner, list) else ()
        left += [part[key] for key in _ONE if key in part]
