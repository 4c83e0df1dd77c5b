"""Two network namespaces with a delayed link, to run commands in.

Needs root, and `ip` and `tc` of iproute2.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dev.compare.links.delayed import DEVICE, MTU

ADDRESSES = "10.77.0.1", "10.77.0.2"
ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True)
class Speed:
    """Latency and bandwidth of a link.

    latency  seconds, one way
    rate     bits/s in each direction
    """

    latency: float
    rate: float

    @property
    def name(self) -> str:
        unit = f"{self.rate / 1e9:g} Gbit/s" if self.rate >= 1e9 else f"{self.rate / 1e6:g} Mbit/s"
        return f"{self.latency * 1e3:g} ms, {unit}"


@dataclass(frozen=True, slots=True)
class Spaces:
    """Two network namespaces with a link.

    names    names of both namespaces
    how      description of the method that delays packets
    process  process that delays packets, if any
    """

    names: tuple[str, str]
    how: str
    process: subprocess.Popen[str] | None

    def command(self, i: int, *words: str) -> list[str]:
        """Return a command that runs in the first or the second namespace."""
        return ["ip", "netns", "exec", self.names[i], *words]

    @property
    def busy_seconds(self) -> float:
        """CPU time of the process that delays packets."""
        if self.process is None:
            return 0.0
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@contextmanager
def linked(speed: Speed) -> Iterator[Spaces]:
    """Create namespaces with that link, delayed by netem if available, otherwise by a process."""
    if shutil.which("ip") is None or os.geteuid():
        raise OSError("network namespaces need root and ip (iproute2)")
    a, b = names = f"llama-a{os.getpid()}", f"llama-b{os.getpid()}"
    process = None
    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        if _netem(names, speed):
            how = "netem"
        else:
            how, process = "a process between TUN devices", _delayed(names, speed)
        for name, address in zip(names, ADDRESSES, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", DEVICE)
            if process is not None:
                ip("-n", name, "link", "set", DEVICE, "mtu", str(MTU))
            ip("-n", name, "link", "set", DEVICE, "up")
        yield Spaces((a, b), how, process)
    finally:
        if process is not None:
            process.kill()
            process.wait()
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def _netem(names: Sequence[str], speed: Speed) -> bool:
    """Connect the namespaces with veth devices and netem; return False if netem is missing."""
    a, b = names
    ip("-n", a, "link", "add", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns", b)
    rate, delay = f"{speed.rate / 1e6:g}mbit", f"{speed.latency * 1e6:g}us"
    netem = ["root", "netem", "delay", delay, "rate", rate, "limit", "100000"]
    for name in names:
        words = ["tc", "-n", name, "qdisc", "add", "dev", DEVICE, *netem]
        if subprocess.run(words, capture_output=True).returncode:
            ip("-n", a, "link", "del", DEVICE)
            return False
    return True


def _delayed(names: Sequence[str], speed: Speed) -> subprocess.Popen[str]:
    numbers = str(speed.latency), str(speed.rate / 8)
    process = subprocess.Popen(
        [sys.executable, "-m", "dev.compare.links.delayed", *names, *numbers],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        raise OSError("the link did not start; check that /dev/net/tun exists")
    return process
