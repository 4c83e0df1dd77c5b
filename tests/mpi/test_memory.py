"""What ranks take: as it was planned from metadata alone, and as it is told."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ggml_py.errors import BackendError
from llama_py.fit.planning import open_header
from llama_py.fit.ranks import RanksFit, by_rank, find_rank, fit_ranks
from llama_py_tools.graph import main as graph
from tests.mpi.launching import launcher, on_ranks
from tests.support import large_models
from tests.support.commands import DEMO, SCRIPTS

MIB = 1 << 20
CLI = str(SCRIPTS / "llama-py-cli")
SMALL = {
    "block_count": 10,
    "embedding_length": 512,
    "attention.head_count": 8,
    "attention.head_count_kv": 4,
    "attention.key_length": 64,
    "attention.value_length": 64,
    "feed_forward_length": 4096,
    "context_length": 8192,
}
LOADS = """
import json, sys
from ggml_mpi import orders, worker
from ggml_mpi.world import world
if world().rank:
    worker.serve()
else:
    import llama_py
    o = json.loads(sys.argv[1])
    n_ctx, path = o.pop("n_ctx"), o.pop("path")
    model = llama_py.load(path, device=["mpi0", "mpi1"], **o)
    ctx = model.context(n_ctx=n_ctx)
    use = {name: {**of, "reuse": 0} for name, of in ctx.memory_breakdown().items()}
    samples = model.devices[1].alignment
    print(json.dumps([use, world().ask(1, orders.ReportHeld()) - samples]))
"""


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fit") / "dense.gguf"
    large_models.write(path, "llama", "dense", SMALL, n_vocab=1024)
    return path


def found(path: Path, *mib: int, n_ctx: int | None = 512, **model: Any) -> RanksFit:
    memory, context = [n * MIB for n in mib], {"n_ubatch": 64}
    return fit_ranks(
        open_header(path),
        memory,
        n_ctx=n_ctx,
        n_ctx_min=512,
        margin=2 * MIB,
        model=model,
        context=context,
    )


def sums(use: Sequence[dict[str, int]]) -> list[int]:
    return [sum(of.values()) for of in use]


@pytest.mark.parametrize("how", [("-sm", "layer"), ("-sm", "graph"), ("--parallel", "pp=2")])
def test_ranks_take_what_was_planned(
    how: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """The very bytes that each has, those of the other rank as that says itself."""
    launcher()
    flags = ("-m", str(DEMO), "--hosts", "a,b", "--memory", "1G", "-fitt", "8M", "--json")
    assert graph(["fit", *flags, *how, "-c", "512"]) == 0
    told = json.loads(capsys.readouterr().out)
    options = json.dumps({**told["options"], "path": str(DEMO)})
    done = on_ranks(2, "-c", LOADS, options)
    assert done.returncode == 0, done.stderr
    use, held = json.loads(done.stdout)
    planned = [{k: of.get(k, 0) for k in ("model", "context", "compute")} for of in told["ranks"]]
    real = [{k: of.get(k, 0) for k in ("model", "context", "compute")} for of in by_rank(use)]
    assert real == planned
    assert sum(real[1].values()) == held


def test_a_command_tells_each_ranks_memory_once() -> None:
    done = on_ranks(2, CLI, "-p", "ROMEO:", "-n", "2", "-no-cnv")
    lines = re.findall(r"^rank (\d) on \S+: weights ([\d.]+) MiB, context", done.stderr, re.M)
    assert [rank for rank, _ in lines] == ["0", "1"], done.stderr
    assert all(float(size) > 0 for _, size in lines)


def test_shares_follow_the_memory(dense: Path) -> None:
    even, uneven = found(dense, 1000, 1000), found(dense, 200, 600)
    assert even.fits and uneven.fits
    assert even.options == {"tensor_split": (6, 5)}
    a, b = uneven.options["tensor_split"]
    assert a + b == 11 and b > 2 * a
    as_told = found(dense, 200, 600, tensor_split=uneven.options["tensor_split"])
    assert as_told.use == uneven.use
    shared = found(dense, 200, 600, split_mode="graph")
    assert shared.use[1]["model"] > 1.5 * shared.use[0]["model"]


def test_a_rank_with_too_little_gets_less(dense: Path) -> None:
    """The first has the token embeddings, too, which are in no share."""
    total = sum(sums(found(dense, 1000, 1000).use)) // MIB
    half = total // 2 + 6
    given = found(dense, half, half, tensor_split=(1, 1))
    sought = found(dense, half, half)
    assert sought.fits and min(sought.left) >= 2 * MIB
    assert min(given.left) <= min(sought.left)
    small = found(dense, 20, 20)
    assert not small.fits and min(small.left) < 0


def test_a_context_is_as_large_as_it_can_be(dense: Path) -> None:
    most = found(dense, 1000, 1000, n_ctx=None)
    assert most.ctx.n_ctx == 8192 and most.fits
    least = max(sums(found(dense, 1000, 1000).use)) // MIB
    some = found(dense, least + 6, least + 6, n_ctx=None)
    assert some.fits and 512 < some.ctx.n_ctx < 8192
    shares = some.options["tensor_split"]
    assert not found(
        dense, least + 6, least + 6, n_ctx=some.ctx.n_ctx + 512, tensor_split=shares
    ).fits


def test_what_cannot_be_is_told(dense: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BackendError, match="4 devices, got 2"):
        found(dense, 100, 100, parallel="tp=2,pp=2")
    flags = ["fit", "-m", str(dense), "-c", "512"]
    assert graph([*flags, "--hosts", "a:2", "--memory", "1G,1G,1G"]) == 1
    assert "--memory must have one size, or one per rank (2), got 3" in capsys.readouterr().err
    assert graph([*flags, "--parallel", "tp=2"]) == 1
    assert "fit chooses parallel; omit them, except with --hosts" in capsys.readouterr().err
    assert graph([*flags, "--hosts", "a,b", "--memory", "20M", "-fitt", "1M"]) == 1
    told = capsys.readouterr()
    assert "-c 512 does not fit: " in told.err and "on rank 1 (b)" in told.err
    assert "llama-py-cli" not in told.out and "rank 0 on a" in told.out


def test_names() -> None:
    assert [find_rank(name) for name in ("cpu", "mpi0", "mpi12", "opencl1")] == [0, 0, 12, 0]
    uses = {"mpi0": {"model": 1}, "mpi1": {"model": 2}, "cpu": {"model": 4, "reuse": 8}}
    assert by_rank(uses) == [{"model": 5, "reuse": 8}, {"model": 2}]


def test_shared_layers_are_shown_by_their_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("-m", str(DEMO), "-dev", "mpi0,mpi1", "-sm", "graph")
    assert graph(["placement", *flags]) == 0
    out = capsys.readouterr().out
    assert "mpi1: rank 1, not started" in out
    layers = re.findall(r"^  layers? (\S+)$", out, re.M)
    assert layers and max(int(n) for found in layers for n in re.split("[-,]", found)) < 5
