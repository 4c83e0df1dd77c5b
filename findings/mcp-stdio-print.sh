#!/usr/bin/env bash
# mcp 2.3.0 (the Python SDK of the Model Context Protocol).
#
# Guess: `stdio_server` directs stdout to stderr while it serves, so text that a tool prints never
# reaches the client.
# Behavior: this holds for `print(..., flush=True)` and for child processes. Without a flush, Python
# keeps the text in its buffer, because stdout is a pipe; the SDK restores the descriptor at the end,
# and the interpreter then writes the text to the client.
# Why it matters: a client that reads all lines, or a test of a server, finds a line that is not JSON.
# `contextlib.redirect_stdout(sys.stderr)` inside `stdio_server` prevents it.
#
# Output:
#     flushed   1 lines: JSON
#     buffered  2 lines: JSON, hello
set -euo pipefail
unset PYTHONUNBUFFERED
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check mcp==2.3.0
cat > "$dir/server.py" <<'EOF2'
import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("noisy")


@server.tool(structured_output=False)
def hello() -> str:
    print("hello", flush=sys.argv[1] == "flushed")
    return "done"


server.run("stdio")
EOF2
"$dir/venv/bin/python" - "$dir/server.py" <<'EOF2'
import json
import subprocess
import sys

found = {}
for kind in ("flushed", "buffered"):
    process = subprocess.Popen(
        [sys.executable, sys.argv[1], kind],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )

    def send(method, id=None, **params):
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        process.stdin.write(json.dumps(message if id is None else {**message, "id": id}) + "\n")
        process.stdin.flush()

    client = {"name": "client", "version": "1"}
    send("initialize", 1, protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
    json.loads(process.stdout.readline())
    send("notifications/initialized")
    send("tools/call", 2, name="hello", arguments={})
    lines = [process.stdout.readline(), *process.communicate()[0].splitlines()]
    shown = ["JSON" if line.startswith("{") else line.strip() for line in lines]
    found[kind] = f"{len(shown)} lines: {', '.join(shown)}"
    print(f"{kind:9} {found[kind]}")
sys.exit(found != {"flushed": "1 lines: JSON", "buffered": "2 lines: JSON, hello"})
EOF2
