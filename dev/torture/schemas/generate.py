"""Random JSON schemas: a number gives the same schema on every machine."""

from __future__ import annotations

from random import Random
from typing import Any

Schema = dict[str, Any]
NAMES = ("name", "age", "id", "tags", "a b", "é", "x-1", "of", "next", "Value", "")
WORDS = ("red", "green", "blue", "no", "", "to be", "é", '"', "\\", "\n", "[]", "ROMEO")
PATTERNS = (
    "^[a-z]{2,6}$",
    "^[A-Z][a-z]{1,5}( [A-Z][a-z]{1,5})?$",
    "^(yes|no|maybe)$",
    "^\\d{3}-\\d{4}$",
    "^#[0-9a-f]{6}$",
    "^[^\\s]{1,4}$",
    "^v\\d{1,2}(\\.\\d{1,2}){0,2}$",
    "^[aeiou]{0,3}x$",
)
FORMATS = ("date", "time", "date-time", "uuid", "ipv4")
LEAVES = ("string", "integer", "number", "enum", "const", "boolean", "null", "types")
NODES = ("object", "object", "object", "array", "array", "tuple", "anyOf", "ref", "map")


def schema(number: int) -> Schema:
    """Return the schema of a number. All its strings and lists are bounded."""
    made = _Maker(Random(f"schema {number}"))
    found = made.node(made.rng.choice((1, 2, 2, 3)))
    return {**found, "$defs": made.defs} if made.defs else found


class _Maker:
    """Generator of a schema. defs: referenced definitions."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.defs: dict[str, Schema] = {}

    def any(self, depth: int) -> Schema:
        if depth <= 0 or self.rng.random() < 0.4:
            return self.leaf()
        return self.node(depth)

    def node(self, depth: int) -> Schema:
        found: Schema = getattr(self, self.rng.choice(NODES))(depth - 1)
        return found

    def leaf(self) -> Schema:
        found: Schema = getattr(self, f"_{self.rng.choice(LEAVES)}")()
        return found

    def object(self, depth: int) -> Schema:
        names = self.rng.sample(NAMES, self.rng.randint(1, 5))
        found: Schema = {
            "type": "object",
            "properties": {name: self.any(depth) for name in names},
            "required": [name for name in names if self.rng.random() < 0.7],
        }
        if self.rng.random() < 0.4:
            found["additionalProperties"] = False
        return found

    def map(self, depth: int) -> Schema:
        """Return an object with properties by name or by pattern."""
        pattern = self.rng.choice(("^[a-c]$", "^x_[0-9]$"))
        return {
            "type": "object",
            "properties": {"id": self._integer()},
            "required": ["id"],
            "patternProperties": {pattern: self.any(depth)},
            "additionalProperties": False,
            "maxProperties": 3,
        }

    def array(self, depth: int) -> Schema:
        least = self.rng.randint(0, 2)
        most = least + self.rng.randint(0, 2)
        return {"type": "array", "items": self.any(depth), "minItems": least, "maxItems": most}

    def tuple(self, depth: int) -> Schema:
        items = [self.any(depth) for _ in range(self.rng.randint(1, 3))]
        n = len(items)
        return {"type": "array", "prefixItems": items, "items": False, "minItems": n}

    def anyOf(self, depth: int) -> Schema:
        return {"anyOf": [self.any(depth) for _ in range(self.rng.randint(2, 3))]}

    def ref(self, depth: int) -> Schema:
        """Return a reference to a definition, which may be recursive."""
        name = f"d{len(self.defs)}"
        here = {"$ref": f"#/$defs/{name}"}
        self.defs[name] = {}
        inner = self.any(depth)
        self.defs[name] = {
            "type": "object",
            "properties": {"value": inner, "next": {"anyOf": [{"type": "null"}, here]}},
            "required": ["value", "next"],
        }
        if self.rng.random() < 0.5:
            self.defs[name] = inner
        return here

    def _string(self) -> Schema:
        what = self.rng.random()
        if what < 0.3:
            return {"type": "string", "pattern": self.rng.choice(PATTERNS)}
        if what < 0.5:
            return {"type": "string", "format": self.rng.choice(FORMATS)}
        least = self.rng.choice((0, 0, 1, 3))
        return {"type": "string", "minLength": least, "maxLength": least + self.rng.randint(0, 9)}

    def _integer(self) -> Schema:
        low = self.rng.randint(-1000, 1000)
        high = low + self.rng.randint(0, 999)
        found: Schema = {"type": "integer", "minimum": low, "maximum": high}
        if self.rng.random() < 0.3:
            found["exclusiveMaximum"] = found.pop("maximum") + 1
        if self.rng.random() < 0.2:
            found = {"type": "integer", "minimum": 0, "maximum": 200, "multipleOf": 5}
        return found

    def _number(self) -> Schema:
        low = self.rng.randint(-100, 100) / 4
        high = low + self.rng.randint(1, 40) / 2
        return {"type": "number", "minimum": low, "maximum": high, "multipleOf": 0.25}

    def _enum(self) -> Schema:
        values = [*self.rng.sample(WORDS, 3), 1, -2.5, None, True, [1, 2], {"a": []}]
        return {"enum": self.rng.sample(values, self.rng.randint(1, 4))}

    def _const(self) -> Schema:
        return {"const": self.rng.choice((*WORDS, 0, None, False, [], {"k": "v"}))}

    def _boolean(self) -> Schema:
        return {"type": "boolean"}

    def _null(self) -> Schema:
        return {"type": "null"}

    def _types(self) -> Schema:
        return {"type": ["null", "boolean", "string"], "maxLength": 6}
