"""Connections of ranks to rank 0, with strangers among them, and the names of machines."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from ggml_mpi import lines
from ggml_mpi.watch import BYE, Watch
from llama_py_tools.command import ranks
from tests.support.limits import SECONDS
from tests.support.locks import NotedLock

TOKEN = "0123456789abcdef"
HOME = ("127.0.0.1", "::1")


def home() -> Iterator[str]:
    """Addresses of this machine that can be connected to."""
    for address in HOME:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            try:
                probe.bind((address, 0))
            except OSError:
                continue
            yield address


@pytest.fixture
def accepting() -> Iterator[tuple[int, dict[int, socket.socket], threading.Thread]]:
    """The port, what is found, and the thread of one that waits for two ranks."""
    found: dict[int, socket.socket] = {}
    with lines._server(8) as server:
        wanted = server, TOKEN, 2, found
        thread = threading.Thread(target=lines._accept, args=wanted, daemon=True)
        thread.start()
        yield server.getsockname()[1], found, thread
        thread.join(SECONDS)
    for line in found.values():
        line.close()


def test_strangers_keep_no_rank_waiting(accepting: Any) -> None:
    """More of them than connections that wait, silent ones, and some with other words."""
    port, found, thread = accepting
    with ExitStack() as open_:
        for i in range(20):
            stranger = open_.enter_context(socket.create_connection(("127.0.0.1", port), SECONDS))
            if i % 4:
                stranger.send([b"GET / HTTP/1.1\r\n\r\n", b"x" * 100, b"wrong 1\n"][i % 4 - 1])
        for rank, address in zip((1, 2), [*home()] * 2, strict=False):
            line = lines._to_first([address], port, f"{TOKEN} {rank}\n".encode())
            assert line is not None
            open_.enter_context(line)
        thread.join(SECONDS)
    assert sorted(found) == [1, 2]


def test_a_word_may_come_in_parts(accepting: Any) -> None:
    port, found, thread = accepting
    with ExitStack() as open_:
        ours = [
            open_.enter_context(socket.create_connection(("127.0.0.1", port), SECONDS))
            for _ in range(2)
        ]
        for line in ours:
            line.send(TOKEN[:5].encode())
        for rank, line in enumerate(ours, 1):
            line.send(f"{TOKEN[5:]} {rank}\n".encode())
            assert line.recv(1) == lines.WELCOME
        thread.join(SECONDS)
    assert sorted(found) == [1, 2]


def test_all_addresses_of_this_machine_are_told() -> None:
    """IPv6 ones after those that more machines can reach."""
    found = [*lines._addresses()]
    assert found and not [a for a in found if a.startswith("fe80:")]
    assert [":" in a for a in found] == sorted(":" in a for a in found)


def test_hosts_may_be_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """An IPv6 address by its name, as launchers know no others."""
    assert ranks.parse_hosts("a.example.org,b-2:3,user@c,10.0.0.1:2") == [
        ("a.example.org", 1),
        ("b-2", 3),
        ("user@c", 1),
        ("10.0.0.1", 2),
    ]
    monkeypatch.setattr(socket, "gethostbyaddr", lambda address: (f"n{address[-1]}", [], []))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **more: [])
    assert ranks.parse_hosts("[fd00::7],[fd00::8]:2") == [("n7", 1), ("n8", 2)]


@pytest.mark.parametrize("hosts", ["", "a:", "a:0", "a:x", "::1", "[::1", "[::1]2", "a b", "a:1:2"])
def test_what_names_no_machine_is_refused(hosts: str) -> None:
    with pytest.raises(SystemExit, match=r"^error: --hosts .*: expected HOST\[:N\],\.\.\."):
        ranks.parse_hosts(hosts)


def test_an_address_without_a_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(address: str) -> None:
        raise OSError

    monkeypatch.setattr(socket, "gethostbyaddr", unknown)
    with pytest.raises(SystemExit, match="needs a name or an IPv4 address"):
        ranks.parse_hosts("[fd00::7]:2")


def test_a_machine_with_ipv6_only_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the launcher, with many words; a name that only ssh knows is not looked at."""
    known = {"six": socket.AF_INET6, "four": socket.AF_INET}

    def look_up(name: str, port: None, family: int) -> list[Any]:
        if known.get(name) != family:
            raise OSError
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(shutil, "which", lambda *args, **more: "mpiexec")
    with pytest.raises(SystemExit, match="--hosts me@six: has only an IPv6 address"):
        ranks.launch([("four", 1), ("me@six", 2)])
    assert ranks.launch([("four", 1), ("alias", 2)])[:5] == [
        "mpiexec",
        "-hosts",
        "four:1,alias:2",
        "-n",
        "3",
    ]
    assert ranks.launch([("six", 2)])  # this machine


def test_a_farewell_may_come_while_this_one_says_its_own() -> None:
    """Both change who is watched, in two threads."""
    watch = Watch(0, {}, {})
    here, there = socket.socketpair()
    there.send(BYE)
    lock = watch._lock = NotedLock(watch._lock)  # type: ignore[assignment]

    def hear() -> None:
        watch._hear(2)
        lock.come.set()

    hearing = threading.Thread(target=hear)

    class First(socket.socket):
        def send(self, *args: Any) -> int:  # type: ignore[override]
            lock.come.clear()  # this thread has come before
            hearing.start()
            assert lock.come.wait(SECONDS)
            return 1

    with here, there, First() as first:
        watch._peers, watch._heard = {1: first, 2: here}, {1: 0.0, 2: 0.0}
        watch.part()
        hearing.join(SECONDS)
    assert [*watch._peers] == [1]
