"""Parameters of a tool, from its JSON schema (common/json-schema.cpp)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import Any

from llama_py.grammar.places import walk_schema

Schema = Mapping[str, Any]
TYPES = frozenset(("null", "boolean", "number", "integer", "string", "array", "object"))
_OBJECT = ("properties", "additionalProperties")
_TEXT = ("pattern", "minLength", "maxLength", "format")
_OF = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
MAX_COPIES = 64  # maximum copies of a recursive schema
DEFINITIONS = ("$defs", "definitions")


@dataclass(frozen=True)
class Parameter:
    """schema: alone, with the definitions that it may refer to."""

    name: str
    schema: Schema
    required: bool

    @property
    def types(self) -> frozenset[str]:
        """Types that it may have."""
        return schema_types(self.schema, self.schema)

    @property
    def may_be_text(self) -> bool:
        """True if the schema allows a string: then the written text is one."""
        return may_be_text(self.schema, self.schema)


def tool_parameters(tool: Schema) -> Schema:
    """Return the schema of a tool's arguments."""
    found = tool["function"].get("parameters")
    return found if found else {"type": "object", "properties": {}}


def parameters(tool: Schema) -> list[Parameter]:
    return members(tool_parameters(tool))


def members(schema: Schema, root: Schema | None = None) -> list[Parameter]:
    """Return the properties of an object."""
    root = schema if root is None else root
    known = schema.get("properties")
    given = schema.get("required")
    required = set(given) if isinstance(given, list) else set()
    if not isinstance(known, Mapping):
        return []
    return [
        Parameter(
            name, self_contained(one if isinstance(one, Mapping) else {}, root), name in required
        )
        for name, one in known.items()
    ]


def self_contained(schema: Schema, root: Schema) -> Schema:
    """Return a part of a schema with the definitions of the whole."""
    more = {key: root[key] for key in DEFINITIONS if key in root and key not in schema}
    return {**schema, **more}


def target(schema: Schema, root: Schema) -> Schema | None:
    """Return the target of `$ref`; None if it does not exist here."""
    ref = schema["$ref"]
    if not isinstance(ref, str) or not ref.startswith("#/"):
        return None
    found: Any = root
    for key in ref[2:].split("/"):
        if isinstance(found, Mapping) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdigit() and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found if isinstance(found, Mapping) else None


def depth_within(schema: Schema, depth: int) -> int:
    """Return how deep a grammar writes out the target of `$ref`, which may refer to itself.

    Each level multiplies the grammar by the number of references, up to MAX_COPIES.
    """
    parts = [part for _, part in walk_schema(dict(schema))]
    n = sum(part.get("$ref") == schema["$ref"] for part in parts) - 1
    if n < 1 or not depth:
        return depth
    levels = depth if n == 1 else max(int(log(MAX_COPIES, n)), 1)
    return min(depth, levels) - 1


def alternatives(schema: Schema) -> list[Schema] | None:
    """Return the schemas of anyOf, oneOf or several types; None without these."""
    for key in ("oneOf", "anyOf"):
        if isinstance(schema.get(key), list):
            return [one for one in schema[key] if isinstance(one, Mapping)]
    if isinstance(schema.get("type"), list):
        return [{**schema, "type": one} for one in schema["type"]]
    return None


def kind(schema: Schema) -> str:
    """Return the type; `const`, `enum`, `allOf`; or `any`."""
    for key in ("const", "enum"):
        if key in schema:
            return key
    type, has_members = schema.get("type"), any(key in schema for key in _OBJECT)
    if type in (None, "object") and not has_members and "allOf" in schema:
        return "allOf"
    if type == "string" and "allOf" in schema:
        return "allOf"
    if isinstance(type, str):
        return type
    if has_members:
        return "object"
    if "items" in schema or "prefixItems" in schema:
        return "array"
    return "string" if any(key in schema for key in _TEXT) else "any"


def schema_types(schema: Schema, root: Schema, seen: tuple[int, ...] = ()) -> frozenset[str]:
    if "$ref" in schema:
        found = target(schema, root)
        if found is None or id(found) in seen:
            return frozenset()
        return schema_types(found, root, (*seen, id(found)))
    each = alternatives(schema)
    if each is not None:
        return frozenset().union(*(schema_types(one, root, seen) for one in each))
    what = kind(schema)
    if what == "any":
        return TYPES
    if what == "const":
        return frozenset((_value_type(schema["const"]),))
    if what == "enum":
        return frozenset(map(_value_type, schema["enum"]))
    if what == "allOf":
        found_types = TYPES
        for one in schema["allOf"]:
            found_types &= schema_types(one, root, seen)
        return found_types
    return frozenset(("number", "integer")) if what == "number" else frozenset((what,))


def may_be_text(schema: Schema, root: Schema, seen: tuple[int, ...] = ()) -> bool:
    if "$ref" in schema:
        found = target(schema, root)
        if found is None or id(found) in seen:
            return False
        return may_be_text(found, root, (*seen, id(found)))
    each = alternatives(schema)
    if each is not None:
        return any(may_be_text(one, root, seen) for one in each)
    what = kind(schema)
    if what == "const":
        return isinstance(schema["const"], str)
    if what == "enum":
        return any(isinstance(one, str) for one in schema["enum"])
    if what == "allOf":
        some = [one for one in schema["allOf"] if "$ref" in one or kind(one) != "any"]
        return bool(some) and all(may_be_text(one, root, seen) for one in some)
    return what == "string"


def _value_type(value: Any) -> str:
    if value is None:
        return "null"
    return next((name for type, name in _OF.items() if isinstance(value, type)), "object")
