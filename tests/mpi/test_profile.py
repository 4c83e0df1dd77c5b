"""llama-py-graph profile and view over ranks: kernels of all, messages, and what waits for what."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from llama_py_tools.graph import main
from tests.mpi.launching import on_ranks
from tests.support.commands import DEMO, SCRIPTS

GRAPH = str(SCRIPTS / "llama-py-graph")
PROFILE = ("profile", "--tokens", "1,2,3", "--decode", "1", "-r", "1", "-sm")


def profiled(mode: str, *flags: str) -> str:
    done = on_ranks(2, GRAPH, *PROFILE, mode, *flags)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("mode", ["graph", "layer"])
def test_messages_and_kernels_of_all_ranks(mode: str) -> None:
    _, token = json.loads(profiled(mode, "--json"))
    assert {s["device"] for s in token["steps"]} - {"cpu"} == {"mpi0", "mpi1"}
    assert {s["layer"] for s in token["steps"]} == {
        *(f"layer {il}" for il in range(4)),
        "outside of layers",
    }
    here, there = token["ranks"]
    kinds = [{p["what"].split()[0] for p in rank["passed"]} for rank in (here, there)]
    both = {"send", "receive", "sum"}
    assert kinds == ([both, both] if mode == "graph" else [{"send"}, {"receive"}])
    # one starts the run; with whole layers, rank 0 then asks for the logits
    asks = int(mode == "layer")
    assert here["messages"] == 1 + asks + sum(p["messages"] for p in here["passed"])
    assert there["messages"] == asks + sum(p["messages"] for p in there["passed"])
    sizes = [sum(p["bytes"] for p in rank["passed"]) for rank in (here, there)]
    assert here["bytes"] > sizes[0] > 0
    assert asks or there["bytes"] == sizes[1] > 0
    for one, other in ((here, there), (there, here)):
        sent = [p for p in one["passed"] if p["what"].startswith("send")]
        got = [p for p in other["passed"] if p["what"].startswith("receive")]
        assert len(sent) == len(got)
        assert all(0 <= p["waited_us"] <= p["us"] for p in one["passed"])
    assert (mode == "graph") == any(p["what"] == "sum with 1" for p in here["passed"])


def test_sums_in_pieces_and_the_products_that_are_made_meanwhile() -> None:
    """Two pieces of each: both kernels are of one node, which moves its bytes once."""
    tokens = ",".join(["1", "2", "3"] * 60)
    flags = ("profile", "--tokens", tokens, "--decode", "0", "-r", "1", "-sm", "graph", "--json")
    done = on_ranks(2, GRAPH, *flags, LLAMA_PY_MPI_PIECES="2")
    assert done.returncode == 0, done.stderr
    (prompt,) = json.loads(done.stdout)
    here, there = prompt["ranks"]
    assert there["messages"] == sum(p["messages"] for p in there["passed"])
    for rank, one in enumerate((here, there)):
        sums = [p for p in one["passed"] if p["what"] == f"sum in pieces with {1 - rank}"]
        assert sums and all(p["messages"] == 2 and 0 <= p["waited_us"] <= p["us"] for p in sums)
        steps = [s for s in prompt["steps"] if s["device"] == f"mpi{rank}" if s["op"] == "MUL_MAT"]
        kernels = Counter((s["node"], s["kernel"]) for s in steps)
        twice = {node for (node, _), n in kernels.items() if n == 2}
        assert len(twice) == len(sums) == 4
        assert all(sum(s["bytes"] > 0 for s in steps if s["node"] == node) == 1 for node in twice)


def test_a_process_of_the_trace_for_each_rank(tmp_path: Path) -> None:
    out = profiled("graph", "--trace", str(tmp_path / "trace.json"), "--top", "2")
    for rank in (0, 1):
        row = rf"^    sum with {rank}( +\d+){{3}}( +[\d.]+){{2}}$"
        assert len(re.findall(row, out, re.M)) == 2
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {1: "llama-py demo, rank 0", 2: "llama-py demo, rank 1"}
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    of = {pid: [name for (at, _), name in tracks.items() if at == pid] for pid in names}
    assert "messages" in of[1] and "messages" in of[2] and "decode" in of[1]
    assert "mpi0: steps" in of[1] and "mpi1: steps" in of[2] and "mpi1: steps" not in of[1]
    threads = [sum(f"mpi{n}: thread" in name for name in of[1 + n]) for n in (0, 1)]
    assert threads[0] == threads[1] > 0
    spans = [e for e in events if e["ph"] == "X" and tracks[e["pid"], e["tid"]] == "messages"]
    for wait in (e for e in spans if e["name"] == "wait"):
        assert any(
            e["pid"] == wait["pid"]
            and e["name"] != "wait"
            and e["ts"] == wait["ts"]
            and e["dur"] >= wait["dur"] - 1e-3
            for e in spans
        )


def test_waits_are_for_who_begins_last() -> None:
    """By clocks that differ."""
    pytest.importorskip("mpi4py")
    from ggml_mpi.times import Message, RankTimes, waits

    here = RankTimes(
        messages=[
            Message("send", (1,), 1, 8, 100, 110),
            Message("sum", (1,), 1, 8, 200, 300),
            Message("sum", (1,), 1, 8, 400, 450),
            Message("receive", (1,), 0, 0, 500, 600),
        ]
    )
    there = RankTimes(
        ahead=1000,
        messages=[
            Message("receive", (0,), 0, 0, 1050, 1130),
            Message("sum", (0,), 1, 8, 1260, 1310),
            Message("sum", (0,), 1, 8, 1350, 1460),
            Message("send", (0,), 1, 8, 1590, 1650),
        ],
    )
    assert waits([here, there]) == [[0, 60, 0, 90], [50, 0, 50, 0]]
    three = [
        RankTimes(messages=[Message("sum", others, 2, 8, start, 100)])
        for others, start in (((1, 2), 10), ((0, 2), 70), ((0, 1), 30))
    ]
    assert waits(three) == [[60], [0], [40]]
    alone = RankTimes(messages=[Message("receive", (1,), 0, 0, 5, 9)])
    assert waits([alone, RankTimes()]) == [[0], []]


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r"<script[^>]*id=\"data\"[^>]*>(.*?)</script>", text, re.S)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_a_page_shows_ranks_and_what_passes_between(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("-m", str(DEMO), "--tokens", "1,2,3", "-dev", "mpi0,mpi1", "-sm", "graph")
    assert main(["view", *flags]) == 0
    (graph,) = data_of(capsys.readouterr().out)["graphs"]
    nodes = graph["nodes"]
    assert {n["device"] for n in nodes} - {"cpu"} == {"mpi0", "mpi1"}
    assert {item["number"] for item in layers(graph["tree"])} == {None, 0, 1, 2, 3}
    sums = [n for n in nodes if "receivers" in n["params"]]
    assert sums and all(n["between"] == [{"mpi0": "mpi1"}.get(n["device"], "mpi0")] for n in sums)
    assert any(n.get("copied") and n["between"] for n in nodes)
    assert not any("between" in n for n in nodes if n.get("view"))


def layers(tree: list[dict[str, Any]]) -> list[dict[str, Any]]:
    inside = [layers(turn) for item in tree for turn in item.get("turns", ())]
    return [*(item for item in tree if "turns" not in item), *(x for of in inside for x in of)]


def test_a_page_with_times_of_all_ranks() -> None:
    done = on_ranks(2, GRAPH, "view", "--profile", "--tokens", "1,2,3", "-sm", "layer")
    assert done.returncode == 0, done.stderr
    (graph,) = data_of(done.stdout)["graphs"]
    timed = {n["device"] for n in graph["nodes"] if "us" in n}
    assert timed >= {"mpi0", "mpi1"} and graph["timed"]
