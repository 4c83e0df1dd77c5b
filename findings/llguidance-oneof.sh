#!/usr/bin/env bash
# llguidance 1.9.1.
#
# Guess: `oneOf` whose branches have different `const` values is accepted, whatever their type.
# Behavior: llguidance accepts `oneOf` if it can prove the branches disjoint. It compares strings,
# true and false, but no numbers: `const: 1` and `const: 2` are refused. Branches that require
# different values of one property are accepted only if a `type: object` is written.
# Why it matters: a union with an integer tag (`version: 1` or `version: 2`) is refused, while the
# same union with a string tag works. The remedy is `anyOf`.
#
# Output:
#     'a' or 'b' -> accepted
#     True or False -> accepted
#     1 or 2 -> refused
#     tag 'x' or 'y' with type: object -> accepted
#     tag 'x' or 'y' without type -> refused
#     tag 1 or 2 with type: object -> refused
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check llguidance==1.9.1
"$dir/venv/bin/python" - "$dir" <<'EOF'
import json

from llguidance import LLMatcher, LLTokenizer

tokenizer = LLTokenizer("byte")


def validate(schema):
    grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema))
    return LLMatcher.validate_grammar(grammar, tokenizer) or "accepted"


def one_of(*branches):
    message = validate({"oneOf": branches})
    return "refused" if message.startswith("oneOf constraints are not supported") else message


def tag(value, **more):
    return {"properties": {"tag": {"const": value}}, "required": ["tag"], **more}


seen = {
    "'a' or 'b'": one_of({"const": "a"}, {"const": "b"}),
    "True or False": one_of({"const": True}, {"const": False}),
    "1 or 2": one_of({"const": 1}, {"const": 2}),
    "tag 'x' or 'y' with type: object": one_of(tag("x", type="object"), tag("y", type="object")),
    "tag 'x' or 'y' without type": one_of(tag("x"), tag("y")),
    "tag 1 or 2 with type: object": one_of(tag(1, type="object"), tag(2, type="object")),
}
expected = dict(zip(seen, ["accepted", "accepted", "refused", "accepted", "refused", "refused"]))

for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
