"""llama-py-cli cache: what is listed, and what clear removes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ggml_cpu import store
from ggml_cpu.lock import CompileTurn
from ggml_py.machine.folder import Folder
from llama_py_tools.generate import cli

OBJECT = bytes(3 << 19)  # 1.5 MiB


@pytest.fixture
def cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with the present environment and an earlier one."""
    monkeypatch.setenv("LLAMA_PY_CACHE", str(tmp_path))
    folder, _ = store.Store().make()
    assert folder is not None
    with folder:
        folder.write("x.o", OBJECT)
    other = tmp_path / "cpu" / "other"
    other.mkdir(mode=0o700)
    (other / store.MARKER).write_text(f"{store.MARK}zx81, numba 0.0\n")
    (other / "x.o").write_bytes(OBJECT)
    (other / "y.o").write_bytes(OBJECT)
    os.utime(other, (0, 0))
    return tmp_path / "cpu"


def output(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["cache", *words]) == 0
    return capsys.readouterr().out


def test_list(cpu: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cpu / "not ours").mkdir()
    for words in ([], ["list"]):
        head, present, other = output(capsys, *words).splitlines()
        assert head == f"{cpu}: 4.5 MiB in 2 environments"
        path = store.path()
        assert path is not None and present.startswith(f"* {path.name}     1 kernels    1.5 MiB")
        assert "numba" in present and "Python 3." in present
        assert other.startswith("  other     2 kernels    3.0 MiB   used 19")
        assert other.endswith("zx81, numba 0.0")


def test_path(cpu: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "path") == f"{store.path()}\n"


@pytest.mark.parametrize(
    ("flags", "n", "left"),
    [((), 1, {"other"}), (("--unused",), 2, {"own"}), (("--all",), 3, set())],
    ids=["own", "unused", "all"],
)
def test_clear(
    cpu: Path, flags: tuple[str, ...], n: int, left: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = store.path()
    assert path is not None
    shown = output(capsys, "clear", *flags)
    assert shown.startswith(f"removed {n} kernels, {1.5 * n} MiB, of ")
    assert {"own" if at == path else at.name for at in cpu.iterdir()} == left


def test_clear_leaves_what_is_in_use(cpu: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Folder(cpu / "other") as folder, CompileTurn(folder) as turn:
        assert turn.is_ours() and cli.main(["cache", "clear", "--all"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("removed 1 kernels") and "other is not removed" in shown.err
    assert (cpu / "other" / "x.o").exists()


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["list", "--all"], ["remove"], ["clear", "-m", "x"]):
        with pytest.raises(SystemExit, match="2"):
            cli.main(["cache", *words])
    assert "usage: llama-py-cli cache [list|path|clear" in capsys.readouterr().err


def test_no_home(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LLAMA_PY_CACHE", "~nobody-of-this-name/x")
    assert cli.main(["cache"]) == 1
    assert "error: no home directory; set LLAMA_PY_CACHE" in capsys.readouterr().err
