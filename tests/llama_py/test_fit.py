"""Placements that fit: margins are kept, nothing more would fit, and a miss is the nearest."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from llama_py.fit import Fit, fit
from llama_py.fit.answer import FitAnswer
from llama_py.fit.planning import PlannedModel, gpus, open_header, stand_ins
from llama_py.fit.ranges import match_numbers
from llama_py.fit.sizes import ModelSizes, measure_model
from llama_py.weights.placement import EXPERTS
from tests.support import large_models
from tests.support.commands import clean_environment
from tests.support.graph_models import declared, file_of
from tests.support.limits import SECONDS

MIB = 1 << 20
SMALL = {
    "block_count": 10,
    "embedding_length": 512,
    "attention.head_count": 8,
    "expert_count": 16,
    "attention.head_count_kv": 2,
    "attention.key_length": 64,
    "attention.value_length": 64,
    "expert_feed_forward_length": 512,
    "context_length": 8192,
}
MARGIN = 8 * MIB


@pytest.fixture(scope="module")
def moe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """103 MiB, 10 of them in each layer's experts."""
    path = tmp_path_factory.mktemp("fit") / "moe.gguf"
    large_models.write(path, "qwen3moe", "moe", SMALL, n_vocab=1024)
    return path


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fit") / "dense.gguf"
    keys = {k: v for k, v in SMALL.items() if "expert" not in k} | {"feed_forward_length": 4096}
    large_models.write(path, "llama", "dense", keys, n_vocab=1024)
    return path


def found(path: Path, *mib: int, host: int = 1000, **how: object) -> Fit:
    devices = stand_ins([*gpus(len(mib)), "cpu"], [*(n * MIB for n in mib), host * MIB])
    for d in devices:
        d.largest = None
    how = {"context": {"n_ubatch": 64}, "margins": [MARGIN] * len(devices), **how}
    return fit(open_header(path), devices, **how)  # type: ignore[arg-type]


def sizes(path: Path, n: int) -> ModelSizes:
    return measure_model(PlannedModel(open_header(path), stand_ins([*gpus(n), "cpu"])), {})


def layers(answer: FitAnswer) -> int:
    return sum(answer.n_layers)


def test_what_fits_as_a_whole_has_the_largest_context(moe: Path) -> None:
    whole = found(moe, 200)
    assert whole.fits and whole.answer.n_ctx == 8192 and not whole.answer.on_host
    less = found(moe, 150)  # caches take 10 KiB a cell
    assert less.fits and 4096 <= less.answer.n_ctx < 8192 and not less.answer.on_host
    assert MARGIN <= less.left["opencl0"] < MARGIN + 2 * 256 * 10240
    given = found(moe, 150, n_ctx=512)
    assert given.answer.n_ctx == 512 and given.left["opencl0"] > less.left["opencl0"]


@pytest.mark.parametrize("mib", [(70,), (90,), (60, 60), (40, 80), (80, 40), (45, 35, 45)])
def test_experts_leave_first_and_no_more_than_must(moe: Path, mib: tuple[int, ...]) -> None:
    this = found(moe, *mib, n_ctx=1024)
    assert this.fits and layers(this.answer) == 11 and 0 < len(this.answer.on_host) < 10
    experts = sizes(moe, len(mib)).layers[0].experts
    at = this.answer.devices
    for i, d in enumerate(this.ctx.devices[:-1]):
        left = this.left[d.name] - MARGIN
        assert left >= 0
        if any(at[il] == i for il in this.answer.on_host):
            assert left < experts, "another layer's experts have room there"


@pytest.mark.parametrize(
    ("mib", "n_layers"),
    [
        ((200, 200), (11, 0)),
        ((200, 300), (0, 11)),
        ((40, 200, 40), (0, 11, 0)),
        ((60, 60), None),
        ((60, 20, 60), (None, 0, None)),
    ],
)
def test_the_fewest_devices_have_the_model(
    dense: Path, mib: tuple[int, ...], n_layers: tuple[int | None, ...] | None
) -> None:
    """One that has room for the whole model has it; several share it evenly."""
    this = found(dense, *mib, n_ctx=1024)
    assert this.fits and layers(this.answer) == 11
    wanted = n_layers or (None,) * len(mib)
    for n, has in zip(wanted, this.answer.n_layers, strict=True):
        assert has == n if n is not None else has > 2
    for i, d in enumerate(this.ctx.devices[:-1]):
        used = this.ctx.memory_breakdown()[d.name]
        assert (sum(used.values()) > 0) == (this.answer.n_layers[i] > 0)


def test_a_larger_context_is_worth_a_device(dense: Path) -> None:
    one, two = found(dense, 100), found(dense, 100, 100)
    assert one.answer.n_ctx < two.answer.n_ctx == 8192 and min(two.answer.n_layers) > 2


def test_layers_leave_when_the_devices_are_small(moe: Path, dense: Path) -> None:
    for path in (moe, dense):
        this = found(path, 24, n_ctx=2048)
        assert this.fits and 0 < layers(this.answer) < 11
        assert len(this.answer.on_host) == (10 if path is moe else 0)
        layer = sizes(path, 1).layers[5]
        assert this.left["opencl0"] - MARGIN < layer.dense + 2048 * 1024 + MIB
    assert found(dense, 200).options == {"n_gpu_layers": 11}


def test_the_context_is_the_least_before_layers_leave(dense: Path) -> None:
    this = found(dense, 60, n_ctx_min=512)
    assert this.fits and layers(this.answer) < 11 and this.answer.n_ctx == 512


def test_the_host_alone(moe: Path) -> None:
    this = found(moe, host=150)
    assert this.fits and this.options == {} and 4096 <= this.answer.n_ctx < 8192
    cached = found(moe, host=60)
    stats = cached.ctx.model.expert_stats
    assert cached.fits and stats is not None and 20 * MIB < stats.memory < 24 * MIB


def test_several_sequences_have_a_context_each(moe: Path) -> None:
    this = found(moe, 400, context={"n_ubatch": 64, "n_seq_max": 3})
    assert this.answer.n_ctx == 3 * 8192 and this.ctx.cparams.n_ctx_seq == 8192


@pytest.mark.parametrize(("mib", "host"), [((60,), 20), ((), 45), ((1,), 20)])
def test_the_nearest_miss(moe: Path, mib: tuple[int, ...], host: int) -> None:
    this = found(moe, *mib, host=host)
    assert not this.fits and this.answer.n_ctx == 4096
    assert this.left["cpu"] < MARGIN
    if mib == (60,):  # as many experts as can be are not on the host
        assert 0 < len(this.answer.on_host) < 10


def test_a_users_rules_stay(moe: Path) -> None:
    rules = {r"ffn_down_exps": "cpu"}
    this = found(moe, 90, n_ctx=1024, model={"tensor_overrides": rules})
    assert this.fits and rules.items() <= this.options.get("tensor_overrides", rules).items()
    on_host = {t.name for t in this.ctx.model._weights.all_tensors if t.buffer and t.buffer.is_host}
    assert {f"blk.{il}.ffn_down_exps.weight" for il in range(10)} <= on_host


def test_buffers_that_would_be_too_large(moe: Path) -> None:
    """A device may have memory, but no buffer of that size."""
    path, room = open_header(moe), [120 * MIB, 120 * MIB, 1000 * MIB]
    devices = stand_ins([*gpus(2), "cpu"], room)
    devices[0].largest = devices[1].largest = 24 * MIB  # of 40 MiB of caches
    this = fit(path, devices, n_ctx=4096, margins=[MARGIN] * 3, context={"n_ubatch": 64})
    assert this.fits and all(d.asked <= 24 * MIB for d in devices[:2])
    assert min(this.answer.n_layers) >= 4


@pytest.mark.parametrize("name", ["t5-dense", "gemma3n-few", "llama4-many", "falcon-h1-dense"])
def test_other_architectures(name: str) -> None:
    """Two stacks, shared caches, experts in some layers, two kinds of memory in a layer."""
    file = file_of(*declared(name))
    half = sum(t.nbytes for t in file.tensors.values()) // 2
    devices = stand_ins([*gpus(2), "cpu"], [half, half, 64 * MIB])
    for d in devices:
        d.largest = None
    this = fit(file, devices, n_ctx=256, margins=[1000] * 3, context={"n_ubatch": 16})
    assert this.fits and layers(this.answer) > 0 and min(this.left.values()) >= 1000


@pytest.mark.parametrize(
    ("n_layers", "on_host", "options"),
    [
        ((5,), set(), {"n_gpu_layers": 5}),
        ((2, 3), set(), {"n_gpu_layers": 5, "tensor_split": (2.0, 3.0)}),
        ((5,), {0, 1}, {"n_gpu_layers": 5, "n_cpu_moe": 2}),
        ((5,), {0, 1, 2, 3}, {"n_gpu_layers": 5, "cpu_moe": True}),
        ((3,), {2}, {"n_gpu_layers": 3, "n_cpu_moe": 3}),
        ((3,), {2, 3}, {"n_gpu_layers": 3, "cpu_moe": True}),
        ((5,), {1, 3}, {"n_gpu_layers": 5, "tensor_overrides": {rf"blk\.([13]){EXPERTS}": "h"}}),
    ],
)
def test_options(n_layers: tuple[int, ...], on_host: set[int], options: dict[str, object]) -> None:
    answer = FitAnswer(n_layers, frozenset(on_host), 256, n_all=5, n_moe=4)
    assert answer.options("h") == options


def test_numbers_as_expressions() -> None:
    for numbers in ({0}, {7, 8, 9}, {3, 10, 11, 12, 13}, {*range(5, 123, 3)}, {*range(150)}):
        pattern = re.compile(rf"blk\.{match_numbers(numbers)}\.x")
        assert {n for n in range(300) if pattern.search(f"blk.{n}.x")} == numbers


LARGE = """
import os, sys
from llama_py.fit import fit
from llama_py.fit.planning import gpus, open_header, stand_ins
from llama_py_tools.graph.placement import as_data, report

path, gib = sys.argv[1], 1 << 30
file = open_header(path)
os.truncate(path, min(t.offset for t in file.tensors.values()))  # to read a weight now is to die
found = fit(file, stand_ins([*gpus(2), "cpu"], [24 * gib, 24 * gib, 256 * gib]))
told = as_data(report(found.ctx.model, found.ctx))
assert found.fits and len(told["weights"]) == len(file.tensors), found.left
print(sum(found.answer.n_layers), len(found.answer.on_host), found.answer.n_ctx)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="its /proc tells the most memory")
def test_a_model_of_190_gb(tmp_path: Path) -> None:
    """Is planned without its weights, in less than 500 MB."""
    path = tmp_path / "large.gguf"
    assert large_models.write(path, "qwen3moe", "moe", large_models.QWEN3MOE) > 190e9
    done = subprocess.run(
        [sys.executable, "-c", LARGE, str(path)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=clean_environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer, memory = done.stdout.splitlines()
    n_layers, on_host, n_ctx = map(int, answer.split())
    assert (n_layers, n_ctx) == (95, 40960) and 70 < on_host < 80
    assert int(memory) * 1024 < 500e6
