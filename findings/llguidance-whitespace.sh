#!/usr/bin/env bash
# llguidance 1.9.1.
#
# Guess: the `pattern` of a JSON schema is an ECMA-262 expression. In llguidance \d and \w match
# ASCII only, as they do there, so \s also matches the white space of ECMA-262.
# Behavior: \s matches Unicode's White_Space instead. It matches U+0085, which ECMA-262 leaves out,
# and does not match U+FEFF, which ECMA-262 includes. Other white space agrees.
# Why it matters: a constrained response may fail a validator that follows ECMA-262.
#
# Output (does the class match the character?):
#     d U+0663 -> False
#     w U+00E9 -> False
#     s U+00A0 -> True
#     s U+2028 -> True
#     s U+0085 -> True
#     s U+FEFF -> False
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


cases = [("d", 0x663), ("w", 0xE9), ("s", 0xA0), ("s", 0x2028), ("s", 0x85), ("s", 0xFEFF)]
seen = {
    f"{name} U+{code:04X}": check({"type": "string", "pattern": f"^\\{name}$"}, f'"{chr(code)}"')
    for name, code in cases
}
expected = dict(zip(seen, [False, False, True, True, True, False]))

for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
