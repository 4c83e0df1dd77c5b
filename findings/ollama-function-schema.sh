#!/usr/bin/env bash
# ollama 0.6.3 (Python), against a local server.
#
# Guess: `Client.chat(..., tools=[function])` sends the schema of the function's annotations, such as
# `Literal["here", "there"]` as an enumeration, and `list[int]` as an array of integers.
# Behavior: each parameter keeps its description and type only. The enumeration is a string of any
# value, and the array has items of any type.
# Why it matters: a server that enforces schemas enforces less than the function declares, so a
# model may pass values that the function refuses. A dictionary as the tool is sent as it is.
#
# Output:
#     function -> place: string; numbers: array
#     dictionary -> place: string, enum ['here', 'there']; numbers: array, items {'type': 'integer'}
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check ollama==0.6.3
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1
"$dir/venv/bin/python" - <<'EOF'
import http.server
import json
import threading
from typing import Literal

import ollama

requests = []


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        body = json.dumps({"message": {"role": "assistant", "content": "hi"}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def weather(place: Literal["here", "there"], numbers: list[int]) -> str:
    """Weather of a place."""


def sent(tool):
    client.chat("m", [{"role": "user", "content": "x"}], tools=[tool])
    properties = requests[-1]["tools"][0]["function"]["parameters"]["properties"]
    return "; ".join(
        f"{name}: {one['type']}" + "".join(f", {k} {one[k]}" for k in ("enum", "items") if k in one)
        for name, one in properties.items()
    )


server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = ollama.Client(f"http://127.0.0.1:{server.server_port}")
properties = {
    "place": {"type": "string", "enum": ["here", "there"]},
    "numbers": {"type": "array", "items": {"type": "integer"}},
}
parameters = {"type": "object", "properties": properties, "required": ["place", "numbers"]}
function = {"name": "weather", "description": "Weather of a place.", "parameters": parameters}
seen = {"function": sent(weather), "dictionary": sent({"type": "function", "function": function})}
expected = {
    "function": "place: string; numbers: array",
    "dictionary": "place: string, enum ['here', 'there']; numbers: array, items {'type': 'integer'}",
}
for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
