#!/usr/bin/env bash
# llguidance 1.9.1.
#
# Guess: a bound on a JSON schema's number excludes values, not ways to write them.
# Behavior: a number without bounds may have an exponent. With any bound it may not: `minimum: 0`
# refuses 1e5 and accepts 100000. `multipleOf` has the same effect.
# Why it matters: a model that would write 1e-9 must write 0.000000001 as soon as a schema has a
# bound. The bound then changes how likely each value is, and the length of the response.
#
# Output:
#     {} 1e5 -> True
#     {'minimum': 0} 1e5 -> False
#     {'minimum': 0} 100000 -> True
#     {'maximum': 1000000.0} 1e5 -> False
#     {'multipleOf': 5} 1e5 -> False
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


cases = [
    ({}, "1e5"),
    ({"minimum": 0}, "1e5"),
    ({"minimum": 0}, "100000"),
    ({"maximum": 1e6}, "1e5"),
    ({"multipleOf": 5}, "1e5"),
]
seen = {f"{bound} {text}": check({"type": "number", **bound}, text) for bound, text in cases}
expected = dict(zip(seen, [True, False, True, False, False]))

for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
