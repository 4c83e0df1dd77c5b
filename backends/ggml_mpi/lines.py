"""Connections of all ranks to rank 0, beside MPI."""

from __future__ import annotations

import platform
import secrets
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ggml_mpi.keeper import limit
from ggml_py.errors import BackendError

if TYPE_CHECKING:
    from mpi4py import MPI

SIOCGIFADDR = 0x8915  # linux/sockios.h
TRY = 3.0  # seconds for an address to answer
WELCOME = b"+"


def connected(comm: MPI.Intracomm, hosts: Sequence[str]) -> dict[int, socket.socket]:
    """In rank 0 the connections of all others, in these the one to it. Every rank must call it.

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
        with socket.create_server(("", 0), backlog=size) as server:
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
            f"rank {i} on {hosts[i]} cannot reach rank 0 at {', '.join(where)}, port {port}; ranks"
            " need TCP connections to each other"
        )
    return found


def _accept(
    server: socket.socket, token: str, n: int, found: dict[int, socket.socket]
) -> None:
    server.settimeout(limit())
    with suppress(OSError):
        while len(found) < n:
            line, _ = server.accept()
            line.settimeout(TRY)
            with suppress(OSError, ValueError):
                said, rank = line.recv(64).split()
                if secrets.compare_digest(said, token.encode()):
                    found[int(rank)] = line
                    line.setblocking(False)
                    line.send(WELCOME)


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
    """Of this machine: those of its name, and on Linux those of all its interfaces."""
    with suppress(OSError):
        yield from socket.gethostbyname_ex(platform.node())[2]
    with suppress(ImportError, OSError):
        import fcntl

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            for _, name in socket.if_nameindex():
                with suppress(OSError):
                    named = struct.pack("256s", name.encode()[:15])
                    data = fcntl.ioctl(asked.fileno(), SIOCGIFADDR, named)
                    yield socket.inet_ntoa(data[20:24])
