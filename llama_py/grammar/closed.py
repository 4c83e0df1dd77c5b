"""Objects closed to undescribed properties, as in llama.cpp: a model would invent some."""

from __future__ import annotations

from typing import Any

from llama_py.grammar.places import Part, schemas, sibling_schemas

# Keywords that describe an object's properties without their names.
_OPEN = {"additionalProperties", "patternProperties", "minProperties", "propertyNames"}
_OBJECT = {*_OPEN, "properties", "required", "maxProperties", "unevaluatedProperties"}
_BESIDE = {
    "anyOf",
    "oneOf",
    "allOf",
    "$ref",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependencies",
    "$dynamicRef",
    "$recursiveRef",
}


def close_objects(schema: Part) -> Part:
    """Add `"additionalProperties": false` to each object with named properties only.

    Several schemas may describe one object: `properties` together with `anyOf`, `oneOf`, `allOf` or
    `$ref`, and nested branches. The outermost schema is closed, and gets the properties that any of
    the others names. Values that match the result match the schema.
    """
    for part in _object_schemas(schema):
        names = _property_names(part, schema)
        if names:
            known = part.get("properties", {})
            part["properties"] = known | {name: True for name in names if name not in known}
            part["additionalProperties"] = False
    return schema


def has_free_keys(schema: Part) -> bool:
    """Return True if an object may have keys that a closed schema does not name.

    It also returns True for some schemas with all keys named, in several branches.
    """
    return any(_takes_free_keys(part) for part in schemas(schema))


def _takes_free_keys(part: Part) -> bool:
    if any(one is True for one in [*_nested_schemas(part), *sibling_schemas(part, part)]):
        return True
    if "const" in part or "enum" in part or _only_refers(part):
        return False
    types = part.get("type", ("object", "array"))
    is_closed = part.get("additionalProperties") is False and not part.get("patternProperties")
    has_items = isinstance(part.get("items"), dict) or part.get("items") is False
    return ("object" in types and not is_closed) or ("array" in types and not has_items)


def _object_schemas(schema: Part) -> list[Part]:
    """Return the schemas that describe an object alone, without another schema for it."""
    seen: dict[tuple[int, bool], Part] = {}
    left: list[tuple[Any, bool]] = [(schema, True)]
    while left:
        part, alone = left.pop()
        if not isinstance(part, dict) or (id(part), alone) in seen:
            continue
        seen[id(part), alone] = part
        left += [(one, alone and _only_refers(part)) for one in sibling_schemas(part, schema)]
        left += [(one, True) for one in _nested_schemas(part)]
    return [
        part
        for (_, alone), part in seen.items()
        if alone and not _only_refers(part) and (id(part), False) not in seen
    ]


def _only_refers(part: Part) -> bool:
    """Return True if another schema alone describes the object: a branch, or a target."""
    keys = _BESIDE & part.keys()
    if _OBJECT & part.keys() or len(keys) != 1:
        return False
    return not keys.isdisjoint(("anyOf", "oneOf", "$ref")) or (
        isinstance(part.get("allOf"), list) and len(part["allOf"]) == 1
    )


def _nested_schemas(part: Part) -> list[Any]:
    """Return the schemas of the values within an object or array."""
    found = []
    for key in ("properties", "patternProperties"):
        found += [*part[key].values()] if isinstance(part.get(key), dict) else []
    for key in ("items", "prefixItems", "additionalProperties", "additionalItems"):
        given = part.get(key, [])
        found += given if isinstance(given, list) else [given]
    return found


def _property_names(part: Part, root: Part) -> list[str]:
    """Return the names of an object's properties; [] if other names may be valid."""
    names: dict[str, None] = {}
    needed: set[Any] = set()
    left: list[Any] = [part]
    seen: set[int] = set()
    while left:
        one = left.pop(0)
        if isinstance(one, bool) or id(one) in seen:
            continue
        if not isinstance(one, dict) or _is_open(one):
            return []
        seen.add(id(one))
        names |= dict.fromkeys(one.get("properties", {}))
        needed |= {name for name in one.get("required", []) if isinstance(name, str)}
        for more in one.get("dependentRequired", {}).values():
            needed |= {name for name in more if isinstance(name, str)}
        left += sibling_schemas(one, root)
    return [*names] if needed <= names.keys() else []


def _is_open(part: Part) -> bool:
    """Return True if a schema takes properties that it does not name, or is malformed."""
    if _OPEN & part.keys() or {"$dynamicRef", "$recursiveRef"} & part.keys():
        return True
    if part.get("unevaluatedProperties", False) is not False:
        return True
    forms = (("properties", dict), ("required", list), ("dependentRequired", dict))
    if not all(isinstance(part.get(key, kind()), kind) for key, kind in forms):
        return True
    return not all(isinstance(one, list) for one in part.get("dependentRequired", {}).values())
