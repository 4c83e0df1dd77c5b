"""What is removed of a kernel cache: old environments and what exceeds its size; nobody's files."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ggml_cpu import store, tidy
from ggml_cpu.lock import CompileTurn
from ggml_py.machine.folder import PARTIAL, Folder

DAY = 86400


@pytest.fixture
def cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLAMA_PY_CACHE", str(tmp_path))
    monkeypatch.delenv("LLAMA_PY_CACHE_SIZE", raising=False)
    (tmp_path / "cpu").mkdir()
    return tmp_path / "cpu"


def environment(at: Path, days: float = 0, size: int = 10, marked: bool = True) -> Path:
    """One that was used so many days ago."""
    at.mkdir(mode=0o700)
    if marked:
        (at / store.MARKER).write_text(f"{store.MARK}zx81, numba 0.0\n")
    (at / f"x-0123456789abcdef{store.OBJECT}").write_bytes(bytes(size))
    used(at, days)
    return at


def used(at: Path, days: float) -> None:
    os.utime(at, (time.time() - days * DAY,) * 2)


def present() -> Path:
    """The present environment's directory, marked long ago."""
    folder, made = store.Store().make()
    assert folder is not None and made
    folder.close()
    at = store.path()
    assert at is not None
    used(at / store.MARKER, 2)
    return at


def run_tidy(made: bool = False) -> None:
    at = store.path()
    assert at is not None
    with Folder(at) as folder:
        tidy.tidy(folder, made)


def names(cpu: Path) -> set[str]:
    return {path.name for path in cpu.iterdir()}


def test_unused_environments_are_removed(cpu: Path) -> None:
    here = present()
    environment(cpu / "old", tidy.UNUSED_DAYS + 1)
    environment(cpu / "recent", tidy.UNUSED_DAYS - 1)
    used(here, 3 * tidy.UNUSED_DAYS)
    run_tidy()
    assert names(cpu) == {"recent", here.name}


def test_only_our_directories_are_removed(cpu: Path, tmp_path: Path) -> None:
    """Each was unused for years; what has no mark, belongs to others or is a link stays whole."""
    here = present()
    outside = environment(tmp_path / "outside", 1000)
    environment(cpu / "unmarked", 1000, marked=False)
    environment(cpu / "marked as another's", 1000, marked=False)
    (cpu / "marked as another's" / store.MARKER).write_text(store.MARK.split("\n")[0] + "\n")
    environment(cpu / "open to all", 1000).chmod(0o777)
    (cpu / "link").symlink_to(outside)
    (cpu / "file").write_text("text")
    mixed = environment(cpu / "mixed", 1000)
    (mixed / "letter.txt").write_text("text")
    (mixed / f"link{store.OBJECT}").symlink_to(outside / store.MARKER)
    (mixed / f"folder{store.OBJECT}").mkdir()
    for at in cpu.iterdir():
        if not at.is_symlink() and at != here:
            used(at, 1000)
    before = {p: p.read_bytes() for at in (cpu, outside) for p in at.rglob("*") if p.is_file()}
    run_tidy()
    kept = {p: p.read_bytes() for p in before if p.is_file()}
    gone = {path.relative_to(cpu).as_posix() for path in before.keys() - kept.keys()}
    if os.name == "posix":
        assert gone == {f"mixed/x-0123456789abcdef{store.OBJECT}"}
    assert all(before[path] == content for path, content in kept.items() if path.parent != here)
    assert {"letter.txt", store.MARKER, f"link{store.OBJECT}"} <= names(mixed)
    (mixed / "letter.txt").unlink()
    (mixed / f"link{store.OBJECT}").unlink()
    (mixed / f"folder{store.OBJECT}").rmdir()
    used(mixed, 1000)
    used(here / store.MARKER, 2)
    run_tidy()
    assert not mixed.exists()


def test_size(cpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest unused go first, and only as many as it takes; the present one stays."""
    here = present()
    for days in range(1, 6):
        environment(cpu / f"used {days} days ago", days, 400_000)
    used(here, 20)
    monkeypatch.setenv("LLAMA_PY_CACHE_SIZE", "1")
    run_tidy(made=True)
    assert names(cpu) == {here.name, "used 1 days ago", "used 2 days ago"}
    monkeypatch.setenv("LLAMA_PY_CACHE_SIZE", "-1")
    run_tidy(made=True)
    assert len(names(cpu)) == 3
    monkeypatch.setenv("LLAMA_PY_CACHE_SIZE", "0")
    run_tidy(made=True)
    assert names(cpu) == {here.name}


def test_a_size_that_is_no_number(
    cpu: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    present()
    environment(cpu / "other", 1)
    monkeypatch.setenv("LLAMA_PY_CACHE_SIZE", "1G")
    run_tidy(made=True)
    assert (
        "LLAMA_PY_CACHE_SIZE must be a number of MiB, got '1G'" in caplog.text
        and len(names(cpu)) == 2
    )


def test_once_a_day(cpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = present()
    run_tidy()
    environment(cpu / "old", tidy.UNUSED_DAYS + 1)
    run_tidy()
    assert "old" in names(cpu)
    used(here / store.MARKER, 1.01)
    run_tidy()
    assert "old" not in names(cpu)


def test_what_was_never_finished_is_removed_later(cpu: Path) -> None:
    here = present()
    for name, hours in (("left", 2.0), ("being written", 0.5)):
        (here / f"{name}{PARTIAL}").write_bytes(b"x")
        used(here / f"{name}{PARTIAL}", hours / 24)
    run_tidy()
    assert {p.name for p in here.glob(f"*{PARTIAL}")} == {f"being written{PARTIAL}"}


def test_what_a_process_compiles_for_stays(cpu: Path) -> None:
    present()
    at = environment(cpu / "busy", 1000)
    with Folder(at) as folder, CompileTurn(folder) as turn:
        assert turn.is_ours()
        used(at, 1000)
        run_tidy(made=True)
        assert at.exists() and any(at.glob("*.o"))
    used(at, 1000)
    run_tidy(made=True)
    assert not at.exists()


def test_a_start_counts_as_use(cpu: Path) -> None:
    here = present()
    used(here, 5)
    store.Store().read([])
    assert time.time() - here.stat().st_mtime < 60
