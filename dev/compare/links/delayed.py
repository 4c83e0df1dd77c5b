"""Link between two namespaces: forwards packets between their TUN devices with a delay.

    python -m dev.compare.links.delayed SPACE SPACE SECONDS BYTES_PER_SECOND

In each direction, a packet takes `bytes / rate` after the previous packet, plus the latency.
Packets are large (MTU), so that Python can handle some Gbit/s without loss. Use it on Linux
kernels without netem. It prints `ready` when both devices exist, and runs until it is killed.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h
CLONE_NEWNET = 0x40000000
PR_SET_TIMERSLACK = 29
MTU = 65000
DEVICE = "link0"


def device_in(space: str) -> int:
    """Move this process into a namespace and return a TUN device there."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/run/netns/{space}").open("rb") as file:
        if libc.setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter namespace {space}")
    found = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(found, TUNSETIFF, struct.pack("16sH14x", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
    return found


class Way:
    """One direction: from one device to the other, with the packets in flight."""

    def __init__(self, source: int, target: int, latency: float, rate: float) -> None:
        self.source, self.target, self.latency, self.rate = source, target, latency, rate
        self._under_way: deque[tuple[float, bytes]] = deque()
        self._free = 0.0

    def take(self) -> None:
        """Read all available packets."""
        while True:
            try:
                packet = os.read(self.source, MTU + 100)
            except BlockingIOError:
                return
            self._free = max(self._free, time.monotonic()) + len(packet) / self.rate
            self._under_way.append((self._free + self.latency, packet))

    def hand_on(self) -> float | None:
        """Send all due packets; return the time of the next packet."""
        while self._under_way:
            due, packet = self._under_way[0]
            if due > time.monotonic():
                return due
            with suppress(OSError):  # the other end is not up yet
                os.write(self.target, packet)
            self._under_way.popleft()
        return None


def main() -> int:
    a, b, latency, rate = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
    ends = device_in(a), device_in(b)
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(9))  # before computing processes
    ways = Way(*ends, latency, rate), Way(*ends[::-1], latency, rate)
    print("ready", flush=True)
    while True:
        due = [when for way in ways if (when := way.hand_on()) is not None]
        wait = max(min(due) - time.monotonic(), 0.0) if due else None
        ready, _, _ = select.select(ends, [], [], wait)
        for way in ways:
            if way.source in ready:
                way.take()


if __name__ == "__main__":
    sys.exit(main())
