"""JSON schemas of fields and responses, for /openapi.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_py_server.wire.body import MAX_ITEMS

Schema = Mapping[str, Any]
ANY: Schema = {}
OBJECT: Schema = {"type": "object"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
TOKEN: Schema = {"type": "integer", "minimum": 0}
STRINGS: Schema = {"type": "array", "items": STRING}
REFUSED: Schema = {"enum": [False, []]}  # a field of `check_unsupported`


def array(items: Schema, least: int = 0, most: int = MAX_ITEMS) -> Schema:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


def either(*schemas: Schema) -> Schema:
    return {"anyOf": [*schemas]}


def constant(value: str) -> Schema:
    return {"const": value}


def record(**properties: Schema) -> Schema:
    """Return the schema of an object that has at least these properties."""
    return {"type": "object", "properties": properties, "required": [*properties]}


def optional_fields(**properties: Schema) -> Schema:
    """Return the schema of an object that may have these properties."""
    return {"type": "object", "properties": properties}


OBJECTS = array(OBJECT)
