"""llama-py-cli warmup: no kernel is missing afterwards, whatever the model is asked to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import llama_py
from ggml_cpu import elf, objcache, program, repack, store
from ggml_cpu.kernel import Kernel
from llama_py.batch import Batch
from llama_py_tools.generate import cli
from tests.support.commands import DEMO, clean_environment, tiny_model
from tests.support.limits import SECONDS

COMPILERS = """
import sys, llama_py
with llama_py.load(sys.argv[1], "cpu") as model:
    list(llama_py.stream(model.context(n_ctx=256, n_threads=2), [1, 2, 3], max_tokens=3))
print(*{"numba", "llvmlite.binding", "_hashlib"} & sys.modules.keys())
"""


def test_a_warm_start_imports_no_compiler() -> None:
    """Numba takes 200 ms, LLVM 30 ms and 40 MiB; OpenSSL, which hashlib loads, 3 ms and 3 MiB."""
    runs = [
        subprocess.run(
            [sys.executable, "-c", COMPILERS, DEMO],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=clean_environment(),
            check=True,
        )
        for _ in range(2)  # the first one may have to compile something
    ]
    assert runs[1].stdout.strip() == ("" if elf.is_possible() else "llvmlite.binding")


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the kernels that are asked for from now on."""
    names: set[str] = set()
    load = objcache.load_kernels

    def noting(kernels: Sequence[Kernel], *progress: object) -> dict[str, int]:
        names.update(kernel.name for kernel in kernels)
        return load(kernels, *progress)  # type: ignore[arg-type]

    for module in (program, repack):
        monkeypatch.setattr(module, "load_kernels", noting)
    return names


def work(path: str) -> None:
    """Prompts of several lengths, an answer, several sequences."""
    with llama_py.load(path) as model:
        with model.context(n_ctx=1024) as ctx:
            for n in (1, 2, 3, 5, 11, 30, 47, 100, 300):
                ctx.clear()
                ctx.decode([1] * n)
            ctx.decode([1] * 4, "all")
            for _ in range(35):
                ctx.decode([2])
        with model.context(n_ctx=1024, n_seq_max=4) as ctx:
            for n in (40, 1, 1, 3):
                tokens = [1] * n * 4
                ctx.decode(Batch(tokens, seq_ids=[(i // n,) for i in range(4 * n)]))
            ctx.decode(Batch([1, 1], seq_ids=[(0,), (2,)]))


@pytest.mark.parametrize("name", ["demo", "kimi-linear-moe"])
def test_all_kernels_are_compiled(
    name: str, tmp_path: Path, loaded: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(DEMO if name == "demo" else tiny_model(tmp_path, name))
    assert cli.main(["warmup", "-m", path, "-t", "2"]) == 0
    prepared = set(loaded)
    assert prepared
    loaded.clear()
    work(path)
    assert loaded <= prepared, loaded - prepared


def test_what_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(tiny_model(tmp_path))
    assert cli.main(["warmup", "-m", model, "--parallel", "1"]) == 0
    capsys.readouterr()
    monkeypatch.setattr(store.STORE, "compiled", [])
    assert cli.main(["warmup", "-m", model, "--parallel", "1"]) == 0
    assert capsys.readouterr().out.startswith("all kernels are already compiled (")
    monkeypatch.setattr(store.STORE, "compiled", ["b", "a", "b"])
    assert cli.main(["warmup", "-m", model, "--parallel", "1"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("compiled 2 kernels in ") and shown.endswith(" s: a, b\n")


def test_a_model_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["warmup", "-m", "no-such.gguf"]) == 1
    assert capsys.readouterr().err.startswith("error: ")
