#!/usr/bin/env bash
# uvicorn 0.38.0, Python 3.11 on Linux.
#
# Guess: asyncio sets TCP_NODELAY on every TCP connection (its documentation says so since Python
# 3.6), so a server of token streams sends each event at once, however many workers it has.
# Behavior: asyncio does so only for sockets that were created with the protocol IPPROTO_TCP.
# `uvicorn app` gets its socket from asyncio, which names the protocol; `uvicorn --workers 2 app`
# creates the socket itself, without a protocol. Its connections have Nagle's algorithm: the first
# event waits for the client's acknowledgement of the headers, which Linux delays by 40 ms.
# Why it matters: a small model has its first token within 10 ms. A server that binds its own socket
# needs five times as long, and a test with one worker does not show it.
#
# Output (the median time of a response's first event, on a connection in use, in steps of 10 ms):
#     workers 1: TCP_NODELAY 1, first event after 0 ms
#     workers 2: TCP_NODELAY 0, first event after 40 ms
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check uvicorn==0.38.0
cat >"$dir/app.py" <<'END'
import os
import socket
import stat


def connections():
    """Yield TCP_NODELAY of the connected sockets of this process."""
    for fd in range(3, 64):
        try:
            is_socket = stat.S_ISSOCK(os.fstat(fd).st_mode)
        except OSError:
            continue
        if not is_socket:
            continue
        with socket.socket(fileno=os.dup(fd)) as one:
            listens = one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if one.family == socket.AF_INET and not listens:
                yield str(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))


async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        event = ",".join(connections()).encode()
        await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body"})
END
cat >"$dir/run.py" <<'END'
import http.client
import socket
import subprocess
import sys
import time
from statistics import median


def ask(client):
    """Return the first event, and the seconds until it arrives."""
    start = time.perf_counter()
    client.request("GET", "/")
    response = client.getresponse()
    event = response.read(1).decode()
    seconds = time.perf_counter() - start
    response.read()
    return event, seconds


seen = {}
for workers in (1, 2):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--port", str(port), "--workers", str(workers), "--log-level", "error"]
    server = subprocess.Popen([sys.executable, "-m", "uvicorn", *options, "app:app"])
    try:
        client = http.client.HTTPConnection("127.0.0.1", port)
        for _ in range(300):
            try:
                client.connect()
                break
            except OSError:
                time.sleep(0.1)
        found = [ask(client) for _ in range(60)]
        client.close()
    finally:
        server.terminate()
        server.wait()
    late = 10 * round(100 * median(seconds for _, seconds in found[20:]))
    seen[workers] = found[0][0], late
    print(f"workers {workers}: TCP_NODELAY {found[0][0]}, first event after {late} ms")
if seen != {1: ("1", 0), 2: ("0", 40)}:
    raise SystemExit("changed")
END
cd "$dir"
venv/bin/python run.py
