"""llama-py-graph view: what is found in a graph, and how it is written."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ggml_py import ops
from ggml_py.backend.null import NullBuffer
from ggml_py.errors import GGMLError
from ggml_py.graph import Graph
from ggml_py.plan.alloc import plan_memory
from ggml_py.tensor import FLAG_OUTPUT, Tensor
from llama_py_tools.graph import main
from llama_py_tools.graph.view import model_explorer
from llama_py_tools.graph.view.data import graph_data, page_data
from llama_py_tools.graph.view.memory import memories
from llama_py_tools.graph.view.overlays import put
from llama_py_tools.graph.view.page import embed_json, page
from llama_py_tools.graph.view.seen import GraphRecord
from llama_py_tools.graph.view.tree import Item, LayerBox, RepeatBox, fold_repeats, tree
from tests.support import graph_models, large_models
from tests.support.commands import tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_model(tmp_path_factory.mktemp("view"), "qwen35moe-moe"))


def view(model: str, *args: str) -> int:
    return main(["view", "-m", model, "--tokens", "1,2,3", *args])


def data_of(text: str) -> dict[str, Any]:
    """The data of a page."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    data: dict[str, Any] = json.loads(found)
    return data


def graph_of(name: str, n_prompt: int = 4) -> Graph:
    return graph_models.run(graph_models.load(name), n_prompt)[0].graph


def words(items: list[Item]) -> list[Any]:
    """A tree in short: titles of blocks of each layer, lists of turns."""
    return [
        [block.title for block in item.blocks]
        if isinstance(item, LayerBox)
        else {len(item.turns): words(item.turns[0])}
        for item in items
    ]


def layer(*signature: int) -> LayerBox:
    from llama_py_tools.graph.view.tree import BlockBox

    return LayerBox("layer", 0, [BlockBox("", 0, 0, number) for number in signature])


def shapes(items: list[Item]) -> list[Any]:
    return [
        item.blocks[0].signature
        if isinstance(item, LayerBox)
        else (len(item.turns), shapes(item.turns[0]))
        for item in items
    ]


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("", []),
        ("0", [0]),
        ("01", [0, 1]),
        ("111", [(3, [1])]),
        ("0111012", [0, (3, [1]), 0, 1, 2]),
        ("0111011102", [(2, [0, (3, [1])]), 0, 2]),
        ("1110" * 12, [(12, [(3, [1]), 0])]),
        ("1110" * 11 + "1112", [(11, [(3, [1]), 0]), (3, [1]), 2]),
        ("010101" + "2323", [(3, [0, 1]), (2, [2, 3])]),
    ],
)
def test_repetitions(layers: str, expected: list[Any]) -> None:
    found = fold_repeats([layer(int(c)) for c in layers])
    assert shapes(found) == expected


def test_layers_and_blocks() -> None:
    assert words(tree(graph_of("llama-dense"))) == [
        ["input"],
        ["attention", "feed-forward"],
        ["attention", "feed-forward"],
        ["output"],
    ]
    assert words(tree(graph_of("qwen35moe-moe"))) == [
        ["input"],
        ["delta net", "experts"],
        ["attention", "experts"],
        ["output"],
    ]


@pytest.mark.parametrize("name", graph_models.CONTINUING)
def test_every_node_is_in_one_block(name: str) -> None:
    graph = graph_of(name)
    found: list[int] = []

    def look(items: list[Item]) -> None:
        for item in items:
            if isinstance(item, RepeatBox):
                for turn in item.turns:
                    look(turn)
            else:
                for block in item.blocks:
                    found.extend(range(block.first, block.last + 1))

    look(tree(graph))
    assert found == list(range(len(graph.nodes)))


def test_the_page_has_everything(
    model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "page.html"
    assert view(model, "--decode", "1", "-o", str(path)) == 0
    assert caplog.messages[-1] == f"{path}: open it in a browser"
    text = path.read_text()
    data = data_of(text)
    assert [g["what"] for g in data["graphs"]] == ["prompt, 3 tokens", "token 1"]
    assert ["architecture", "qwen35moe"] in data["facts"]
    graph = data["graphs"][0]
    (node,) = (n for n in graph["nodes"] if n["name"] == "attn_norm-0")
    assert (node["op"], node["type"], node["ne"][:2]) == ("MUL", "f32", [64, 3])
    assert node["nb"] == [4, 256, 768, 768] and node["bytes"] == 768
    norm, weight = node["src"]
    assert graph["nodes"][norm]["op"] == "RMS_NORM"
    assert graph["leafs"][-1 - weight]["name"] == "blk.0.attn_norm.weight"
    assert graph["leafs"][-1 - weight]["kind"] == "weight"
    assert node["at"] >= 0 and data["ops"]["MUL"]["family"] == "arithmetic"


def test_nothing_is_fetched(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert view(model) == 0
    text = re.sub(r"http://www\.w3\.org/2000/svg", "", capsys.readouterr().out)
    assert "default-src 'none'" in text
    assert "Permission is hereby granted" in text  # of the library that is in the page
    assert not re.search(r"https?://|//#|@import|url\((?!#)|\bimport\b *[({\"']", text)


HOSTILE = [
    "</script><script>alert(1)</script>",
    "a\x1b[2Jb",
    "<img src=x onerror=alert(1)>",
    "\u2028\u2029",
    "&lt;b&gt;",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_never_html(name: str) -> None:
    graph = graph_of("llama-dense")
    graph.nodes[5].name = graph.leafs[2].name = name
    data = page_data([GraphRecord("x", graph)], title=name, facts=[("name", name)])
    text = "".join(page(data))
    text.encode()
    assert "\x1b" not in text and "\u2028" not in text
    assert "<img" not in text and "alert(1)</script>" not in text
    assert len(re.findall("</script", text)) == len(re.findall("<script", text)) == 2
    found = data_of(text)
    shown = name if name.isprintable() else repr(name)[1:-1]
    assert found["graphs"][0]["nodes"][5]["name"] == found["title"] == shown


def test_a_title_of_a_strange_path() -> None:
    text = "".join(page(page_data([GraphRecord("x", graph_of("llama-dense"))], "\ud800</title>")))
    assert "<title>\\ud800&lt;/title&gt;</title>" in text.encode().decode()


def test_embedded_json_is_json() -> None:
    value = {"a": "<!--<script>&", "b": [1, "\u2028"]}
    assert json.loads(embed_json(value)) == value
    assert not set("<>&") & set(embed_json(value))
    with pytest.raises(ValueError):
        embed_json({"a": float("nan")})


def check_memory(memory: dict[str, Any], n_nodes: int) -> None:
    """No two places lie on each other at one time, none beyond the buffer; the sums are right."""
    assert memory["peak"] == max(memory["alive"]) == memory["alive"][memory["peak_at"]]
    assert 0 < memory["peak"] <= memory["size"]
    places = memory["places"]
    for i, (_, first, last, offset, size) in enumerate(places):
        assert offset >= 0 and offset + size <= memory["size"] and first <= last
        for _, first2, last2, offset2, size2 in places[:i]:
            apart = offset + size <= offset2 or offset2 + size2 <= offset
            taken_over = offset == offset2 and (first == last2 or first2 == last)
            assert apart or taken_over or last < first2 or last2 < first
    for i in (0, n_nodes // 2, n_nodes - 1):
        alive = {p[3]: p[4] for p in sorted(places, key=lambda p: p[1]) if p[1] <= i <= p[2]}
        assert memory["alive"][i] == sum(alive.values())


def test_memory_is_the_plans(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert view(model) == 0
    graph = data_of(capsys.readouterr().out)["graphs"][0]
    memory, inputs = graph["memory"]
    assert memory["device"] == "cpu" and len(memory["places"]) > 40
    for one in (memory, inputs):
        check_memory(one, len(graph["nodes"]))
    names = {graph["leafs"][-1 - place[0]]["name"] for place in inputs["places"]}
    assert {"inp_tokens", "inp_pos"} <= names and "inp_embd" not in names
    until = {place[0]: place[2] for place in memory["places"]}
    time = {node: now for now, node in enumerate(memory["order"])}
    in_steps = [(s, time[n["step"]]) for n in graph["nodes"] if "step" in n for s in n["src"]]
    outside = [(s, step) for s, step in in_steps if s in until]
    assert len(outside) > 5 and all(until[s] >= step for s, step in outside)


def test_how_long_bytes_are_needed() -> None:
    """A result that is taken over counts once; an output and an input stay to the end."""
    graph, x = Graph(), Tensor(ne=(64,), name="x")
    nodes = [ops.scale(x, 2.0)]
    nodes.append(ops.sqr(nodes[0]))
    nodes.append(ops.mul_mat(nodes[1], nodes[1]))
    nodes.append(ops.sqr(nodes[2]))
    nodes.append(ops.sqr(nodes[3]))
    nodes[2].flags |= FLAG_OUTPUT
    graph.build_forward_expand(nodes[4])
    plan = plan_memory(graph)
    buffer = NullBuffer(plan.sizes[0])
    for t, _, offset in plan.placed:
        t.buffer, t.offset = buffer, offset
    (memory,) = memories(GraphRecord("", graph))
    found = {p.tensor.name: (p.first, p.last, p.size) for p in memory.places}
    assert found == {
        "x": (0, 4, 256),
        "node_0": (0, 1, 256),
        "node_1": (1, 2, 256),
        "node_2": (2, 4, 4),
        "node_3": (3, 4, 4),
        "node_4": (4, 4, 4),
    }
    assert memory.alive == [512, 512, 516, 264, 264]
    assert memory.peak == (516, 2)


def test_two_devices(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nodes where they would run, and two buffers; values that pass over are told."""
    assert view(model, "-dev", "ref,cpu", "-ngl", "1", "--decode", "1") == 0
    for graph in data_of(capsys.readouterr().out)["graphs"]:
        devices = {n["name"]: n["device"] for n in graph["nodes"]}
        assert (devices["attn_norm-0"], devices["result_output"]) == ("cpu", "ref")
        assert {m["device"] for m in graph["memory"]} == {"ref", "cpu"}
        assert any(n.get("copied") for n in graph["nodes"])
        for memory in graph["memory"]:
            check_memory(memory, len(graph["nodes"]))


def test_a_file_of_200_gb(tmp_path: Path) -> None:
    """Only its head is there, and only that is read."""
    path, page = tmp_path / "large.gguf", tmp_path / "page.html"
    size = large_models.write(
        path, "qwen3moe", "moe", large_models.QWEN3MOE, n_vocab=1000, experts="q6_K"
    )
    assert size > 180e9 and path.stat().st_blocks * 512 < 1e7
    assert view(str(path), "-o", str(page)) == 0
    (graph,) = data_of(page.read_text())["graphs"]
    assert [len(part.get("turns", ())) for part in graph["tree"]].count(93) == 1


def test_times(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert view(model, "--profile", "--decode", "1", "-t", "1") == 0
    data = data_of(capsys.readouterr().out)
    assert [g["what"] for g in data["graphs"]] == ["prompt, 3 tokens", "token 1"]
    for graph in data["graphs"]:
        timed = [n for n in graph["nodes"] if "us" in n]
        assert graph["timed"] and len(timed) > 20
        assert all(n["us"] >= 0 and n["kernels"] and n["device"] == "cpu" for n in timed)
        assert {"MUL_MAT", "GATED_DELTA_NET"} <= {n["op"] for n in timed}
        inside = [n for i, n in enumerate(graph["nodes"]) if n.get("step", i) != i]
        assert any("us" not in n for n in inside)


def lines(graph: Graph, values: dict[int, Any], **more: Any) -> list[dict[str, Any]]:
    return [
        {"dec": 0, "i": i, "name": graph.nodes[i].name, "overlay": value} | more
        for i, value in values.items()
    ]


def test_overlays(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump", "-m", model, "--tokens", "1,2,3", "--format", "json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    records[7]["overlay"] = {"error": 0.25, "bias": -1}
    records[8]["overlay"] = {"error": float("nan")}
    path = tmp_path / "values.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    assert view(model, "--overlay", str(path)) == 0
    graph = data_of(capsys.readouterr().out)["graphs"][0]
    assert graph["overlays"] == ["error", "bias"]
    assert graph["nodes"][7]["overlay"] == {"error": 0.25, "bias": -1}
    assert graph["nodes"][8]["overlay"] == {"error": "NaN"}
    assert sum("overlay" in n for n in graph["nodes"]) == 2


def test_overlays_by_name() -> None:
    """Without a number, or with that of another node, the names count, each in turn."""
    graph = graph_of("llama-dense")
    twice = [i for i, t in enumerate(graph.nodes) if t.name == "norm-0"]
    seen = GraphRecord("", graph)
    put([seen], lines(graph, {twice[0]: {"e": 1}, twice[1]: {"e": 2}}, i=None), "x")
    assert seen.overlays == {twice[0]: {"e": 1.0}, twice[1]: {"e": 2.0}}


@pytest.mark.parametrize("bad", [{"e": "1"}, {"e": True}, [1], "x", {"e": None}])
def test_overlays_that_are_none(bad: Any) -> None:
    graph = graph_of("llama-dense")
    with pytest.raises(GGMLError, match=r"x: overlay of 'embd' must be numbers by name"):
        put([GraphRecord("", graph)], lines(graph, {0: bad}), "x")


def test_overlays_of_another_graph() -> None:
    graph = graph_of("llama-dense")
    with pytest.raises(GGMLError, match="the 1 lines with an overlay match no node"):
        put([GraphRecord("", graph)], lines(graph, {0: {"e": 1}}, name="other"), "x")


def test_model_explorer(model: str, tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    assert view(model, "--format", "model-explorer", "-o", str(path), "--profile", "-t", "1") == 0
    (graph,) = json.loads(path.read_text())["graphs"]
    nodes = {n["id"]: n for n in graph["nodes"]}
    assert len(nodes) == len(graph["nodes"])
    edges = [e for n in nodes.values() for e in n.get("incomingEdges", ())]
    assert len(edges) > 200 and all(e["sourceNodeId"] in nodes for e in edges)
    spaces = {n["namespace"] for n in nodes.values()}
    assert {"input", "layer 0/delta net", "layer 1/experts", "weights"} <= spaces
    (norm,) = (n for n in nodes.values() if {"key": "name", "value": "attn_norm-0"} in n["attrs"])
    (result,) = norm["outputsMetadata"]
    assert {"key": "shape", "value": "f32[64, 3, 1, 1]"} in result["attrs"]
    for what in ("bytes", "time"):
        data = json.loads((tmp_path / f"g.{what}.json").read_text())[graph["id"]]
        assert data["results"].keys() <= nodes.keys() and len(data["results"]) > 20
        assert all(isinstance(r["value"], float) for r in data["results"].values())
        assert [stop["stop"] for stop in data["gradient"]] == [0, 1]


def test_model_explorer_repetitions() -> None:
    """Layers that repeat are in a namespace of their own."""
    graph, x = Graph(), ops.scale(Tensor(ne=(8,), name="x"), 1.0).set_name("embd")
    for il in range(3):
        for k in range(5):
            x = ops.sqr(x).set_name(f"x_{k}-{il}")
    graph.build_forward_expand(ops.neg(x).set_name("result"))
    (shown,) = model_explorer.graphs([GraphRecord("a", graph)], "x")["graphs"]
    spaces = {n["attrs"][0]["value"]: n["namespace"] for n in shown["nodes"]}
    assert spaces["x_0-1"] == "layers 0 to 2/layer 1"
    assert (spaces["embd"], spaces["result"]) == ("input", "output")


@pytest.mark.parametrize("format", ["dot", "json", "text"])
def test_other_formats_are_dumps(
    format: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert view(model, "--format", format) == 0
    shown = capsys.readouterr().out
    assert main(["dump", "-m", model, "--tokens", "1,2,3", "--format", format]) == 0
    assert capsys.readouterr().out == shown


def test_a_graph_without_layers() -> None:
    graph, x = Graph(), Tensor(name="x")
    for _ in range(600):
        x = ops.scale(x, 2.0)
    graph.build_forward_expand(x)
    data = graph_data(GraphRecord("", graph))
    sizes = [b["last"] - b["first"] + 1 for part in data["tree"] for b in part["blocks"]]
    assert sum(sizes) == 600 and max(sizes) <= 240 and len(sizes) == 3
    assert not memories(replace(GraphRecord("", graph)))
