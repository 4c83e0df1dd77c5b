"""Paths in a JSON schema: its inner schemas, and the targets of references."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias
from urllib.parse import unquote

Part: TypeAlias = dict[str, Any]

_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_ONE = ("items", "additionalProperties", "additionalItems")
# Keywords with schemas for the same value as the schema that has them.
_BRANCHES = ("anyOf", "oneOf", "allOf")
_CONDITIONS = ("if", "then", "else")


def walk_schema(schema: Part) -> Iterator[tuple[str, Part]]:
    """Yield the schema, nested and referenced schemas, with their JSON pointers."""
    left: list[tuple[str, Any]] = [("", schema)]
    seen: set[int] = set()
    while left:
        path, part = left.pop()
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        yield path, part
        left += [(f"{path}/{at}", inner) for at, inner in _inner(part)]
        if str(part.get("$ref")).startswith("#/"):
            left.insert(0, (part["$ref"][1:], target(part["$ref"], schema)))


def schemas(schema: Part) -> Iterator[Part]:
    """Yield the schema, nested and referenced schemas."""
    return (part for _, part in walk_schema(schema))


def _inner(part: Part) -> Iterator[tuple[str, Any]]:
    for key in _MAPS:
        if isinstance(part.get(key), dict):
            yield from ((f"{key}/{escape_pointer(name)}", one) for name, one in part[key].items())
    for key in _LISTS:
        if isinstance(part.get(key), list):
            yield from ((f"{key}/{i}", one) for i, one in enumerate(part[key]))
    yield from ((key, part[key]) for key in _ONE if key in part)


def sibling_schemas(part: Part, root: Part) -> list[Any]:
    """Return the schemas that hold for the same value as `part`; None for an unknown one."""
    found = [one for key in _BRANCHES for one in _as_list(part.get(key))]
    found += [part[key] for key in _CONDITIONS if key in part]
    for key in ("dependentSchemas", "dependencies"):
        given = part.get(key)
        if isinstance(given, dict):
            found += [{"required": one} if isinstance(one, list) else one for one in given.values()]
    return [*found, *([target(part["$ref"], root)] if "$ref" in part else [])]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def target(ref: Any, root: Part) -> Any:
    """Return the value in `root` that a reference names, or None."""
    if not isinstance(ref, str) or not ref.startswith("#"):
        return None
    if ref[1:2] not in ("", "/"):
        return next((one for one in schemas(root) if one.get("$anchor") == ref[1:]), None)
    found: Any = root
    for key in ref[2:].split("/") if len(ref) > 1 else ():
        key = unquote(key).replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found if isinstance(found, dict | bool) else None


def escape_pointer(key: str) -> str:
    """Return a key as a part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")
