"""A file that is replaced is the old one or the new one, whole."""

from __future__ import annotations

import os
import signal
import stat
import sys
import time
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from llama_py.decoding.prefix_cache import load_slot, save_slot
from llama_py.support import whole_file
from llama_py.support.whole_file import ABANDONED, replace_file
from tests.support.alone import run_alone
from tests.support.toy_memory import Toy


def slots(folder: Path, n_tokens: int) -> tuple[Path, Toy, list[list[int]]]:
    """A toy with two sequences, to be written to one file in turn, and what they hold."""
    toy = Toy("everything", checkpoint_min_step=4)
    prompts = [[1] * n_tokens, [2] * (n_tokens + 9)]
    for seq_id, ids in enumerate(prompts):
        toy.reuse.decode(ids[toy.reuse.start(ids, seq_id).n_reused :], seq_id)
    return folder / "slot", toy, prompts


def die_at(n: int) -> None:
    """Kill this process at the n-th line of the module that it runs from now on."""
    left = n

    def each(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename != whole_file.__file__:
            return None
        if event == "line":
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return each

    sys.settrace(each)


def write_and_die(folder: str) -> None:
    """Fork writers until one gets to its end; each is killed one line later than the one before."""
    path, toy, prompts = slots(Path(folder), 60)
    n, died = 0, True
    while died:
        save_slot(toy.reuse, path, 0)
        child = os.fork()
        if not child:
            die_at(n)
            save_slot(toy.reuse, path, 1)
            os._exit(0)
        died = os.waitpid(child, 0)[1] == signal.SIGKILL
        parts = [other for other in path.parent.iterdir() if other != path]
        print(prompts.index(load_slot(toy.reuse, path, 2)), [part.suffix for part in parts])
        for part in parts:  # the next writer would look at each
            part.unlink()
        n += 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_kill_9_leaves_the_old_or_the_new_file(tmp_path: Path) -> None:
    found = run_alone(write_and_die, str(tmp_path)).splitlines()
    stages = [line for line, _ in groupby(found)]
    assert stages == ["0 []", "0 ['.part']", "1 []"] and found.count(stages[-1]) > 1


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
