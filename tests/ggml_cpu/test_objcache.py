"""The object cache: what is compiled when, what survives, and what errors say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ggml_cpu.elf import is_possible
from ggml_cpu.fingerprints import Fingerprints
from tests.support.limits import SECONDS
from tests.support.locks import NotedLock
from tests.support.processes import all_end, compilers

FAMILY = """
from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
import helpers_of_demo as helpers

SCALE = 3

@fn
def scaled(x):
    return x * SCALE

@kernel()
def uses_constant(p, ith, nth):
    v.st_i64(p, scaled(v.ld_i64(p)))

@kernel()
def uses_module(p, ith, nth):
    v.st_i64(p, helpers.plus(v.ld_i64(p)))

def made(name, k):
    @kernel(name=name)
    def product(p, ith, nth):
        v.st_i64(p, v.ld_i64(p) * k)

made("made_5", 5)
made("made_7", 7)
"""
HELPERS = """
from ggml_cpu.kernel import fn

@fn
def plus(x):
    return x + 100
"""
MAIN = """
import json, logging, sys, ctypes
import numpy as np
import demo_family
from ggml_cpu.kernel import REGISTRY
from ggml_cpu.objcache import load_kernels

compiled, told = [], []
handler = logging.Handler()
handler.emit = lambda record: told.append(record.getMessage())
logging.getLogger("llama_py").addHandler(handler)
names = sys.argv[1].split(",")
addresses = load_kernels(names, lambda done, total, name: compiled.append([done, total, name]))
results = []
for name in names:
    word = np.array([10], np.int64)
    ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(addresses[name])(word.ctypes.data, 0, 1)
    results.append(int(word[0]))
print(json.dumps({
    "compiled": compiled, "results": results, "numba": "numba" in sys.modules,
    "told": told,
}))
"""
ALL = ["uses_constant", "uses_module", "made_5", "made_7"]
RESULTS = [30, 110, 50, 70]


class Demo:
    """A small kernel family in a directory of its own, run by fresh interpreters."""

    def __init__(self, path: Path):
        self.path = path
        self.cache = path / "cache"
        self.write(FAMILY, HELPERS)

    def write(self, family: str, helpers: str = HELPERS) -> None:
        (self.path / "demo_family.py").write_text(family)
        (self.path / "helpers_of_demo.py").write_text(helpers)

    def start(self, *names: str, script: str = MAIN, **environment: str) -> subprocess.Popen[str]:
        path = os.pathsep.join([str(self.path), os.environ.get("PYTHONPATH", "")])
        settings = {"PYTHONPATH": path, "LLAMA_PY_CACHE": str(self.cache), **environment}
        settings["PYTHONDONTWRITEBYTECODE"] = "1"  # its stamp misses two edits in one second
        return subprocess.Popen(
            [sys.executable, "-c", script, ",".join(names)],
            env={**os.environ, **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def run(self, *names: str, **environment: str) -> dict:
        out, err = (process := self.start(*names, **environment)).communicate(timeout=SECONDS)
        assert process.returncode == 0, err
        return json.loads(out)

    def output(self, script: str) -> str:
        out, err = (process := self.start(script=script)).communicate(timeout=SECONDS)
        assert process.returncode == 0, err
        return out

    def fail(self, *names: str) -> str:
        _, err = (process := self.start(*names)).communicate(timeout=SECONDS)
        assert process.returncode == 1
        return err

    def objects(self) -> list[Path]:
        return sorted(self.cache.glob("cpu/*/*.o"))


@pytest.fixture
def demo(tmp_path):
    return Demo(tmp_path)


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """A demo whose kernels are all compiled; tests that change it make the change undone."""
    made = Demo(tmp_path_factory.mktemp("warm"))
    made.first = made.run(*ALL)
    return made


def test_cold_then_warm(warm):
    done = warm.first["compiled"]
    assert [d[:2] for d in done] == [[1, 4], [2, 4], [3, 4], [4, 4]]
    assert sorted(d[2] for d in done) == sorted(ALL)
    assert warm.first["results"] == RESULTS
    again = warm.run(*ALL)
    assert again["compiled"] == [] and again["results"] == RESULTS


def test_numba_is_not_imported(warm):
    """Neither by a warm start nor by the process that has others compile."""
    assert not warm.first["numba"]
    assert not warm.run(*ALL)["numba"]


WATCH = """
import atexit, json, os, sys

calls, cache = [], os.environ["LLAMA_PY_CACHE"]

def watch(event, args):
    if args and (event == "open" or event.startswith("os.")):
        name = str(args[0])
        if name.startswith(cache) or name.endswith((".o", ".part")) or event == "os.utime":
            calls.append(event + (" object" if name.endswith(".o") else ""))

def tell():
    rare = {f"ggml_cpu.{name}" for name in ("lock", "tidy", "serve", "frontend", "codegen")}
    print(json.dumps([calls, sorted((rare | {"llvmlite.binding"}) & sys.modules.keys())]))

sys.addaudithook(watch)
atexit.register(tell)
"""


def test_a_warm_start_touches_little(warm):
    """Its files, once each, and the directory and the one it is in, which are not listed; no module
    that writes, nor LLVM where that is not needed."""
    out, err = (process := warm.start(*ALL, script=WATCH + MAIN)).communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    calls, imported = json.loads(out.splitlines()[1])
    around = ["open"] * (2 if is_possible() else 1)
    assert sorted(calls) == [*around, *["open object"] * 4, "os.utime"]
    assert imported == ([] if is_possible() else ["ggml_cpu.codegen", "llvmlite.binding"])


@pytest.mark.parametrize(
    ("family", "helpers", "changed"),
    [
        (FAMILY.replace("SCALE = 3", "SCALE = 4"), HELPERS, {"uses_constant": 40}),
        (FAMILY, HELPERS.replace("100", "200"), {"uses_module": 210}),
        (FAMILY.replace('"made_7", 7', '"made_7", 8'), HELPERS, {"made_7": 80}),
        (FAMILY.replace("SCALE = 3", "# a comment\n\nSCALE = 3"), HELPERS, {}),
    ],
    ids=["constant", "other module", "closure", "comment"],
)
def test_only_what_changed_is_compiled(warm, family, helpers, changed):
    warm.write(family, helpers)
    try:
        result = warm.run(*ALL)
    finally:
        warm.write(FAMILY)
    assert sorted(d[2] for d in result["compiled"]) == sorted(changed)
    want = dict(zip(ALL, RESULTS, strict=True)) | changed
    assert result["results"] == list(want.values())


@pytest.mark.parametrize("damage", ["empty", "cut", "bit", "text"])
def test_damaged_object_is_compiled_again(warm, damage):
    path = next(o for o in warm.objects() if o.name.startswith("made_5"))
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    path.write_bytes({"empty": b"", "cut": whole[:-7], "bit": flipped, "text": b"hello"}[damage])
    result = warm.run(*ALL)
    assert [d[2] for d in result["compiled"]] == ["made_5"]
    assert result["results"] == RESULTS
    assert path.read_bytes() == whole


def test_other_cpu_has_other_objects(warm):
    before = warm.objects()
    result = warm.run("made_5", NUMBA_CPU_NAME="x86-64", NUMBA_CPU_FEATURES="+sse2")
    assert [d[2] for d in result["compiled"]] == ["made_5"] and result["results"] == [50]
    assert len({o.parent for o in warm.objects()}) == 2
    assert set(before) < set(warm.objects())


def test_several_processes_at_once(demo):
    processes = [demo.start(*ALL) for _ in range(3)]
    for process in processes:
        out, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, err
        assert json.loads(out)["results"] == RESULTS
    assert len(demo.objects()) == 4
    assert not list(demo.cache.glob("cpu/*/*.part"))


def test_unwritable_directory(demo):
    demo.cache.write_text("a file where the cache should be")
    result = demo.run("made_5")
    assert result["results"] == [50]
    assert len(result["told"]) == 1 and "LLAMA_PY_CACHE" in result["told"][0]


READ_ONLY = """
import os, sys

def nobody_writes(event, args):
    writes = event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR)
    writes = writes or event in ("os.mkdir", "os.remove", "os.rename", "os.utime")
    if writes and (str(args[0]).startswith(os.environ["LLAMA_PY_CACHE"]) or is_of_cache(args[0])):
        raise PermissionError(13, "Permission denied", args[0])

def is_of_cache(name):
    return str(name) == "lock" or str(name).endswith((".part", ".o"))

sys.addaudithook(nobody_writes)
"""


def test_read_only_cache_is_used(demo):
    """To root, too, nothing there can be written."""
    demo.run(*ALL[:-1])
    demo.write(READ_ONLY + FAMILY)
    result = demo.run(*ALL[:-1])
    assert result["compiled"] == [] and result["told"] == []
    result = demo.run(*ALL)
    assert result["results"] == RESULTS and len(result["told"]) == 1
    assert [d[2] for d in result["compiled"]] == ALL[-1:]


def test_error_names_kernel_and_reason(demo):
    demo.write(FAMILY + "@kernel()\ndef wrong(p, ith, nth):\n    v.no_such_word(p)\n")
    err = demo.fail("made_5", "wrong")
    assert "BackendError: kernel wrong (demo_family)" in err and "no_such_word" in err
    assert demo.run("made_5")["results"] == [50]


def test_error_of_what_kernels_may_not_do(demo):
    demo.write(FAMILY + "@kernel()\ndef talks(p, ith, nth):\n    print(p)\n")
    assert "BackendError: kernel talks" in demo.fail("talks")


def test_error_where_the_compiler_dies(demo):
    """The child is the interpreter whose first argument is the JSON list of its sys.path."""
    dies = """
    import os, sys
    if len(sys.argv) > 1 and sys.argv[1].startswith("["):
        sys.stderr.write("last words")
        sys.stderr.flush()
        os._exit(9)
    """
    demo.write(textwrap.dedent(dies) + FAMILY)
    err = demo.fail("made_5")
    assert "BackendError: kernel made_5: the compiling process died. last words" in err


STUCK = """
import os, sys, threading

if sys.argv[1].startswith("["):
    os.close(os.open(os.environ["BEGUN"], os.O_CREAT))
    threading.Event().wait()
"""


def test_interrupt_ends_the_compilers(demo):
    """Sent once a child is at work: all have been started then, and the parent waits for them."""
    demo.write(STUCK + FAMILY)
    begun = demo.path / "begun"
    process = demo.start(*ALL, BEGUN=str(begun))
    until = time.monotonic() + SECONDS
    while not begun.exists() and time.monotonic() < until:
        time.sleep(0.01)
    found = compilers(process.pid)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=SECONDS)
    assert "KeyboardInterrupt" in err
    assert all_end(found)


class Halts:
    """A global that a fingerprint passes by; it holds up the first who does."""

    def __init__(self) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> str:
        assert name == "__qualname__"
        first = not self.reached.is_set()
        self.reached.set()
        if first:
            assert self.go_on.wait(SECONDS)
        return "Halts"


def test_fingerprints_of_several_threads():
    """While one thread computes a fingerprint, no other takes the function for a recursive one."""
    halts = Halts()

    def function(x):
        return halts, x

    fingerprints = Fingerprints()
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(fingerprints.fingerprint, function)
        assert halts.reached.wait(SECONDS)
        lock = fingerprints._lock = NotedLock(fingerprints._lock)
        other = pool.submit(fingerprints.fingerprint, function)
        other.add_done_callback(lambda _: lock.come.set())  # it does not wait
        assert lock.come.wait(SECONDS)
        halts.go_on.set()
        assert one.result() == other.result() == Fingerprints().fingerprint(function)


ROUNDS = """
import json
from concurrent.futures import ThreadPoolExecutor
import demo_family
from ggml_cpu import children, compile
from ggml_cpu.objcache import load_kernels

compile.IDLE_SECONDS = 10**6
started, done = [], []
start = children._Child._start
children._Child._start = lambda child: (started.append(1), start(child))

def load(*names):
    return load_kernels(names, lambda n, total, name: done.append(name))

with ThreadPoolExecutor(4) as pool:
    loaded = list(pool.map(load, ["made_5"] * 4, ["made_7"] * 4))
first, written = len(started), sorted(done)
load("uses_constant")
with open(demo_family.__file__, "a") as file:
    file.write(LATE)
exec(LATE, vars(demo_family))
load("late")
print(json.dumps([first, written, len(started) - first]))
"""
LATE = """
from ggml_cpu import vocabulary as v

@kernel()
def late(p, ith, nth):
    v.st_i64(p, 9)
"""


def test_children_serve_several_times(demo):
    """Threads that want the same kernels share the children; so do later calls, where the module
    is as the children know it."""
    script = ROUNDS.replace("LATE)", f"{LATE!r})").replace("LATE,", f"{LATE!r},")
    first, written, later = json.loads(demo.output(script))
    assert first <= 2 and written == ["made_5"] * 4 + ["made_7"] * 4
    assert later == 1
    assert len(demo.objects()) == 4


EARLY = """
import json
import demo_family
from ggml_cpu import children
from ggml_cpu.kernel import REGISTRY
from ggml_cpu.objcache import load_kernels, start_compilers

started = []
start = children._Child._start
children._Child._start = lambda child: (started.append(1), start(child))
start_compilers(lambda: [REGISTRY.kernels["made_5"]])
early = len(started)
load_kernels(["made_5"])
print(json.dumps([early, len(started)]))
"""


def test_children_start_early_where_not_all_was_compiled(demo):
    early, all_of_them = json.loads(demo.output(EARLY))
    assert early == all_of_them >= 1
    assert json.loads(demo.output(EARLY)) == [0, 0]
    early, all_of_them = json.loads(demo.output(EARLY.replace("made_5", "made_7")))
    assert early == all_of_them >= 1
