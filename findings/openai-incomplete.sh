#!/usr/bin/env bash
# openai 3.57.0 (Python), against a local server.
#
# Guess: `responses.stream(...).get_final_response()` returns the response when the stream ends with
# `response.incomplete`, the event for a response that reached `max_output_tokens`.
# Behavior: it raises RuntimeError "Didn't receive a `response.completed` event.", although the
# event holds the whole response. The events before it arrive as usual.
# Why it matters: a server that follows the protocol breaks this client at each length limit. The
# client must read the response from the last event.
#
# Output:
#     response.completed -> completed
#     response.incomplete -> RuntimeError; the event has status incomplete
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check openai==3.57.0
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1
"$dir/venv/bin/python" - "$dir" <<'EOF'
import http.server
import json
import threading

import openai


def events(status):
    reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
    part = {"type": "output_text", "text": "hi", "annotations": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": status}
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "tools": []}
    response.update(parallel_tool_calls=True, tool_choice="auto")
    end = {"status": status, "incomplete_details": reason, "output": [{**item, "content": [part]}]}
    yield "response.created", {**response, "status": "in_progress", "output": []}
    yield f"response.{status}", {**response, **end}


class Handler(http.server.BaseHTTPRequestHandler):
    status = "completed"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        lines = []
        for number, (name, response) in enumerate(events(Handler.status)):
            data = {"type": name, "sequence_number": number, "response": response}
            lines.append(f"event: {name}\ndata: {json.dumps(data)}\n\n")
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
client = openai.OpenAI(
    api_key="none", base_url=f"http://127.0.0.1:{server.server_port}/v1", max_retries=0
)


def finish(status):
    Handler.status = status
    with client.responses.stream(model="m", input="x") as stream:
        last = list(stream)[-1]
        try:
            return stream.get_final_response().status
        except RuntimeError as error:
            return f"{type(error).__name__}; the event has status {last.response.status}"


seen = {f"response.{status}": finish(status) for status in ["completed", "incomplete"]}
expected = {
    "response.completed": "completed",
    "response.incomplete": "RuntimeError; the event has status incomplete",
}

for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
