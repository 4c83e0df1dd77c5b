"""Parts of models that a rank was sent: found again, never trusted, removed for newer ones."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ggml_cpu import store
from ggml_mpi import kept
from ggml_mpi.kept import KeptWeights, full_digest
from ggml_py.machine.folder import Folder
from llama_py_tools.generate import cli
from tests.mpi.launching import on_ranks
from tests.support.commands import DEMO, ROOT, SCRIPTS, clean_environment

CLI = str(SCRIPTS / "llama-py-cli")
MIB = 2**20
KERNELS = store.cache_path()


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLAMA_PY_CACHE", str(tmp_path))
    monkeypatch.delenv("LLAMA_PY_WEIGHTS_SIZE", raising=False)
    return tmp_path / "weights"


def some(seed: int, size: int = MIB) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def names(at: Path) -> set[str]:
    return {path.name for path in at.iterdir()} - {kept.MARKER}


def is_mapped(data: np.ndarray) -> bool:
    return not data.flags.writeable


def test_what_was_kept_is_found_by_another(at: Path) -> None:
    data = some(0)
    digest = full_digest(data)
    assert KeptWeights().find(digest, data.size) is None
    found = KeptWeights().keep(digest, data)
    assert is_mapped(found) and names(at) == {digest}
    again = KeptWeights().find(digest, data.size)
    assert again is not None and is_mapped(again)
    np.testing.assert_array_equal(again, data)
    if sys.platform != "win32":
        assert at.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("how", ["cut", "changed", "longer", "empty"])
def test_another_file_of_the_name_is_none(at: Path, how: str) -> None:
    data = some(1)
    digest = full_digest(data)
    KeptWeights().keep(digest, data)
    content = bytearray(data.tobytes())
    content[MIB // 2] ^= 1
    wrong = {"cut": content[: MIB // 2], "changed": content, "longer": content * 2, "empty": b""}
    (at / digest).write_bytes(wrong[how])
    assert KeptWeights().find(digest, data.size) is None
    assert names(at) == set()
    KeptWeights().keep(digest, data)
    assert KeptWeights().find(digest, data.size) is not None


WRITES = """
import sys
import numpy as np
from ggml_mpi.kept import KeptWeights, full_digest
k = KeptWeights()
for seed in range(10000):
    data = np.random.default_rng(seed).integers(0, 256, 1 << 20, np.uint8)
    k.keep(full_digest(data), data)
    print(seed, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_kill_while_writing_leaves_nothing_wrong(at: Path) -> None:
    for stop in (0, 1, 3):
        with subprocess.Popen(
            [sys.executable, "-c", WRITES],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**clean_environment(), "LLAMA_PY_CACHE": str(at.parent)},
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if int(line) == stop:
                    break
            process.send_signal(signal.SIGKILL)
    whole = [name for name in names(at) if len(name) == 64]
    assert len(whole) >= 4
    for name in whole:
        assert KeptWeights().find(name, MIB) is not None


def test_a_full_disk_leaves_it_in_memory(
    at: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(fd: int, content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    own, data = KeptWeights(), some(2)
    at.mkdir(mode=0o700)
    for _ in range(2):
        assert own.keep(full_digest(data), data) is data
    assert [r.message for r in caplog.records if "cannot be cached" in r.message] == [
        f"weights from rank 0 cannot be cached in {at}: No space left on device; they are sent"
        " again at each start"
    ]
    monkeypatch.undo()
    assert names(at) == set()


@pytest.mark.skipif(sys.platform == "win32", reason="a profile is its user's")
def test_a_directory_that_others_may_write_to_is_none(at: Path) -> None:
    data = some(3)
    KeptWeights().keep(full_digest(data), data)
    at.chmod(0o777)
    assert KeptWeights().find(full_digest(data), data.size) is None
    assert KeptWeights().keep(full_digest(data), data) is data
    at.chmod(0o700)
    (at / full_digest(data)).chmod(0o666)
    assert KeptWeights().find(full_digest(data), data.size) is None


def test_a_directory_of_others_is_left_alone(at: Path) -> None:
    at.mkdir()
    (at / "letter.txt").write_text("mine")
    data = some(4)
    assert KeptWeights().keep(full_digest(data), data) is data
    assert kept.about() is None and kept.clear() == (0, 0) and names(at) == {"letter.txt"}


def test_the_least_lately_used_goes_first(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {full_digest(data): data for data in map(some, range(5))}
    digests = list(parts)
    for number, (digest, data) in enumerate(parts.items()):
        if number < 3:
            KeptWeights().keep(digest, data)
            os.utime(at / digest, (number, number))
    monkeypatch.setenv("LLAMA_PY_WEIGHTS_SIZE", "3")
    own = KeptWeights()
    assert own.find(digests[0], MIB) is not None  # it is used now
    own.keep(digests[3], parts[digests[3]])
    assert names(at) == {digests[0], digests[2], digests[3]}
    monkeypatch.setenv("LLAMA_PY_WEIGHTS_SIZE", "2")
    assert own.keep(digests[4], parts[digests[4]]) is parts[digests[4]]  # what is in use stays
    assert names(at) == {digests[0], digests[3]}


def test_the_command_lists_and_clears(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = some(5)
    KeptWeights().keep(full_digest(data), data)
    with Folder(at) as folder:
        folder.write("letter.txt", b"mine")
    assert cli.main(["cache"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith(f"{at}: 1.0 MiB in 1 parts of models that rank 0 has sent   used 20")
    assert cli.main(["cache", "clear"]) == 0 and len(names(at)) == 2
    capsys.readouterr()
    assert cli.main(["cache", "clear", "--weights"]) == 0
    assert capsys.readouterr().out == "removed 1 parts of models, 1.0 MiB\n"
    assert names(at) == {"letter.txt"}


BLIND = (
    "import sys, ggml_mpi.files as f\n"
    "f.Files.read = lambda *_: None\n"
    "from llama_py_tools.start import cli\n"
    "sys.exit(cli())\n"
)


def test_a_rank_without_the_file_is_sent_its_part_once(at: Path) -> None:
    """The same text as where each reads for itself, and only what the rank has a part in."""
    if KERNELS is not None and KERNELS.exists():
        (at.parent / "cpu").symlink_to(KERNELS)  # none need be compiled
    flags = ("-p", "ROMEO:", "-n", "12", "--temp", "0", "-no-cnv", "-sm", "layer", "-ts", "1,1")
    program = ("-c", BLIND, *flags, "--verbose")
    env = {"LLAMA_PY_CACHE": os.environ.get("LLAMA_PY_CACHE", "")}
    assert Path(env["LLAMA_PY_CACHE"]) == at.parent
    expected = on_ranks(2, CLI, *flags, **env)
    assert expected.returncode == 0 and not at.exists(), expected.stderr
    first = on_ranks(2, *program, **env)
    assert first.stdout == expected.stdout, first.stderr
    kept_now = {name: (at / name).stat().st_ino for name in names(at)}
    sizes = sum((at / name).stat().st_size for name in kept_now)
    assert 0 < sizes < DEMO.stat().st_size * 0.8 and all(map(_is_digest, kept_now))
    again = on_ranks(2, *program, **env)
    assert again.stdout == expected.stdout, again.stderr
    assert {name: (at / name).stat().st_ino for name in names(at)} == kept_now
    broken = max(kept_now, key=lambda name: (at / name).stat().st_size)
    os.truncate(at / broken, 1000)
    third = on_ranks(2, *program, **env)
    assert third.stdout == expected.stdout, third.stderr
    assert full_digest(np.fromfile(at / broken, np.uint8)) == broken


def _is_digest(name: str) -> bool:
    return re.fullmatch("[0-9a-f]{64}", name) is not None
