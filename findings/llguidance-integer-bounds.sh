#!/usr/bin/env bash
# llguidance 1.9.1.
#
# Guess: bounds and constants of a JSON schema's integer are exact, or what does not fit is refused.
# Behavior: bounds are rounded to float64 and then cut to int64. `minimum: 2**53+1` accepts 2**53, a
# response that the schema forbids. `maximum: 10**19` accepts nothing above 2**63-1. `minimum:
# -2**63` alone is refused: "Failed to generate regex for integer range". `const: 2**53+1` accepts no
# text of that number; `const: -(2**53+1)` accepts -2**53.
# Why it matters: 64-bit identifiers are common in tool schemas, and the full int64 range is a usual
# way to write them. A server must reply with 400 or change the schema.
#
# Output:
#     minimum 2**53+1, value 2**53 -> True
#     maximum 2**53+1, value 2**53+1 -> False
#     maximum 10**19, value 2**63-1 -> True
#     maximum 10**19, value 2**63 -> False
#     minimum -2**63+1024 -> accepted
#     minimum -2**63 -> refused
#     const 2**53+1, its value -> False
#     const -(2**53+1), value -2**53 -> True
#     const 2**63, its value -> False
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


def integer(value, **bounds):
    return check({"type": "integer", **bounds}, str(value))


def bound(minimum):
    schema = json.dumps({"type": "integer", "minimum": minimum})
    message = LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(schema), tokenizer)
    return "refused" if "integer range" in message else message or "accepted"


seen = {
    "minimum 2**53+1, value 2**53": integer(2**53, minimum=2**53 + 1),
    "maximum 2**53+1, value 2**53+1": integer(2**53 + 1, minimum=0, maximum=2**53 + 1),
    "maximum 10**19, value 2**63-1": integer(2**63 - 1, maximum=10**19),
    "maximum 10**19, value 2**63": integer(2**63, maximum=10**19),
    "minimum -2**63+1024": bound(-(2**63) + 1024),
    "minimum -2**63": bound(-(2**63)),
    "const 2**53+1, its value": check({"const": 2**53 + 1}, str(2**53 + 1)),
    "const -(2**53+1), value -2**53": check({"const": -(2**53 + 1)}, str(-(2**53))),
    "const 2**63, its value": check({"const": 2**63}, str(2**63)),
}
expected = dict(zip(seen, [True, False, True, False, "accepted", "refused", False, True, False]))

for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
