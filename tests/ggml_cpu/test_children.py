"""Who asks the compiling processes: what they begin while nobody waits is not done twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest

from ggml_cpu import children
from ggml_cpu.children import Children
from ggml_cpu.kernel import Kernel
from ggml_py.errors import BackendError
from tests.ggml_cpu.fake_kernels import fake

A, B, C, D = (fake(name, value) for name, value in (("a", 1), ("b", 2), ("c", 3), ("d", 4)))


class Child:
    """Compiles at once, but for the kernels that are held: those wait to be let go.

    begun   names of kernels, of all children
    """

    begun: ClassVar[list[str]] = []
    fails: ClassVar[set[str]] = set()
    held: ClassVar[dict[str, threading.Event]] = {}
    usable = True

    def __init__(self) -> None:
        self._ended = threading.Event()

    def compile(self, kernel: Kernel) -> tuple[str, bytes]:
        self.begun.append(kernel.name)
        if kernel.name in self.held:
            while not self.held[kernel.name].wait(0.01):
                if self._ended.is_set():
                    return "it was ended", b""
        return ("no such op" if kernel.name in self.fails else ""), kernel.name.encode()

    def kill(self) -> None:
        self._ended.set()

    end = kill


class Kept:
    def write(self, kernel: Kernel, code: bytes) -> None:
        """Nowhere."""


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[Children]:
    monkeypatch.setattr(children, "_Child", Child)
    monkeypatch.setattr(children, "STORE", Kept())
    monkeypatch.setattr(Child, "begun", [])
    monkeypatch.setattr(Child, "held", {})
    monkeypatch.setattr(Child, "fails", set())
    made = Children()
    made.provide(2)
    yield made
    made.end()


def names(
    two: Children, *kernels: Kernel, following: tuple[Kernel, ...] = (), release: str = ""
) -> list[str]:
    """Return the code of all; a held kernel can be released once these have been asked for."""

    def asked() -> tuple[Kernel, ...]:
        if release:
            Child.held[release].set()
        return following

    return sorted(code.decode() for _, code in two.compile(kernels, asked))


def wait_for(begun: str) -> None:
    while begun not in Child.begun:
        threading.Event().wait(0.01)


def test_what_follows_is_begun_and_waited_for_when_it_is_asked_for(two: Children) -> None:
    Child.held["c"] = threading.Event()
    assert names(two, A, B, following=(C,)) == ["a", "b"]
    wait_for("c")
    assert two.at_work()
    assert names(two, C, D, release="c") == ["c", "d"]
    assert sorted(Child.begun) == ["a", "b", "c", "d"]


def test_what_was_done_meanwhile_is_there(two: Children) -> None:
    assert names(two, A, following=(C, D)) == ["a"]
    while two.at_work():
        threading.Event().wait(0.01)
    assert names(two, C, B) == ["b", "c"]
    assert sorted(Child.begun) == ["a", "b", "c", "d"]


def test_what_was_not_begun_makes_room(two: Children) -> None:
    Child.held |= {"b": threading.Event(), "c": threading.Event()}
    assert names(two, A, following=(B, C, D)) == ["a"]
    wait_for("b")
    wait_for("c")
    assert names(two, A, release="b") == ["a"]
    assert "d" not in Child.begun


def test_an_error_is_whose_who_asks(two: Children) -> None:
    Child.fails.add("c")
    assert names(two, A, following=(C,)) == ["a"]
    assert names(two, B) == ["b"]
    wait_for("c")
    with pytest.raises(BackendError, match="no such op"):
        names(two, C)


def test_the_end_of_what_nobody_waits_for(two: Children) -> None:
    Child.held["c"] = threading.Event()
    assert names(two, A, following=(C,)) == ["a"]
    wait_for("c")
    two.end()
    assert not two.at_work()
    Child.held.clear()
    two.provide(1)
    assert names(two, C) == ["c"]
