"""Node lists of a later llama.cpp in the form of llama.cpp 0.5.0."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dev.record.golden.engines import LlamaCpp
from dev.record.newest.__main__ import COMMANDS
from dev.record.newest.commands import print_nodes
from dev.record.newest.engine import to_former_graph
from dev.record.newest.loader import find_names, names_like
from ggml_py.inspection.dump import Record

ROOT = Path(__file__).parents[2]
LIBRARY = b"\0%s.expert_count\0cross.blk.%d.attn_q\0blk.%d.attn_output\0no name\0"


def graph(*nodes: tuple[str, str, str, list[int]]) -> list[Record]:
    """Build nodes of (name, op, sources, ne). Nodes with a "mixed" source have flags 0."""
    found: list[Record] = []
    for i, (name, op, sources, ne) in enumerate(nodes):
        src = [source(k, s) for k, s in enumerate(sources.split(" & "))]
        used = not any("mixed" in s["name"] for s in src)
        found.append({"i": i, "name": name, "op": op, "type": "f32", "ne": ne, "src": src})
        found[-1] |= {"nb": [4, *[4 * ne[0]] * 3], "view_src": "", "params": [0] * 16, "offs": 0}
        found[-1]["flags"] = 16 if used else 0
    return found


def source(k: int, name: str) -> dict[str, Any]:
    return {"k": k, "name": name, "type": "i32", "ne": [2, 1, 1, 1], "nb": [4, 8, 8, 8]}


def brief(nodes: list[Record]) -> list[str]:
    sources = (", ".join(s["name"] for s in node["src"]) for node in nodes)
    return [f"{n['i']} {n['name']} = {n['op']}({s})" for n, s in zip(nodes, sources, strict=True)]


def test_unused_nodes_and_the_scale_of_tokens() -> None:
    given = graph(
        ("node_0", "GET_ROWS", "token_embd.weight & inp_tokens", [16, 2, 1, 1]),
        ("node_1", "GET_ROWS", "token_embd.weight & inp_mixed_tokens", [16, 2, 1, 1]),
        ("inp_scaled", "MUL", "node_0 & inp_scale_rows", [16, 2, 1, 1]),
        ("node_3", "ADD", "inp_scaled & leaf_9", [16, 2, 1, 1]),
        ("node_3 (view)", "VIEW", "node_3", [16, 1, 1, 1]),
    )
    found = to_former_graph(given)
    assert brief(found) == [
        "0 embd = GET_ROWS(token_embd.weight, inp_tokens)",
        "1 inp_scaled = SCALE(embd)",
        "2 node_2 = ADD(inp_scaled, leaf_7)",
        "3 node_2 (view) = VIEW(node_2)",
    ]
    assert found[1]["params"][0] == 0x40800000  # 4.0


def test_states_are_read_in_two_parts() -> None:
    given = graph(
        ("node_0", "GET_ROWS", "cache_r_l0 & rs_s_copy", [8, 3, 1, 1]),
        (" (view)", "VIEW", "node_0", [8, 2, 1, 1]),
        ("node_0 (view)", "VIEW", "node_0", [8, 1, 1, 1]),
        ("cache_r_l0 (view)", "VIEW", "cache_r_l0", [8, 1, 1, 1]),
        ("x (copy of y)", "CPY", "node_0 (view) & cache_r_l0 (view)", [8, 1, 1, 1]),
        (" (view) (reshaped)", "RESHAPE", " (view)", [4, 4, 1, 1]),
        ("node_6", "ADD", " (view) (reshaped)", [4, 4, 1, 1]),
    )
    for node in given[1], given[2], given[5]:
        node["view_src"] = "node_0"
    given[5]["src"][0]["ne"], given[6]["src"][0]["ne"] = given[1]["ne"], given[5]["ne"]
    assert brief(to_former_graph(given)) == [
        "0 rs_s_copy (view) = VIEW(rs_s_copy)",
        "1 node_1 = GET_ROWS(cache_r_l0, rs_s_copy (view))",
        "2 rs_s_copy (view) = VIEW(rs_s_copy)",
        "3 node_3 = GET_ROWS(cache_r_l0, rs_s_copy (view))",
        "4 cache_r_l0 (view) = VIEW(cache_r_l0)",
        "5 cache_r_l0 (view) (copy of ) = CPY(node_3, cache_r_l0 (view))",
        "6 node_1 (reshaped) = RESHAPE(node_1)",
        "7 node_7 = ADD(node_1 (reshaped))",
    ]


def test_names_in_a_library(tmp_path: Path) -> None:
    """A linker stores a name once that is the end of another name."""
    library = tmp_path / "libllama.so"
    library.write_bytes(LIBRARY)
    keys, tensors = find_names(library)
    assert keys == ["%s.expert_count"]
    assert {"blk.%d.attn_q", "blk.%d.attn_output", "output"} <= set(tensors)
    assert "no name" not in tensors


def test_the_page_names_commands_and_files_that_exist() -> None:
    page = (ROOT / "dev" / "record" / "newest" / "README.md").read_text("utf-8")
    named = set(re.findall(r"python -m dev\.record\.newest ([a-z]+)", page))
    assert {"check", "keys", "graph", "compare", "record", "types", "names"} <= named <= {*COMMANDS}
    files = re.findall(r"`((?:apps|llama_py|tests)/[a-z_/]+\.py)`", page)
    assert files and all((ROOT / file).is_file() for file in files)


def test_names_for_an_error_without_a_name() -> None:
    names = ["%s.expert_count", "blk.%d.attn_q", "decision.key", "decision.head_count"]
    said = "llama_model_load: error loading model: the decision head is missing\nfailed: count"
    assert names_like(said, names) == ["decision.head_count", "decision.key"]
    assert names_like("no such word", names) == []


def test_inputs_are_printed_before_their_first_node(capsys: pytest.CaptureFixture[str]) -> None:
    engine = LlamaCpp.__new__(LlamaCpp)
    engine.nodes = []
    for node in graph(
        ("rows", "GET_ROWS", "token_embd.weight & leaf_1", [16, 2, 1, 1]),
        ("sum", "ADD", "rows & mask", [16, 2, 1, 1]),
        ("more", "GET_ROWS", "sum & leaf_1", [16, 2, 1, 1]),
    ):
        engine.nodes.append({**node, "dec": 0})
        engine._add_values(0, "leaf_1", lambda: np.array([[[[5, 9]]]], np.float32))
        engine._add_values(0, "mask", lambda: np.full((1, 1, 9, 9), -np.inf, np.float32))
    print_nodes(to_former_graph(engine.nodes))
    lines = [line.split(maxsplit=2)[1:] for line in capsys.readouterr().out.splitlines()]
    assert [kind for kind, _ in lines] == ["-", "0", "-", "1", "2"]
    assert lines[0][1] == "leaf_1 -> i32 [2, 1, 1, 1] [5 9]"
    assert lines[2][1].startswith("mask -> i32 [2, 1, 1, 1] [[-inf -inf -inf ... -inf")
