"""Turns of processes that compile: no work is done twice, and nobody waits for the dead."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from ggml_cpu import compile, lock, store
from ggml_cpu.children import Children
from ggml_cpu.kernel import Kernel
from ggml_cpu.lock import CompileTurn
from ggml_cpu.symbols import kernel_symbol
from ggml_py.machine.folder import Folder
from tests.ggml_cpu.fake_kernels import fake, new_process, stores, value_of

HOLDER = """
import sys
from pathlib import Path
from ggml_py.machine.folder import Folder
from ggml_cpu.lock import CompileTurn

with Folder(Path(sys.argv[1])) as folder, CompileTurn(folder) as turn:
    print(turn.is_ours(), flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLAMA_PY_CACHE", str(tmp_path))
    new_process(monkeypatch)
    folder, _ = store.Store().make()
    assert folder is not None
    folder.close()
    path = store.path()
    assert path is not None
    return path


def test_one_has_it(at: Path) -> None:
    with Folder(at) as folder:
        with CompileTurn(folder) as first, CompileTurn(folder) as second:
            assert first.is_ours() and not second.is_ours() and not second.has_come()
        with CompileTurn(folder) as third:
            assert third.is_ours()


def test_of_a_process_that_was_killed(at: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(at)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    with holder, Folder(at) as folder, CompileTurn(folder) as turn:
        assert holder.stdout.readline() == "True\n"
        assert not turn.is_ours()
        holder.kill()
        holder.wait()
        assert turn.is_ours()


def test_waiting_in_vain(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is stopped, say."""
    now = [0.0]
    monkeypatch.setattr(lock.time, "monotonic", lambda: now[0])
    with Folder(at) as folder, CompileTurn(folder) as holder, CompileTurn(folder) as turn:
        assert holder.is_ours() and not turn.has_come()
        now[0] = lock.PATIENCE
        assert not turn.has_come()
        turn.progress()
        now[0] += lock.PATIENCE + 1
        assert turn.has_come()


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")
@pytest.mark.parametrize("kind", ["directory", "fifo", "link", "none"])
def test_where_there_can_be_no_lock(at: Path, kind: str) -> None:
    """A pipe that nobody reads blocks nobody."""
    make = {"directory": Path.mkdir, "fifo": os.mkfifo, "link": lambda p: p.symlink_to("x")}
    if kind != "none":
        make[kind](at / lock.LOCK)
    with Folder(at) as folder, CompileTurn(None if kind == "none" else folder) as turn:
        assert turn.is_ours()


def test_kernels_of_another_process_are_waited_for(
    at: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It compiles A and B; C is ours to compile, when its turn is over."""
    a, b, c = (fake(name, value) for name, value in (("a", 1), ("b", 2), ("c", 3)))
    asked: list[str] = []

    def children_compile(
        _: Children, kernels: Sequence[Kernel], following: object
    ) -> Generator[object]:
        asked.extend(kernel.name for kernel in kernels)
        yield from ((kernel, b"code") for kernel in kernels)

    monkeypatch.setattr(Children, "compile", children_compile)
    monkeypatch.setattr(Children, "provide", lambda *_: None)
    monkeypatch.setattr(compile, "source", lambda module: "somewhere")
    released: list[float] = []

    def other_process(seconds: float) -> None:
        """Ends while this one waits for it."""
        its = store.Store()
        for kernel in (a, b):
            its.write(kernel, stores(kernel_symbol(kernel.name), value_of(kernel)))
        released.append(seconds)
        turn.__exit__()

    seen: list[tuple[int, int, str]] = []
    with Folder(at) as folder, CompileTurn(folder) as turn:
        assert turn.is_ours()
        monkeypatch.setattr(compile.time, "sleep", other_process)
        codes = compile.compile_kernels([a, b, c], lambda *how: seen.append(how))
    assert len(released) == 1 and asked == ["c"] and len(codes) == 3
    assert [how[:2] for how in seen] == [(1, 3), (2, 3), (3, 3)]
