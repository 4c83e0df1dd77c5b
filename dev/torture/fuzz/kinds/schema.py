"""JSON schemas: random schemas, with wrong keys, values, references and nesting."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from dev.torture.fuzz.kind import Case, Kind
from dev.torture.fuzz.kinds.grammar import answered
from dev.torture.fuzz.text import damaged
from dev.torture.schemas.generate import schema
from dev.torture.schemas.written import WRITTEN
from llama_py.loading.model import DEMO
from llama_py.tokenizer import load_tokenizer

KEYS = (
    "type", "properties", "items", "enum", "const", "minimum", "maximum", "minLength", "maxLength",
    "pattern", "format", "anyOf", "allOf", "oneOf", "not", "$ref", "$defs", "$schema", "$id",
    "required", "additionalProperties", "prefixItems", "multipleOf", "uniqueItems", "x-guidance",
    "minItems", "maxItems", "patternProperties", "if", "then", "exclusiveMinimum", "nullable",
    "minProperties", "unevaluatedProperties", "$anchor", "$dynamicRef", "contains", "default",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1e308, 10**30, 2**63, 0.1, 1e-300, "", "object", "#", "#/$defs/d0",
    "#/properties/a", "http://example.org/x", "(a|b)*a(a|b){30}", "(?=x)", "[", "\ud800", "\0",
    "date-time", "regex", [], [[]], {}, {"$ref": "#"}, {"type": "array"}, [1, None, "a"],
    ["string", "null", "foo"], 10**6, {"a": {"$ref": "#"}}, {"whitespace_pattern": "("},
    "a{1000}{1000}", "2020-12", "\x1b[2J", ".{0,100000}",
)  # fmt: skip
PARTS = ('"', "{", "}", "[", "]", ",", ":", "\\", "1e999", "NaN", "\\ud800", "\0", '{"a":' * 99)


class Schemas(Kind):
    """JSON schemas"""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.tokenizer = load_tokenizer(DEMO)

    def case(self, rng: Random) -> Case:
        found = rng.choice(WRITTEN) if rng.random() < 0.3 else schema(rng.randrange(10**6))
        text = json.dumps(found)
        if rng.random() < 0.2:
            text = damaged(rng, text, PARTS)
        else:
            wrong = json.loads(text)
            for _ in range(rng.randint(1, 4)):
                change(rng, wrong)
            text = json.dumps(wrong)

        def run() -> str:
            return answered(rng, self.tokenizer, json_schema=text or "{")

        return Case(text.encode("ascii", "backslashreplace").decode(), run)


def change(rng: Random, found: Any) -> None:
    """Replace, remove or add a value anywhere in a schema."""
    inside = [found]
    for one in inside:
        values = one.values() if isinstance(one, dict) else one
        inside += [value for value in values if isinstance(value, (dict, list)) and value]
    at = rng.choice(inside)
    keys = [*at] if isinstance(at, dict) else [*range(len(at))]
    value = rng.choice((*VALUES, rng.choice(inside) if rng.random() < 0.3 else None))
    value = json.loads(json.dumps(value))
    if isinstance(at, dict) and (not keys or rng.random() < 0.5):
        at[rng.choice(KEYS)] = value
    elif keys and rng.random() < 0.2:
        at.pop(rng.choice(keys))
    elif keys:
        at[rng.choice(keys)] = value
