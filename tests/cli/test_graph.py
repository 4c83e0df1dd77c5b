"""llama-py-graph: dumps in four formats, and differences."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dev.record.golden import store
from llama_py_tools.graph import main
from llama_py_tools.graph.dot import quote
from llama_py_tools.graph.layers import groups
from tests.support import graph_models
from tests.support.commands import run, tiny_model

RECORDED = ["llama-dense", "llama-moe", "qwen3-dense", "qwen35moe-moe"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("graph")
    return {name: str(tiny_model(folder, name)) for name in RECORDED}


def dump(model: str, *args: str, tokens: str = "1,2") -> int:
    return main(["dump", "-m", model, "--tokens", tokens, "--decode", "1", *args])


@pytest.fixture(scope="module")
def llama_cpps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Dumps of the real llama.cpp, by flash attention, of llama-dense and a prompt of 40 tokens."""
    folder = tmp_path_factory.mktemp("recorded")
    for fa in ("on", "off"):
        nodes = store.nodes("llama", "dense")[f"nodes-fa-{fa}"]
        lines = "".join(json.dumps(node, separators=(",", ":")) + "\n" for node in nodes)
        (folder / fa).write_text(lines)
    return {fa: str(folder / fa) for fa in ("on", "off")}


PROMPT = ",".join(map(str, range(40)))


@pytest.mark.parametrize("fa", ["on", "off"])
def test_a_dump_is_llama_cpps_line_for_line(
    fa: str, models: dict[str, str], llama_cpps: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert dump(models["llama-dense"], "-fa", fa, "--format", "json", tokens=PROMPT) == 0
    assert capsys.readouterr().out == Path(llama_cpps[fa]).read_text()


def test_diff_as_a_process(
    models: dict[str, str], llama_cpps: dict[str, str], tmp_path: Path
) -> None:
    ours = tmp_path / "ours.jsonl"
    assert dump(models["llama-dense"], "--format", "json", "-o", str(ours), tokens=PROMPT) == 0
    same = run("llama-py-graph", "diff", str(ours), llama_cpps["on"])
    assert (same.returncode, same.stdout, same.stderr) == (0, "equal: 136 nodes\n", "")
    parts = run("llama-py-graph", "diff", str(ours), llama_cpps["off"])
    assert (parts.returncode, parts.stderr) == (1, "")
    assert "'Vcur-0 (view)': name: 'Vcur-0 (view)' != 'Vcur-0 (reshaped)' (graph 0)" in parts.stdout


def test_diff_finds_a_field_and_a_length(
    tmp_path: Path, llama_cpps: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = Path(llama_cpps["on"]).read_text().splitlines()
    node = json.loads(lines[100])
    node["params"][1] += 1
    changed = [*lines[:100], json.dumps(node), *lines[101:]]
    a, b, c = (tmp_path / name for name in ("a", "b", "c"))
    for path, content in ((a, lines), (b, changed), (c, lines[:-1])):
        path.write_text("\n".join(content))
    assert main(["diff", str(a), str(b)]) == 1
    out = capsys.readouterr().out
    assert f"{node['name']!r}: params: " in out
    assert "(graph 1)" in out
    assert main(["diff", str(a), str(c)]) == 1
    assert "number of nodes: 136 != 135" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"hello", "not a JSON dump"),
        (b"[1]\n", "not nodes"),
        (b"", "not nodes"),
        (b"\x1f\x8bcut", "not a JSON dump"),
    ],
)
def test_files_that_are_no_dumps(
    content: bytes, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x").write_bytes(content)
    assert main(["diff", str(tmp_path / "x"), str(tmp_path / "x")]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert says in shown.err


def test_text(models: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert dump(models["llama-dense"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "graph 0: 68 nodes"
    assert "graph 1: 68 nodes" in lines
    assert {"layer 0", "layer 1"} <= set(lines)
    assert any("attn_norm-0 = MUL(norm-0[64, 2, 1, 1], " in line for line in lines)


def test_layers() -> None:
    graph = graph_models.run(graph_models.load("llama-dense"), 2)[0].graph
    found = groups(graph)
    outside = "outside of layers"
    assert [title for title, _ in found] == [outside, "layer 0", "layer 1", outside]
    assert [i for _, nodes in found for i, _ in nodes] == list(range(68))
    assert [t.name for _, t in found[0][1]] == ["embd"]
    assert [t.name for _, t in found[3][1]] == ["norm", "result_norm", "result_output"]


def test_dot(models: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert dump(models["llama-dense"], "--format", "dot") == 0
    text = capsys.readouterr().out
    assert text.startswith("digraph {")
    assert text.count("{") == text.count("}")
    assert text.count('label="layer 0"') == text.count('label="layer 1"') == 2
    declared = set(re.findall(r"^\s+([nl]\d+_\d+) \[", text, re.M))
    edges = re.findall(r"^\s+(\w+) -> (\w+);", text, re.M)
    assert len(declared) > 200
    assert {end for edge in edges for end in edge} <= declared
    assert quote('a"b\\c\nd') == r'"a\"b\\c\nd"'


def test_html(models: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """The page of `view` (test_graph_view.py)."""
    assert dump(models["qwen35moe-moe"], "--format", "html") == 0
    text = capsys.readouterr().out
    data = json.loads(re.findall(r'id="data">(.*?)</script>', text)[0])
    assert [len(graph["nodes"]) for graph in data["graphs"]] == [205, 205]


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for args in (["diff", "a"], ["dump", "--format", "png"], ["diff", "--against", "ggml"], []):
        with pytest.raises(SystemExit) as caught:
            main(args)
        assert caught.value.code == 2
    assert "llama.cpp" in capsys.readouterr().err


def test_against_llama_cpp(models: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """With the real one the graphs are equal; without it there is a clear error."""
    model = models["llama-dense"]
    code = main(["diff", "--against", "llama.cpp", "-m", model, "--tokens", "1,2", "--decode", "1"])
    shown = capsys.readouterr()
    try:
        import llama_cpp  # noqa: F401
    except ImportError:
        assert code == 1
        assert "needs llama-cpp-python" in shown.err
    else:
        assert code == 0
        assert shown.out.startswith("equal: 136 nodes\nvalues: 78 nodes of cpu and llama.cpp ")
