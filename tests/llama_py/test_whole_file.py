"""A file that is replaced is the old one or the new one, whole."""

from __future__ import annotations

import os
import signal
import stat
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llama_py import whole_file
from llama_py.reuse import load_slot, save_slot
from llama_py.whole_file import ABANDONED, replace_file
from tests.toy_memory import Toy


def killed_while(write: Callable[[int], object], after: float) -> None:
    """Kill a process that writes, again and again, so many seconds after it has written once."""
    begun, tell = os.pipe()
    with warnings.catch_warnings():  # of threads, which the child does not use
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        i = 0
        while True:
            write(i)
            os.write(tell, b"x")
            i += 1
    assert os.read(begun, 1)
    time.sleep(after)
    os.kill(pid, signal.SIGKILL)
    os.close(begun)
    os.close(tell)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL


def slots(folder: Path, n_tokens: int) -> tuple[Path, Toy, list[list[int]]]:
    """A toy with two sequences, to be written to one file in turn, and what they hold."""
    toy = Toy("everything", checkpoint_min_step=4)
    prompts = [[1] * n_tokens, [2] * (n_tokens + 9)]
    for seq_id, ids in enumerate(prompts):
        toy.reuse.decode(ids[toy.reuse.start(ids, seq_id).n_reused :], seq_id)
    return folder / "slot", toy, prompts


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_kill_9_leaves_the_old_or_the_new_file(tmp_path: Path, n: int = 10) -> None:
    path, toy, prompts = slots(tmp_path, 60)
    save_slot(toy.reuse, path, 0)
    for after in np.random.default_rng(1).uniform(0, 0.02, n):
        killed_while(lambda i: save_slot(toy.reuse, path, i % 2), after)
        assert load_slot(toy.reuse, path, 2) in prompts
    left = [p.name for p in tmp_path.iterdir() if p != path]
    assert all(name.endswith(".part") for name in left)  # begun, and swept away later


def test_what_killed_writers_left_goes_after_a_while(tmp_path: Path) -> None:
    old, new, other = (tmp_path / f"{n}.part" for n in ("a[1].12", "a[1].34", "b.12"))
    for part in (old, new, other):
        part.write_bytes(b"x")
    os.utime(old, (0, time.time() - ABANDONED - 1))
    assert replace_file(tmp_path / "a[1]", [b"ab", b"c"]) == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a[1]", "a[1].34.part", "b.12.part"]
    assert (tmp_path / "a[1]").read_bytes() == b"abc"


def test_all_is_on_the_disk_before_the_name_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def noted_fsync(handle: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def noted_replace(self: Path, target: Path) -> Path:
        done.append("name")
        return replace(self, target)

    monkeypatch.setattr(whole_file.os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    replace_file(tmp_path / "a", [b"x"])
    assert done == ["file", "name", "folder"]


def test_a_failure_leaves_the_old_file_alone(tmp_path: Path) -> None:
    def parts() -> Any:
        yield b"new"
        raise KeyboardInterrupt

    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):
        replace_file(path, parts())
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"]
    with pytest.raises(OSError):
        replace_file(tmp_path / "none" / "a", [b"x"])
    (tmp_path / "link").symlink_to(path)
    replace_file(tmp_path / "link", [b"new"])
    assert path.read_bytes() == b"new" and (tmp_path / "link").is_symlink()
