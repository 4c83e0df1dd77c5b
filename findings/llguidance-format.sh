#!/usr/bin/env bash
# llguidance 1.9.1.
#
# Guess: an unknown `format` is ignored, as JSON Schema says of annotations, or always refused.
# Behavior: it depends on `type`. With `type: integer` any format is ignored. Without a type, or
# with a type list that has "string", the same schema is refused: "Unknown format: int64".
# Why it matters: OpenAPI documents write `format: int64`. The same annotation works in one schema
# and fails in another that also allows integers.
#
# Output:
#     {'type': 'integer', 'format': 'int64'} -> accepted
#     {'format': 'int64'} -> Unknown format: int64
#     {'type': ['integer', 'string'], 'format': 'int64'} -> Unknown format: int64
#     {'type': ['integer', 'null'], 'format': 'int64'} -> accepted
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


types = [{"type": "integer"}, {}, {"type": ["integer", "string"]}, {"type": ["integer", "null"]}]
schemas = [{**kind, "format": "int64"} for kind in types]
seen = {str(schema): validate(schema) for schema in schemas}
unknown = "Unknown format: int64"
expected = dict(zip(seen, ["accepted", unknown, unknown, "accepted"]))

for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
