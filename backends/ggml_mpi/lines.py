"""Connections of all ranks to rank 0, in addition to MPI."""

from __future__ import annotations

import platform
import secrets
import selectors
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ggml_mpi.keeper import limit
from ggml_py.errors import BackendError

if TYPE_CHECKING:
    from mpi4py import MPI

SIOCGIFADDR = 0x8915  # linux/sockios.h
TRY = 3.0  # seconds for an address to answer
HELLO = 64  # maximum bytes of a rank's first message
WELCOME = b"+"


def connect_ranks(comm: MPI.Intracomm, hosts: Sequence[str]) -> dict[int, socket.socket]:
    """Return rank 0's connections to all others, or another rank's to rank 0. All ranks call it.

    BackendError in all ranks, if one cannot reach rank 0.
    """
    rank, size = comm.Get_rank(), comm.Get_size()
    found: dict[int, socket.socket] = {}
    if rank:
        where, port, token = comm.bcast(None)
        line = _to_first(where, port, f"{token} {rank}\n".encode())
        if line is not None:
            found[0] = line
    else:
        where = list(dict.fromkeys(_addresses()))
        with _server(size) as server:
            port, token = server.getsockname()[1], secrets.token_hex(16)
            wanted = (server, token, size - 1, found)
            threading.Thread(target=_accept, args=wanted, daemon=True).start()
            comm.bcast((where, port, token))
            there = comm.allgather(True)
    if rank:
        there = comm.allgather(bool(found))
    if not all(there):
        i = there.index(False)
        raise BackendError(
            f"rank {i} on {hosts[i]} cannot reach rank 0 at {', '.join(where)}, port {port}; "
            "allow TCP connections between the ranks"
        )
    return found


def _server(backlog: int) -> socket.socket:
    """Return a listening socket, by IPv4 or IPv6, as this machine has them."""
    if socket.has_dualstack_ipv6():
        with suppress(OSError):  # IPv6 may be turned off
            family = socket.AF_INET6
            return socket.create_server(
                ("", 0), family=family, backlog=backlog, dualstack_ipv6=True
            )
    return socket.create_server(("", 0), backlog=backlog)


def _accept(server: socket.socket, token: str, n: int, found: dict[int, socket.socket]) -> None:
    """Accept until all ranks have sent the token and their rank; ignore other clients."""
    until = time.monotonic() + limit()
    server.setblocking(False)
    with suppress(OSError, ValueError), selectors.DefaultSelector() as watched:
        watched.register(server, selectors.EVENT_READ)
        said: dict[socket.socket, bytes] = {}
        while len(found) < n and time.monotonic() < until:
            for key, _ in watched.select(TRY):
                if key.fileobj is server:
                    with suppress(OSError):
                        line, _ = server.accept()
                        line.setblocking(False)
                        said[line] = b""
                        watched.register(line, selectors.EVENT_READ)
                    continue
                assert isinstance(key.fileobj, socket.socket)
                line = key.fileobj
                said[line] += _heard(line)
                rank = _parse_hello(said[line], token)
                if rank is None:
                    continue
                watched.unregister(line)
                del said[line]
                if rank:
                    found[rank] = line
                    line.send(WELCOME)
                else:
                    line.close()
        for line in said:
            line.close()


def _heard(line: socket.socket) -> bytes:
    """Return the received bytes, or a line's end after the last byte."""
    with suppress(OSError):
        return line.recv(HELLO) or b"\n"
    return b"\n"


def _parse_hello(said: bytes, token: str) -> int | None:
    """Return the rank that sent this; 0: another client; None: the message is incomplete."""
    hello, end, _ = said.partition(b"\n")
    if not end:
        return 0 if len(said) >= HELLO else None
    key, _, rank = hello.partition(b" ")
    return int(rank) if secrets.compare_digest(key, token.encode()) else 0


def _to_first(where: list[str], port: int, hello: bytes) -> socket.socket | None:
    for address in where:
        with suppress(OSError):
            line = socket.create_connection((address, port), TRY)
            line.send(hello)
            if line.recv(1) == WELCOME:
                line.setblocking(False)
                return line
            line.close()
    return None


def _addresses() -> Iterator[str]:
    """Yield this machine's addresses, of its name and on Linux of all interfaces, IPv4 first,
    without link-local addresses, which are invalid elsewhere."""
    found = [*_host_addresses(), *_interface_addresses()]
    yield from (a for a in found if ":" not in a)
    yield from (a for a in found if ":" in a and not a.startswith("fe80:"))


def _host_addresses() -> Iterator[str]:
    with suppress(OSError):
        for *_, address in socket.getaddrinfo(platform.node(), None, type=socket.SOCK_STREAM):
            yield str(address[0])


def _interface_addresses() -> Iterator[str]:
    with suppress(ImportError, OSError):
        import fcntl

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            for _, name in socket.if_nameindex():
                with suppress(OSError):
                    named = struct.pack("256s", name.encode()[:15])
                    data = fcntl.ioctl(asked.fileno(), SIOCGIFADDR, named)
                    yield socket.inet_ntoa(data[20:24])
    with suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            yield socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line.split()[0]))
