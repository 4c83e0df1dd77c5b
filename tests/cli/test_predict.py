"""llama-py-bench --predict: what several machines would do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ggml_py.ops.traffic import count_bytes
from ggml_py.plan.assign import is_view
from llama_py.fit.planning import PlannedContext, PlannedModel, open_header, stand_ins
from llama_py_tools.bench.predict.command import counts, link, speed
from llama_py_tools.bench.predict.cost import BatchCost, Link, fastest_split, prompt, stages, token
from llama_py_tools.bench.predict.work import MachineLimits, n_sums, sorted_out
from tests.support.commands import DEMO, refused, run
from tests.support.live_models import live

LINK = Link(latency=1e-3, rate=1e6, message=0.0)
ONE = BatchCost(n_tokens=1, layers=[0.01] * 4, head=0.02, n_embd=250, n_vocab=1000)
TOLD, HAND, LOGITS = 1e-3, 1e-3 + 1e-3, 1e-3 + 4e-3  # seconds of an order, a row, the logits


def test_a_token_by_hand() -> None:
    assert token(ONE, LINK, 1, 1) == pytest.approx(0.06)
    assert token(ONE, LINK, 1, 2) == pytest.approx(0.06 + HAND + LOGITS)
    shared = TOLD + 0.03 + 4 * 2 * HAND + (1e-3 + 2e-3)  # half of the logits is there already
    assert token(ONE, LINK, 2, 1) == pytest.approx(shared)
    both = TOLD + 0.03 + 4 * 2 * HAND + HAND + LOGITS
    assert token(ONE, LINK, 2, 2) == pytest.approx(both)
    slow = replace(LINK, ends=5e5)  # what two processes pass each way, at most
    assert token(ONE, slow, 2, 1) == pytest.approx(shared + 4 * 2 * 1e-3)
    other, both = replace(ONE, n_sums=[1, 2, 1, 0], summing=1e-3), replace(LINK, meeting=1e-3)
    assert token(other, both, 2, 1) == pytest.approx(shared - 4 * HAND + 4 * 2e-3)
    assert fastest_split(ONE, LINK, 4) == min(
        [(1, 4), (2, 2), (4, 1)], key=lambda m: token(ONE, LINK, *m)
    )


def test_batches_of_a_prompt_follow_each_other() -> None:
    assert prompt(ONE, LINK, 1, 1, 3) == pytest.approx(3 * 0.06)
    slowest = 0.02 + 0.02 + LOGITS  # the second stage has the head
    assert prompt(ONE, LINK, 1, 2, 3) == pytest.approx(0.06 + HAND + LOGITS + 2 * slowest)
    assert stages([1, 2, 3, 4, 5], 2) == [3, 12]


def test_all_that_a_graph_moves_is_of_a_layer_or_of_the_head() -> None:
    model = PlannedModel(open_header(DEMO), stand_ins(["cpu"]))
    ctx = PlannedContext(model, n_ctx=64, n_batch=1, n_ubatch=1, n_seq_max=1)
    nodes = list(ctx.graphs[0][0].graph.compute_nodes())
    work = sorted_out(nodes, 1, model.hparams.n_layer)
    found = sum(a for part in (*work.layers, work.head) for a, _ in part)
    assert found == sum(count_bytes(t) for t in nodes if not is_view(t))
    assert all(work.layers) and any(b > 0 for _, b in work.head)
    twice = work.seconds(MachineLimits(2e9, 1e18))[0]
    assert work.seconds(MachineLimits(1e9, 1e18))[0] == pytest.approx([2 * s for s in twice])
    ctx.close()


@pytest.mark.parametrize(
    ("name", "expected"), [("stablelm-parallel", [1, 1]), ("stablelm-serial", [2, 2])]
)
def test_sums_of_layers(name: str, expected: list[int]) -> None:
    assert n_sums(live(name)) == expected


def test_options() -> None:
    assert counts("hosts=a:2,b") == (3,) and counts("8,32") == (8, 32)
    assert link("1ms,1Gbit,1ms,4Gbit") == Link(1e-3, 1.25e8, 1e-3, 5e8)
    assert link("1ms,1Gbit") == Link(1e-3, 1.25e8) and link("0.1ms,10Gbit,5ms").message == 5e-3
    assert speed("40GB,0.5TFLOP") == (40e9, 5e11)
    done = run("llama-py-bench", "--predict", "hosts=1,2", "--speed", "1GB,1GFLOP", "-p", "32")
    assert done.returncode == 0 and done.stdout.count("\n|") == 4, done.stdout + done.stderr
    for wrong in ("hosts=", "hosts=0"):
        assert "--predict" in refused(run("llama-py-bench", "--predict", wrong))
    assert "got '1m'" in refused(run("llama-py-bench", "--predict", "2", "--link", "1m,1Gbit"))
