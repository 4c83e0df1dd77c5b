"""Check grammars of random schemas that describe one object in several places, with jsonschema.

python -m dev.torture.schemas.described 10000    # prints counts; exits with 1 if a grammar is wrong
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from itertools import permutations
from random import Random
from typing import Any

from ggml_py.errors import GrammarError

Schema = dict[str, Any]
NAMES = ("a", "b", "c", "d")
LEAVES: tuple[Schema, ...] = (
    {"type": "integer"},
    {"type": "boolean"},
    {"const": "x"},
    {"enum": [1, True]},
)
VALUES = (1, True, "x")
N_VALUES = 12  # objects to try per schema
BRANCHES = ("anyOf", "anyOf", "oneOf", "allOf", "$ref")


def schema(number: int) -> Schema:
    """Return the schema with this number: an object, perhaps in a property or an array."""
    made = _Maker(Random(f"described {number}"))
    found = made.object(2)
    where = made.rng.random()
    if where < 0.15:
        found = {"type": "object", "properties": {"o": found}, "required": ["o"]}
    elif where < 0.3:
        found = {"type": "array", "items": found, "minItems": 1, "maxItems": 1}
    return {**found, "$defs": made.defs} if made.defs else found


class _Maker:
    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.defs: dict[str, Schema] = {}

    def object(self, depth: int) -> Schema:
        """Return an object's schema: properties, and perhaps more schemas of the same object."""
        names = self.rng.sample(NAMES, self.rng.randint(0, 3))
        found: Schema = {"type": "object"} if self.rng.random() < 0.6 else {}
        if names:
            found["properties"] = {name: self.rng.choice(LEAVES) for name in names}
            found["required"] = [name for name in names if self.rng.random() < 0.5]
        if self.rng.random() < 0.15:
            found["additionalProperties"] = self.rng.random() < 0.6
        for key in self.rng.sample(BRANCHES, self.rng.randint(0, 2) if depth else 0):
            found[key] = self._branches(key, depth - 1)
        return found

    def _branches(self, key: str, depth: int) -> Any:
        if key != "$ref":
            return [self.object(depth) for _ in range(self.rng.randint(1, 3))]
        name = f"d{self.rng.randint(0, 1)}"
        if name not in self.defs:
            self.defs[name] = {}
            self.defs[name] = self.object(0)
        return f"#/$defs/{name}"


def closed(part: Schema, root: Schema) -> Schema:
    """Return an object's schema that accepts described properties only.

    If a branch keyword is the only keyword, each branch is closed; otherwise the whole schema is.
    """
    keys = part.keys() - {"type", "$defs"}
    if keys == {"$ref"}:
        return closed(root["$defs"][part["$ref"].rpartition("/")[2]], root)
    if len(keys) == 1 and keys < {*BRANCHES}:
        [key] = keys
        if key != "allOf" or len(part[key]) == 1:
            return {**part, key: [closed(one, root) for one in part[key]]}
    return {**part, "unevaluatedProperties": False}


def judged(number: int, judge: Any) -> list[str]:
    """Compare the grammar of a schema with jsonschema; return a line for each value.

    Args:
        number: The number of the schema.
        judge: Function that compiles a schema to a function, which checks if a string is accepted.
    """
    from jsonschema import Draft202012Validator as Validator

    from llama_py.grammar import compile_grammar

    wanted, rng = schema(number), Random(f"values {number}")
    text = json.dumps(wanted)
    valid = Validator(wanted).is_valid
    inner = wanted.get("items") or wanted.get("properties", {}).get("o") or wanted
    strictly = Validator({**closed(inner, wanted), "$defs": wanted.get("$defs", {})}).is_valid
    found = []
    try:
        is_exact = not compile_grammar("json_schema", text).left_out
        takes = judge(text)
    except GrammarError as e:
        empty = not any(strictly(one) for one in _all())
        return ["no value is valid" if empty else f"wrong: refused: {text}: {e}"]
    for _ in range(N_VALUES):
        keys = rng.sample(NAMES, rng.randint(0, 3))
        bare = {key: rng.choice(VALUES) for key in keys}
        value = _placed(wanted, bare)
        right = valid(value)
        if right and not strictly(bare):
            continue  # valid by a property that is not described
        taken = any(takes(json.dumps(one)) for one in _orders(wanted, value))
        if taken == right:
            found.append("taken" if right else "refused")
        elif right or is_exact:
            found.append(f"wrong: {'refused' if right else 'taken'}: {text}: {json.dumps(value)}")
        else:
            found.append("taken, to be checked")
    return found


def _placed(wanted: Schema, value: Schema) -> Any:
    if wanted.get("type") == "array":
        return [value]
    return {"o": value} if "o" in wanted.get("properties", {}) else value


def _orders(wanted: Schema, value: Any) -> list[Any]:
    inner = value[0] if isinstance(value, list) else value.get("o", value)
    return [_placed(wanted, dict(items)) for items in permutations(inner.items())]


def _all() -> list[Schema]:
    found: list[Schema] = [{}]
    for name in NAMES:
        found += [{**one, name: value} for one in found for value in VALUES]
    return found


def main(n: int) -> int:
    from tests.support.grammars import takes

    def judge(text: str) -> Any:
        return takes("json_schema", text)

    counts: Counter[str] = Counter()
    for number in range(n):
        for line in judged(number, judge):
            counts[line.partition(":")[0]] += 1
            if line.startswith("wrong"):
                print(number, line)
    print(f"{n} schemas: {dict(counts)}")
    return int(bool(counts["wrong"]))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
