"""Schemas as people write them."""

from __future__ import annotations

from typing import Any

_TEXT = {"type": "string", "maxLength": 20}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


WRITTEN: tuple[dict[str, Any], ...] = (
    _object(name=_TEXT, age={"type": "integer", "minimum": 0, "maximum": 120}),
    _object(answer={"type": "boolean"}, why=_TEXT),
    {"type": "array", "items": _object(name=_TEXT, score={"type": "integer", "minimum": 0,
     "maximum": 10}), "minItems": 2, "maxItems": 3},
    {"enum": ["positive", "neutral", "negative"]},
    _object(city=_TEXT, unit={"enum": ["celsius", "fahrenheit"]}),
    _object(tool={"const": "search"}, arguments=_object(query=_TEXT, limit={
        "type": "integer", "minimum": 1, "maximum": 50})),
    {"anyOf": [
        _object(tool={"const": "add"}, a={"type": "integer", "minimum": 0, "maximum": 99}),
        _object(tool={"const": "say"}, text=_TEXT)]},
    {"oneOf": [
        _object(kind={"const": "circle"}, radius={"type": "integer", "minimum": 1, "maximum": 9}),
        _object(kind={"const": "square"}, side={"type": "integer", "minimum": 1, "maximum": 9})]},
    _object(mail={"type": "string", "pattern": "^[a-z]{1,9}@[a-z]{1,9}[.](org|net)$"},
            born={"type": "string", "format": "date"}),
    _object(phone={"type": "string", "pattern": r"^\+\d{1,3} \d{4,10}$"}),
    _object(items={"type": "array", "items": {"$ref": "#/$defs/item"}, "maxItems": 3})
    | {"$defs": {"item": _object(sku={"type": "string", "pattern": "^[A-Z]{3}-[0-9]{3}$"},
                                 n={"type": "integer", "minimum": 1, "maximum": 9})}},
    {"$ref": "#/$defs/tree", "$defs": {"tree": _object(
        label={"type": "string", "maxLength": 4},
        children={"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 1})}},
    {"allOf": [_object(a={"type": "integer", "minimum": 0, "maximum": 9}),
               {"properties": {"b": {"type": "boolean"}}, "required": ["b"]}],
     "additionalProperties": False, "properties": {"a": True, "b": True}},
    {"type": "object", "patternProperties": {"^[a-z]{1,3}$": {"type": "boolean"}},
     "additionalProperties": False, "minProperties": 1, "maxProperties": 2},
    {"title": "Weather", "description": "of a place", **_object(
        where=_TEXT, at={"type": "string", "format": "date-time"},
        wind={"type": ["integer", "null"], "minimum": 0, "maximum": 99})},
    {"type": "string", "minLength": 3, "maxLength": 8},
    {"type": "integer", "exclusiveMinimum": 10, "exclusiveMaximum": 14},
    {"type": "number", "minimum": 0.5, "maximum": 0.75},
    {"type": "array", "prefixItems": [{"type": "boolean"}, {"type": "null"}], "items": False},
    {"definitions": {"id": {"type": "string", "format": "uuid"}}, **_object(
        id={"$ref": "#/definitions/id"})},
)  # fmt: skip
