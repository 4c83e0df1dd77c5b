"""Graphs as data and text, and the first difference of two of them."""

from __future__ import annotations

import json

from ggml_py.graph import Graph
from ggml_py.inspection.dump import diff, dump_json, dump_text, find_layer, records
from ggml_py.ops import add, mul_mat, reshape, scale
from ggml_py.tensor import Tensor
from ggml_py.types import F32


def graph(factor: float = 0.5, extra: bool = False) -> Graph:
    g = Graph()
    w = Tensor(F32, (4, 3), name="blk.1.attn_q.weight")
    x = Tensor(F32, (4, 2), name="x")
    y = mul_mat(w, x)
    out = scale(reshape(y.set_name("Qcur-1"), 6), factor).set_name("l_out-1")
    g.build_forward_expand(add(out, out) if extra else out)
    return g


def test_record_has_all_of_a_node() -> None:
    first, second, third = records(graph(), dec=3)
    assert first == {
        "dec": 3,
        "i": 0,
        "name": "Qcur-1",
        "op": "MUL_MAT",
        "type": "f32",
        "ne": [3, 2, 1, 1],
        "nb": [4, 12, 24, 24],
        "offs": 0,
        "flags": 16,
        "view_src": "",
        "params": [0] * 16,
        "src": [
            {
                "k": 0,
                "name": "blk.1.attn_q.weight",
                "type": "f32",
                "ne": [4, 3, 1, 1],
                "nb": [4, 16, 48, 48],
            },
            {"k": 1, "name": "x", "type": "f32", "ne": [4, 2, 1, 1], "nb": [4, 16, 32, 32]},
        ],
    }
    assert (second["op"], second["view_src"]) == ("RESHAPE", "Qcur-1")
    assert third["params"][0] == 0x3F000000  # 0.5 as a word


def test_json_lines_are_records() -> None:
    assert [json.loads(line) for line in dump_json(graph())] == records(graph())


def test_text_is_grouped_by_layer() -> None:
    lines = dump_text(graph(extra=True)).splitlines()
    assert lines[0] == "layer 1"
    assert lines[1] == "    0 Qcur-1 = MUL_MAT(blk.1.attn_q.weight[4, 3, 1, 1], x[4, 2, 1, 1])" + (
        " -> f32 [3, 2, 1, 1]"
    )
    assert len(lines) == 5


def test_layer_of_names() -> None:
    def node(name: str, src: str = "") -> Tensor:
        return Tensor(F32, (1,), "SQR", (Tensor(F32, (1,), name=src),), name=name)

    assert find_layer(node("ffn_out-12")) == 12
    assert find_layer(node("Kcur-3 (view)")) == 3
    assert find_layer(node("cache_k_l7 (view) (permuted)")) == 7
    assert find_layer(node("node_31", "blk.40.ffn_up.weight")) == 40
    assert find_layer(node("result_norm", "inp_tokens")) is None


def test_diff_names_node_and_field() -> None:
    a = records(graph())
    assert diff(a, records(graph())) is None
    found = diff(a, records(graph(0.25)))
    assert found is not None
    assert (found.index, found.name, found.field) == (2, "l_out-1", "params")
    assert str(found).startswith("node 2 'l_out-1': params: [1056964608, ")


def test_diff_of_lists_of_unequal_length() -> None:
    a, b = records(graph()), records(graph(extra=True))
    found = diff(a, b)
    assert found is not None
    assert (found.index, found.name, found.field) == (3, "node_3", "number of nodes")
    assert (found.a, found.b) == (3, 4)
