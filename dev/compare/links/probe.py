"""Measure a link: the round-trip time of a small message, and the rate of a large one.

python -m dev.compare.links.probe serve ADDRESS
python -m dev.compare.links.probe ask ADDRESS        # prints seconds and bits/s
"""

from __future__ import annotations

import socket
import sys
import time
from statistics import median

PORT = 17077
SMALL, TIMES = 64, 50
SECONDS = 0.5  # duration of sending


def serve(address: str) -> None:
    with socket.create_server((address, PORT)) as server:
        print("ready", flush=True)
        line, _ = server.accept()
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(TIMES):
            line.sendall(line.recv(SMALL, socket.MSG_WAITALL))
        while line.recv(1 << 20):
            pass
        line.close()


def ask(address: str) -> tuple[float, float]:
    with socket.create_connection((address, PORT)) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        times = []
        for _ in range(TIMES):
            start = time.monotonic()
            line.sendall(bytes(SMALL))
            line.recv(SMALL, socket.MSG_WAITALL)
            times.append(time.monotonic() - start)
        start, n, block = time.monotonic(), 0, bytes(1 << 18)
        while time.monotonic() < start + SECONDS:
            line.sendall(block)
            n += len(block)
        line.shutdown(socket.SHUT_WR)
        line.recv(1)  # waits for the last byte
        return median(times), 8 * n / (time.monotonic() - start)


def main() -> int:
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        print(*ask(sys.argv[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
