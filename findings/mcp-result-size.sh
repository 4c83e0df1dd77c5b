#!/usr/bin/env bash
# mcp 2.3.0 (the Python SDK of the Model Context Protocol).
#
# Guess: the largest result of a tool that a client accepts does not depend on the transport.
# Behavior: over stdio, and over streamable HTTP with JSON responses, a result has no limit. Over
# streamable HTTP with event streams, the server's default for protocol versions before 2026-07-28,
# the client ends a call whose result has more than 1 MiB with an error.
# Why it matters: a tool that works over stdio fails over HTTP, and a client without a limit of its
# own takes as much memory as a server sends.
#
# Output:
#     stdio          2097152 characters
#     HTTP, JSON     2097152 characters
#     HTTP, events   error
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check mcp==2.3.0
cat > "$dir/server.py" <<'EOF'
import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("large")


@server.tool(structured_output=False)
def large() -> str:
    return "x" * (2 << 20)


if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    server.run("streamable-http", port=int(sys.argv[2]), json_response=sys.argv[1] == "json")
EOF
"$dir/venv/bin/python" - "$dir/server.py" <<'EOF'
import asyncio
import logging
import socket
import subprocess
import sys
import time

from mcp import Client, StdioServerParameters

logging.disable(logging.CRITICAL)
script = sys.argv[1]


async def size(server):
    try:
        async with Client(server, mode="legacy", read_timeout_seconds=60) as client:
            result = await client.call_tool("large", {})
            return f"{len(result.content[0].text)} characters"
    except Exception:
        return "error"


def over_http(kind):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    words = [sys.executable, script, kind, str(port)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        return asyncio.run(size(f"http://127.0.0.1:{port}/mcp"))
    finally:
        process.kill()
        process.wait()


stdio = StdioServerParameters(command=sys.executable, args=[script, "stdio"])
found = {
    "stdio": asyncio.run(size(stdio)),
    "HTTP, JSON": over_http("json"),
    "HTTP, events": over_http("events"),
}
for name, value in found.items():
    print(f"{name:14} {value}")
sys.exit(found != {"stdio": "2097152 characters", "HTTP, JSON": "2097152 characters", "HTTP, events": "error"})
EOF
