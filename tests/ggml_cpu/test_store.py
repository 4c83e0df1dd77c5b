"""Files of the kernel cache that are not what they should be, and directories that cannot be used:
results are right, nobody waits, and there is one line about it."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

import pytest

from ggml_cpu import codegen, host_cpu, store
from ggml_cpu.fingerprints import file_name
from ggml_cpu.symbols import kernel_symbol
from ggml_py.machine import folder
from tests.ggml_cpu.fake_kernels import compiled_with_llvm, fake, new_process, run, stores

A, B = fake("kernel_a", 5), fake("kernel_b", 7)
POSIX = pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This environment's directory, which has both kernels."""
    monkeypatch.setenv("LLAMA_PY_CACHE", str(tmp_path / "cache"))
    new_process(monkeypatch)
    with pytest.MonkeyPatch.context() as patch:
        compiled_with_llvm(patch)
        assert run(A, B) == [5, 7]
    path = store.path()
    assert path is not None
    new_process(monkeypatch)
    return path


@pytest.fixture
def done(at: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Kernels that are compiled from now on."""
    return compiled_with_llvm(monkeypatch)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_what_is_kept_is_used(at: Path, done: list[str]) -> None:
    assert run(A, B) == [5, 7] and done == []
    assert stat.S_IMODE(at.stat().st_mode) == 0o700 or os.name != "posix"
    names = {path.name for path in at.iterdir()}
    assert names == {file_name(A), file_name(B), store.MARKER}
    assert (at / store.MARKER).read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")


def foreign(code: bytes) -> bytes:
    """The same for another machine: e_machine of ELF."""
    machine = 183 if code[18] == 62 else 62
    return code[:18] + bytes([machine, 0]) + code[20:]


WRONG = {
    "nothing": b"",
    "text": b"text that has the name ggml_cpu.kernel_a",
    "no such function": stores("another_function", 1),
    "only its name": stores("f", 1, '@x = constant [17 x i8] c"ggml_cpu.kernel_a"'),
    "another machine": foreign(stores("ggml_cpu.kernel_a", 1)),
    "cut": stores("ggml_cpu.kernel_a", 1)[:200] + b"ggml_cpu.kernel_a",
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_wrong_code_under_a_right_checksum(at: Path, done: list[str], content: bytes) -> None:
    assert kernel_symbol(A.name) == "ggml_cpu.kernel_a"
    good = (at / file_name(A)).read_bytes()
    (at / file_name(A)).write_bytes(store._header(A, content) + content)
    assert run(A, B) == [5, 7]
    assert done == ["kernel_a"]
    assert (at / file_name(A)).read_bytes() == good


def test_swapped_objects(at: Path, done: list[str]) -> None:
    a, b = at / file_name(A), at / file_name(B)
    a.rename(at / "x")
    b.rename(a)
    (at / "x").rename(b)
    assert run(A, B) == [5, 7]
    assert sorted(done) == ["kernel_a", "kernel_b"]


def test_an_object_of_another_kernel_with_its_symbol(at: Path, done: list[str]) -> None:
    """The same name, an earlier edit: the fingerprint is not this one's."""
    before = fake("kernel_a", 6)
    code = stores(kernel_symbol("kernel_a"), 6)
    (at / file_name(A)).write_bytes(store._header(before, code) + code)
    assert run(A) == [5] and done == ["kernel_a"]


def test_what_llvm_can_never_load_is_an_error(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ggml_py.errors import BackendError

    compiled_with_llvm(monkeypatch)
    monkeypatch.setattr(codegen, "object_code", lambda kernel: stores("another", 1))
    (at / file_name(A)).unlink()
    with pytest.raises(BackendError, match=r"cannot load .* kernel_a"):
        run(A)


@POSIX
@pytest.mark.parametrize("kind", ["fifo", "link", "device", "link to a device", "writable"])
def test_what_is_no_file_of_ours_is_not_read(at: Path, done: list[str], kind: str) -> None:
    path = at / file_name(A)
    other = at.parent / "other"
    path.rename(other)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(other)
    elif kind == "device":
        try:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero
        except PermissionError:
            pytest.skip("only root makes devices")
    elif kind == "link to a device":
        path.symlink_to("/dev/zero")
    else:
        other.rename(path)
        path.chmod(0o666)
    assert run(A, B) == [5, 7]
    assert done == ["kernel_a"]
    assert path.is_file() and not path.is_symlink()


@pytest.mark.parametrize("same", [True, False])
def test_a_file_in_use_on_windows(
    at: Path,
    done: list[str],
    same: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It cannot be replaced. Another process may have written just that meanwhile; what is of
    another content stays, and the kernel is in memory."""

    monkeypatch.setattr(host_cpu, "keep", lambda: None)

    def refuse(source: str, target: str, **_: object) -> None:
        assert (at / target).exists()
        raise PermissionError(errno.EACCES, "Access is denied", source, 5, target)

    path = at / file_name(A)
    code = path.read_bytes()
    damaged = code if same else code[:-1]
    path.write_bytes(b"")

    def compiling(kernel: object) -> bytes:
        path.write_bytes(damaged)
        return stores(kernel_symbol("kernel_a"), 5)

    monkeypatch.setattr(codegen, "object_code", compiling)
    monkeypatch.setattr(os, "replace", refuse)
    assert run(A) == run(A) == [5]
    assert path.read_bytes() == damaged and not list(at.glob("*.part"))
    assert len(warnings(caplog)) == (not same)


def test_a_directory_instead_of_an_object(
    at: Path, done: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    (at / file_name(A)).unlink()
    (at / file_name(A)).mkdir()
    assert run(A, B) == [5, 7]
    assert done == ["kernel_a"] and len(warnings(caplog)) == 1


@POSIX
@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_directory_that_others_may_write_to(
    at: Path, done: list[str], mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    code = stores(kernel_symbol("kernel_a"), 666)
    (at / file_name(A)).write_bytes(store._header(A, code) + code)
    at.chmod(mode)
    assert run(A, B) == run(A, B) == [5, 7]
    assert done == ["kernel_a", "kernel_b"]  # the second time they are in memory
    (line,) = warnings(caplog)
    assert str(at) in line and f"(mode {mode:o})" in line and "LLAMA_PY_CACHE" in line


@POSIX
def test_a_directory_of_another_user(
    at: Path, done: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    owner = at.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    monkeypatch.setattr(folder, "ROOT", owner + 2)
    assert run(A, B) == [5, 7] and done == ["kernel_a", "kernel_b"]
    (line,) = warnings(caplog)
    assert f"belongs to another user ({owner})" in line
    monkeypatch.setattr(folder, "ROOT", owner)  # an administrator's can be used
    new_process(monkeypatch)
    assert run(A) == [5] and len(done) == 2


@POSIX
def test_a_link_to_a_directory(at: Path, done: list[str], caplog: pytest.LogCaptureFixture) -> None:
    at.rename(at.parent / "elsewhere")
    at.symlink_to(at.parent / "elsewhere")
    assert run(A) == [5] and done == ["kernel_a"] and len(warnings(caplog)) == 1


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_disk_that_takes_nothing(
    at: Path,
    done: list[str],
    error: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The first bytes are written, then no more."""
    for path in at.iterdir():
        path.unlink()
    write = os.write

    def full(fd: int, data: bytes) -> int:
        if len(data) > 300:
            return write(fd, bytes(data[:100]))
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "write", full)
    assert run(A, B) == run(A, B) == [5, 7]
    assert done == ["kernel_a", "kernel_b"]
    (line,) = warnings(caplog)
    assert os.strerror(error) in line
    assert not list(at.glob("*.part")) and not list(at.glob("*.o"))


def test_no_home(
    at: Path,
    done: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.delenv("LLAMA_PY_CACHE")
    monkeypatch.chdir(tmp_path)
    unknown = "~nobody-of-this-name/.cache"
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: unknown)
    assert run(A, B) == run(A, B) == [5, 7]
    assert done == ["kernel_a", "kernel_b"]
    (line,) = warnings(caplog)
    assert "no home directory" in line
    assert not list(tmp_path.glob("~*"))


def test_the_cache_is_cleared_meanwhile(at: Path, done: list[str]) -> None:
    """By a process that does not ask; what was loaded stays, what is missing is compiled."""
    for path in at.iterdir():
        path.unlink()
    at.rmdir()
    assert run(A) == [5] and done == ["kernel_a"]
    for path in at.iterdir():
        path.unlink()
    at.rmdir()
    assert run(B) == [7]


def test_names_of_files_are_plain() -> None:
    assert re.fullmatch(r"a_b_c-[0-9a-f]{16}\.o", file_name(fake("a/b c", 1)))
