"""Experts that are read from the file when they are needed, with a cache of some of them."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import llama_py
from dev import tiny_models as tiny
from ggml_cpu.experts import cache
from ggml_cpu.experts.disk import PAGE, DirectFile, staging_bytes
from ggml_py.backend import aligned_bytes
from ggml_py.errors import BackendError
from ggml_py.machine import host
from llama_py import Batch, Model
from llama_py.fit.planning import LimitedModel, open_header, stand_ins
from llama_py.gguf.file import GGUFFile
from llama_py.loading.model import LoadedModel
from llama_py.serving import Engine
from llama_py.weights.placement import EXPERTS
from llama_py_tools.gguf.main import main as gguf_command

GIB = 1 << 30
ARCHS = ["qwen3moe", "qwen3next", "grovemoe"]
Rows = list[NDArray[np.float32]]


@pytest.fixture(scope="module", params=ARCHS)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("experts")
    made = folder / "quantized.gguf"
    source = tiny.write(request.param, "moe", folder)
    assert not gguf_command(["quantize", str(source), str(made), "Q8_0"])
    return made


@contextmanager
def cached(
    path: Path, share: float, load: Callable[..., LoadedModel] = llama_py.load
) -> Iterator[Any]:
    """Load a model whose cache has about this share of the experts, at least one layer's."""
    with llama_py.load(path) as model:
        sizes = {t.name: t.buffer.size for t in model._weights.all_tensors if t.layout and t.buffer}
    experts = sum(n for name, n in sizes.items() if ".weight" in name and "exps" in name)
    wanted = sum(sizes.values()) - experts + share * experts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "staging_bytes", lambda n: 0)  # more than a tiny model has
        patch.setattr(host, "memory", lambda: (round(wanted * 20 / 19), 16 * GIB))
        model = load(path, reserve=0)
    with model:
        assert model.expert_stats is not None
        yield model


def logits(model: Model) -> Rows:
    """Return logits of a prompt, of tokens until programs are laid out again, of two sequences."""
    ctx = model.context(n_ctx=256, n_seq_max=2)
    rows = [ctx.decode([3, 1, 4, 1, 5] * 4)]
    for _ in range(36):
        rows.append(ctx.decode([int(np.argmax(rows[-1][-1]))]))
    return [np.array(r) for r in rows]


def assert_equal(found: Rows, want: Rows) -> None:
    for i, (x, y) in enumerate(zip(found, want, strict=True)):
        np.testing.assert_array_equal(x, y, err_msg=f"decode {i}")


@pytest.mark.parametrize("share", [0.6, 0.85])
def test_logits_are_those_of_the_resident_model(
    path: Path, share: float, caplog: pytest.LogCaptureFixture
) -> None:
    with llama_py.load(path) as model:
        assert model.expert_stats is None
        want = logits(model)
    with caplog.at_level(logging.WARNING, "llama_py"), cached(path, share) as model:
        assert_equal(logits(model), want)
        stats = model.expert_stats
        assert stats is not None
        assert 0 < stats.n_missed < stats.n_used and stats.n_bytes > 0
        one = {t.name for t in model._weights.all_tensors if t.layout.endswith("*")}
        assert one and all("exps.weight" in name for name in one)
    assert "are read from the file when they are needed" in caplog.text


def run_sequences(model: Model) -> tuple[Rows, str]:
    """Return logits of two sequences and of a restored state, and a drafted response."""
    ctx = model.context(n_ctx=256, n_seq_max=2)
    rows = []
    for i in range(12):
        batch = Batch(tokens=[3 + i, 40 - i], pos=[i, i], seq_ids=[[0], [1]], outputs=[True, True])
        rows.append(np.array(ctx.decode(batch)))
        if i == 5:
            state = ctx.save_state(0)
    ctx.clear()
    ctx.load_state(state, 0)
    rows.append(np.array(ctx.decode([9])))
    drafts = {"spec_type": "ngram-simple", "spec_ngram_simple_size_n": 1}
    return rows, model.generate([3, 1, 4, 1, 5] * 4, max_tokens=24, temp=0, **drafts)


def test_sequences_states_and_drafts(path: Path) -> None:
    with llama_py.load(path) as model:
        want = run_sequences(model)
    with cached(path, 0.6) as model:
        found = run_sequences(model)
        stats = model.expert_stats
        assert stats is not None and stats.n_missed > 0
        assert stats.n_tokens > 12 * 2 and stats.bytes_per_token == stats.n_bytes / stats.n_tokens
        with Engine(model, n_ctx=64) as engine:
            total = engine.metrics().total.experts
            assert total == stats and total is not stats and not (stats - total).n_used
    assert_equal(found[0], want[0])
    assert found[1] == want[1] and len(want[1]) > 8


def test_a_split_model(path: Path, tmp_path: Path) -> None:
    with llama_py.load(path) as model:
        want = logits(model)
    with GGUFFile.open(path) as file:
        n = len(file.tensors)
    half = ("--split-max-tensors", str(n // 2 + 1))
    assert not gguf_command(["split", str(path), str(tmp_path / "m"), *half])
    shards = sorted(tmp_path.glob("m*.gguf"))
    assert len(shards) == 2
    with cached(shards[0], 0.6) as model:
        assert_equal(logits(model), want)
        files = {w.matrices[0].file.path for w in cache_of(model).layers}
        assert files == set(shards)


def test_ctrl_c_while_experts_are_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with cached(path, 0.6) as model:
        ctx, go, real = model.context(n_ctx=64), threading.Event(), os.preadv
        want = np.array(ctx.decode([3, 1, 4]))

        def read(fd: int, buffers: list[memoryview], offset: int) -> int:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            assert go.wait(60)
            return real(fd, buffers, offset)

        with monkeypatch.context() as patch:
            patch.setattr(os, "preadv", read)
            with pytest.raises(KeyboardInterrupt):
                for token in range(40):
                    ctx.decode([token])
            go.set()
        ctx.clear()
        np.testing.assert_array_equal(ctx.decode([3, 1, 4]), want)


def test_memory_that_becomes_short(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The cache shrinks, at least to the experts of a layer; the results are the same."""
    with llama_py.load(path) as model:
        want = logits(model)
    with cached(path, 0.85) as model:
        before = model.expert_stats.memory
        monkeypatch.setattr(cache, "MEMORY_SECONDS", 0)
        monkeypatch.setattr(cache, "host", SimpleNamespace(memory=lambda: (0, 16 * GIB)))
        assert_equal(logits(model), want)
        found = cache_of(model)
        most = {x.slot_bytes: x.n_experts for x in found.layers}
        assert {size: slots.n_open for size, slots in found._slots.items()} == most
        assert model.expert_stats.memory == sum(size * n for size, n in most.items()) < before
    assert "the cache of experts is reduced" in caplog.text


def cache_of(model: Any) -> cache.ExpertCache:
    buffers = (t.buffer for t in model._weights.all_tensors)
    return next(b.cache for b in buffers if isinstance(b, cache.ScatteredBuffer))


def test_contexts_in_several_threads(path: Path) -> None:
    """Two contexts at a time need more experts than the cache has."""
    with llama_py.load(path) as model:
        want = logits(model)
    with cached(path, 0.6) as model:
        found: dict[int, Rows] = {}
        threads = [
            threading.Thread(target=lambda i=i: found.update({i: logits(model)})) for i in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for i in range(3):
        assert_equal(found[i], want)


def test_an_error_of_the_disk_leaves_a_usable_context(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with llama_py.load(path) as model:
        ctx = model.context(n_ctx=64)
        want = [np.array(ctx.decode(part)) for part in ([3, 1, 4], [1, 5])]
    with cached(path, 0.6) as model:
        ctx = model.context(n_ctx=64)
        first = np.array(ctx.decode([3, 1, 4]))
        with monkeypatch.context() as patch:
            patch.setattr(os, "preadv", _broken)
            with pytest.raises(
                BackendError,
                match=r"quantized.gguf: bytes \d+-\d+ of the weights: .*check the disk",
            ):
                for token in range(40):
                    ctx.decode([token])
        ctx.clear()
        assert_equal([np.array(ctx.decode(part)) for part in ([3, 1, 4], [1, 5])], want)
        np.testing.assert_array_equal(first, want[0])


def _broken(fd: int, buffers: list[memoryview], offset: int) -> int:
    raise OSError(5, "Input/output error")


@pytest.fixture
def numbers(tmp_path: Path) -> tuple[Path, NDArray[np.uint8]]:
    data = np.random.default_rng(0).integers(0, 256, 20000, np.uint8)
    (tmp_path / "data").write_bytes(data.tobytes())
    return tmp_path / "data", data


def staging(n: int) -> NDArray[np.uint8]:
    return aligned_bytes(staging_bytes(n), PAGE)


@pytest.mark.parametrize("refusal", ["", "open", "read"])
def test_bytes_of_a_file(
    refusal: str, numbers: tuple[Path, NDArray[np.uint8]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the file system refuses direct reads, when opening or when reading."""
    path, data = numbers
    real_open, real_read, direct = os.open, os.preadv, set[int]()

    def open_file(name: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT and refusal == "open":
            raise OSError(22, "Invalid argument")
        fd = real_open(name, flags & ~os.O_DIRECT, mode)
        direct.discard(fd)
        if flags & os.O_DIRECT:
            direct.add(fd)
        return fd

    def read(fd: int, buffers: list[memoryview], offset: int) -> int:
        if fd in direct and refusal == "read":
            raise OSError(22, "Invalid argument")
        return real_read(fd, [buffers[0][:5000]], offset)  # in pieces

    monkeypatch.setattr(os, "open", open_file)
    monkeypatch.setattr(os, "preadv", read)
    file = DirectFile(path)
    for offset, n in ((0, 20000), (1, 1), (4095, 4098), (19999, 1), (8192, 4096)):
        np.testing.assert_array_equal(file.read(offset, n, staging(n)), data[offset : offset + n])
    assert file.is_direct is (not refusal)
    with pytest.raises(BackendError, match="the file has only 20000 bytes"):
        file.read(19000, 1001, staging(1001))


def test_descriptors_stay_open_for_other_threads(
    numbers: tuple[Path, NDArray[np.uint8]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, data = numbers
    real_read, real_close, used, closed = os.preadv, os.close, list[int](), list[int]()

    def read(fd: int, buffers: list[memoryview], offset: int) -> int:
        used.append(fd)
        if len(used) == 1:
            raise OSError(22, "Invalid argument")
        return real_read(fd, buffers, offset)

    def close(fd: int) -> None:
        closed.append(fd)
        real_close(fd)

    monkeypatch.setattr(os, "preadv", read)
    monkeypatch.setattr(os, "close", close)
    monkeypatch.setattr(os, "O_DIRECT", os.O_NONBLOCK, raising=False)  # any flag without effect
    file = DirectFile(path)
    np.testing.assert_array_equal(file.read(0, 100, staging(100)), data[:100])
    assert len(set(used)) == 2 and not closed
    file.close()
    assert sorted(closed) == sorted(used)


def planned_model(path: Path, **how: Any) -> LoadedModel:
    return LimitedModel(open_header(path), device=stand_ins(["cpu"]), progress=False, **how)


def test_the_plan_without_loading(path: Path) -> None:
    """A planned model has the layouts of the loaded one, and its graphs the same fused steps."""
    with cached(path, 0.6) as model:
        want = {t.name: t.layout for t in model._weights.all_tensors}
        size = model.sizes["cpu"]
    with cached(path, 0.6, planned_model) as planned:
        assert {t.name: t.layout for t in planned._weights.all_tensors} == want
        assert planned.sizes["cpu"] == size


def test_names_of_experts() -> None:
    import re

    found = re.search(EXPERTS, "blk.3.ffn_gate_up_chexps.weight")
    assert found is not None and found[2] == "ch"
