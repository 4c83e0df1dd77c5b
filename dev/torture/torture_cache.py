"""Test the kernel cache with killed processes, full and read-only disks, and other users.

python -m dev.torture.torture_cache [--kills 50] [--loads 200] [only ...]

Exit code 1 if a scenario ends with wrong results.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

PROCESSES = 4
KERNELS = 12
NOBODY = 65534

FAMILY = f"""
from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import kernel

def made(k):
    @kernel(name=f"torture_{{k}}")
    def product(p, ith, nth):
        v.st_i64(p, v.ld_i64(p) * k)
    return product

KERNELS = [made(k) for k in range(2, {KERNELS + 2})]
"""
LOAD = """
import ctypes, json, logging, os, resource, sys, threading
limit, times, user = map(int, sys.argv[2:])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
sys.path.insert(0, sys.argv[1])
import numpy as np
from ggml_cpu import objcache, store
from torture_family import KERNELS

if user:  # this user cannot read the interpreter's files: import all first
    import ggml_cpu.lock, ggml_cpu.tidy
    from ggml_cpu.codegen import object_code
    object_code(KERNELS[0])
    sys.executable = ""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)

told = []
handler = logging.Handler()
handler.emit = lambda record: told.append(record.getMessage())
logging.getLogger("llama_py").addHandler(handler)
kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)
wrong = []

def load():
    library = objcache.LoadedKernels()
    addresses = library.load(KERNELS, None)
    for k, kernel in enumerate(KERNELS, 2):
        word = np.array([10], np.int64)
        kind(addresses[kernel.name])(word.ctypes.data, 0, 1)
        if word[0] != 10 * k:
            wrong.append(kernel.name)

def loads():
    for _ in range(times):
        load()

threads = [threading.Thread(target=loads) for _ in range(2 if times > 1 else 1)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps({"wrong": wrong, "told": told, "compiled": len(store.STORE.compiled)}))
"""


class Place:
    """A directory with the kernels' module and a cache."""

    def __init__(self, at: Path) -> None:
        self.at = at
        self.cache = at / "cache"
        at.mkdir(mode=0o755)
        (at / "torture_family.py").write_text(FAMILY)

    def start(
        self, limit: int = 0, times: int = 1, user: int = 0, **environment: str
    ) -> subprocess.Popen[str]:
        more = {"LLAMA_PY_CACHE": str(self.cache), "PYTHONDONTWRITEBYTECODE": "1", **environment}
        return subprocess.Popen(
            [sys.executable, "-c", LOAD, str(self.at), str(limit), str(times), str(user)],
            env={**os.environ, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def load(self, **how: Any) -> dict[str, Any]:
        """Run one process to its end; this may take ten minutes on a busy machine."""
        return finished(self.start(**how))

    def objects(self) -> int:
        return len(list(self.cache.glob("cpu/*/*.o")))

    def strays(self) -> int:
        return len(list(self.cache.glob("cpu/*/*.part")))


def finished(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=600)
    if process.returncode:
        raise AssertionError(f"exit code {process.returncode}: {err[-2000:]}")
    done: dict[str, Any] = json.loads(out)
    assert not done["wrong"], done
    return done


def kills(place: Place, how: argparse.Namespace) -> str:
    """Kill processes that compile the same kernels, and all their child processes."""
    rng, counts = random.Random(1), Counter[str]()
    began = time.monotonic()
    place.load()
    cold = time.monotonic() - began
    for _ in range(how.kills):
        if rng.random() < 0.5 or place.objects() == KERNELS:
            shutil.rmtree(place.cache, ignore_errors=True)
        processes = [place.start() for _ in range(PROCESSES)]
        begun = time.monotonic()
        for process in processes:
            wait = begun + rng.uniform(0.2, 1.2) * cold - time.monotonic()
            try:
                process.wait(max(wait, 0))
            except subprocess.TimeoutExpired:
                kill(process, rng.random() < 0.5)
            done = process.returncode == 0
            counts["not killed" if done else "killed"] += 1
            if done:
                finished(process)
            else:
                process.communicate()
        counts["objects left"] += place.objects()
        counts["unfinished files left"] += place.strays()
    after = place.load()
    again = place.load()
    assert again["compiled"] == 0 and place.objects() == KERNELS and not after["told"]
    return f"{how.kills} rounds of {PROCESSES}; {told(counts)}; then {after['compiled']} compiled"


def kill(process: subprocess.Popen[str], group: bool) -> None:
    """Kill the process alone, or with its compiler processes."""
    with suppress(ProcessLookupError):
        (os.killpg if group else os.kill)(process.pid, 9)
    process.wait()


def together(place: Place, how: argparse.Namespace) -> str:
    """Start processes at once: they must compile each kernel only once."""
    results = [finished(p) for p in [place.start() for _ in range(PROCESSES)]]
    compiled = sum(r["compiled"] for r in results)
    assert compiled == KERNELS, compiled
    return f"{PROCESSES} processes, {KERNELS} kernels, {compiled} compiled"


def threads(place: Place, how: argparse.Namespace) -> str:
    done = place.load(times=how.loads)
    assert done["compiled"] == KERNELS, done
    return f"2 threads, {how.loads} loads each, {done['compiled']} compiled"


def size_limit(place: Place, how: argparse.Namespace) -> str:
    """Limit the file size: larger kernels are in memory only."""
    small = place.load(limit=100)
    larger = place.load(limit=1 << 20)
    assert len(small["told"]) == 1 and larger["compiled"] == KERNELS and not larger["told"]
    return f"warnings {len(small['told'])}, then {larger['compiled']} compiled and cached"


def full_disk(place: Place, how: argparse.Namespace) -> str:
    """Use a file system of 64 KiB, and a full one."""
    place.cache.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place.cache)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        return "not run: mounting is not allowed"
    try:
        (place.cache / "filler").write_bytes(bytes(32 << 10))
        some = place.load()
        kept = place.objects()
        shutil.rmtree(place.cache / "cpu")
        with suppress(OSError), (place.cache / "filler").open("ab", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        none = place.load()
        assert len(none["told"]) == 1 and none["compiled"] == KERNELS and not place.strays()
    finally:
        subprocess.run(["umount", str(place.cache)], check=True)
    return f"{kept} of {KERNELS} kept, warnings {len(some['told'])}; full: {none['told'][0][:200]}"


def read_only(place: Place, how: argparse.Namespace) -> str:
    """Use a read-only cache, without and with kernels."""
    place.cache.mkdir()
    shown = []
    for _ in range(2):
        if not remount(place.cache, "ro"):
            return "not run: mounting is not allowed"
        try:
            done = place.load()
        finally:
            subprocess.run(["umount", str(place.cache)], check=True)
        shown.append(f"{done['compiled']} compiled, warnings {len(done['told'])}")
        place.load()
    assert shown[1] == "0 compiled, warnings 0", shown
    return f"empty: {shown[0]}; with kernels: {shown[1]}"


def remount(at: Path, how: str) -> bool:
    bind = ["mount", "--bind", str(at), str(at)]
    if os.geteuid() or subprocess.run(bind, capture_output=True).returncode:
        return False
    again = ["mount", "-o", f"remount,bind,{how}", str(at)]
    return subprocess.run(again, capture_output=True).returncode == 0


def other_user(place: Place, how: argparse.Namespace) -> str:
    """Check that others cannot use root's cache, and that root does not load their cache."""
    if os.geteuid():
        return "not run: needs root"
    place.load()
    stranger = place.load(user=NOBODY)
    assert stranger["compiled"] == KERNELS and len(stranger["told"]) == 1
    theirs = place.at / "theirs"
    theirs.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    own = place.load(user=NOBODY, LLAMA_PY_CACHE=str(theirs))
    again = place.load(user=NOBODY, LLAMA_PY_CACHE=str(theirs))
    assert not own["told"] and again["compiled"] == 0
    root = place.load(LLAMA_PY_CACHE=str(theirs))
    assert root["compiled"] == KERNELS and "another user" in root["told"][0]
    nobody = place.load(user=NOBODY, LLAMA_PY_CACHE="", HOME="/nonexistent", XDG_CACHE_HOME="")
    assert nobody["compiled"] == KERNELS and len(nobody["told"]) == 1
    return f"root's to another: 1 warning; another's to root: {root['told'][0][-170:]}; no home: ok"


def told(counts: Counter[str]) -> str:
    return ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))


SCENARIOS: dict[str, Callable[[Place, argparse.Namespace], str]] = {
    "kills": kills,
    "together": together,
    "threads": threads,
    "size_limit": size_limit,
    "full_disk": full_disk,
    "read_only": read_only,
    "other_user": other_user,
}


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    p.add_argument("only", nargs="*", choices=[*SCENARIOS, []], help="these scenarios")
    p.add_argument("--kills", type=int, default=50, help="rounds of killed processes")
    p.add_argument("--loads", type=int, default=200, help="kernel loads per thread (two threads)")
    how = p.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    failed = 0
    with tempfile.TemporaryDirectory(prefix="torture-") as root:
        Path(root).chmod(0o755)
        for name in how.only or SCENARIOS:
            start = time.monotonic()
            try:
                result = SCENARIOS[name](Place(Path(root) / name), how)
            except (AssertionError, subprocess.TimeoutExpired) as e:
                failed, result = failed + 1, f"FAILED: {e}"
            print(f"{name}: {result} ({time.monotonic() - start:.0f} s)", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
