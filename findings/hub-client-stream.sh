#!/usr/bin/env bash
# huggingface_hub 1.33.0 (Python), against a local server.
#
# Guess: `for text in InferenceClient(url).text_generation(prompt, stream=True)` yields all texts: the
# iterator keeps the client that it reads from.
# Behavior: nothing refers to the client after the call, so Python deletes it. Its end closes the
# connection, and the loop raises httpx.StreamClosed before the first text.
# Why it matters: the server sees a client that disconnects. The client must be in a variable until
# the end of the stream.
#
# Output:
#     client in a variable -> ['a', 'b']
#     client of one expression -> StreamClosed
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check huggingface_hub==1.33.0
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1
"$dir/venv/bin/python" - <<'EOF'
import http.server
import json
import threading

from huggingface_hub import InferenceClient


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        tokens = [{"id": i, "text": t, "logprob": 0.0, "special": False} for i, t in enumerate("ab")]
        lines = (f"data:{json.dumps({'index': 1, 'token': token})}\n\n" for token in tokens)
        body = "".join(lines).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"


def read_all(stream):
    try:
        return str(list(stream))
    except Exception as error:
        return type(error).__name__


client = InferenceClient(url)
seen = {
    "client in a variable": read_all(client.text_generation("x", stream=True)),
    "client of one expression": read_all(InferenceClient(url).text_generation("x", stream=True)),
}
expected = {"client in a variable": "['a', 'b']", "client of one expression": "StreamClosed"}
for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
