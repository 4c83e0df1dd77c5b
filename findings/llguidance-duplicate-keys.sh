#!/usr/bin/env bash
# llguidance 1.9.1.
#
# Guess: `minProperties: 2` forces an object with two different keys.
# Behavior: llguidance counts the members it writes. An object with free keys may repeat a key, so
# {"a":1,"a":2} satisfies `minProperties: 2` and violates `maxProperties: 1`. Parsers keep one
# member. A key that `properties` lists and `required` names is not repeated.
# Why it matters: the parsed arguments of a tool call can violate the schema that constrained them.
#
# Output:
#     minProperties 2, two members with one key -> True
#     minProperties 2, one member -> False
#     maxProperties 1, two members with one key -> False
#     required key, repeated -> False
#     keys after parsing -> 1
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check llguidance==1.9.1
"$dir/venv/bin/python" - "$dir" <<'EOF'
import json

from llguidance import LLMatcher, LLTokenizer

tokenizer = LLTokenizer("byte")


def check(schema, text):
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(json.dumps(schema)))
    tokens = list(text.encode())
    if matcher.validate_tokens(tokens) < len(tokens):
        return False
    matcher.consume_tokens(tokens)
    return matcher.is_accepting()


TWICE = '{"a":1,"a":2}'
required = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
at_least, at_most = {"type": "object", "minProperties": 2}, {"type": "object", "maxProperties": 1}
seen = {
    "minProperties 2, two members with one key": check(at_least, TWICE),
    "minProperties 2, one member": check(at_least, '{"a":1}'),
    "maxProperties 1, two members with one key": check(at_most, TWICE),
    "required key, repeated": check(required, TWICE),
    "keys after parsing": len(json.loads(TWICE)),
}
expected = dict(zip(seen, [True, False, False, False, 1]))

for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
