"""llama-py-graph read: every node once, beside the source that makes it."""

from __future__ import annotations

import re
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ggml_py.tensor import Tensor
from llama_py import load
from llama_py_tools.graph import main
from llama_py_tools.graph.read.record import CallRecorder
from llama_py_tools.graph.read.text import WIDTH, heading, spans, text
from llama_py_tools.graph.read.tree import Function, Section, sections
from llama_py_tools.graph.view.seen import plan_graphs
from tests.support.commands import tiny_model

FAMILIES = [
    "qwen3next-moe",
    "qwen35moe-moe",
    "kimi-linear-moe",
    "t5-dense",
    "mamba2-dense",
    "bert-dense",
    "deepseek2-moe",
    "gemma3n-few",
    "rwkv7-dense",
    "nemotron_h-dense",
    "smollm3-dense",
    "lfm2-dense",
]


def read(folder: Path, name: str) -> tuple[list[list[Section]], list[set[int]]]:
    """The sections of each graph, and the ids of its nodes."""
    ctx = load(str(tiny_model(folder, name)), device="null").context(n_ctx=64)
    recorder = CallRecorder()
    with recorder.record():
        seen = plan_graphs(ctx, [1, 2, 3], 0)
    nodes = [{id(t) for t in s.graph.nodes} for s in seen]
    return [sections(s.graph, recorder) for s in seen], nodes


def functions(parts: list[Section]) -> list[Function]:
    """All functions of sections, nested ones too."""
    found, rest = [], [f for part in parts for f in part.functions.values()]
    while rest:
        found.append(f := rest.pop())
        rest += [c for s in f.statements.values() for c in s.calls.values()]
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FAMILIES)
def test_every_node_is_in_one_place_of_the_program(tmp_path: Path, name: str) -> None:
    graphs, nodes = read(tmp_path, name)
    for parts, ids in zip(graphs, nodes, strict=True):
        shown = Counter(id(n.made.tensor) for part in parts for n in part.nodes())
        assert set(shown) == ids
        assert set(shown.values()) == {1}
        for f in functions(parts):
            lines = Path(f.code.co_filename).read_text().splitlines()
            for excerpt in f.statements:
                assert excerpt.text.splitlines() == lines[excerpt.first - 1 : excerpt.last]
        assert all(len(line) <= WIDTH for line in text("", parts))


def test_layers_of_a_kind_are_one_section(tmp_path: Path) -> None:
    ((parts,), _) = read(tmp_path, "smollm3-dense")
    titles = [heading(part) for part in parts]
    assert titles == ["Embedding", "Layers 0-3: attention, feed forward", "Output"]
    partial = {
        excerpt.text.strip(): statement.layers
        for f in functions(parts[1:2])
        for excerpt, statement in f.statements.items()
        if statement.layers not in ([], [0, 1, 2, 3])
    }
    assert partial.pop("cur, residual = g.outputs(cur, residual)") == [3]
    assert [*partial.values()] == [[0, 1, 2]]  # layer 3 does not rotate queries and keys


def test_spans() -> None:
    assert spans([0, 1, 2, 4, 6, 7]) == "0-2, 4, 6-7"


def test_text_shows_line_node_shape_and_formula(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", "--tokens", "1,2"]) == 0
    out = capsys.readouterr().out
    assert "Layers 0-2: " in out
    found = re.search(r"linear_attn_qkv_mixed.*\n +> 14 linear_attn_qkv_mixed-0  RESHAPE f32", out)
    assert found
    assert "= norm-0 * blk.0.attn_norm.weight\n" in out
    assert "= model.input_embed / sqrt(mean(model.input_embed^2) + 1e-06) along dimension 0" in out


class Page(HTMLParser):
    """Texts by tag, and how deep tags nest at the end."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.append((self.open[-1], data))


def test_page_is_one_file_with_code_and_nodes(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert (
        main(["read", "--tokens", "1,2", "--decode", "1", "--format", "html", "-o", str(path)]) == 0
    )
    page = path.read_text()
    made = Page(page)
    assert made.open == []
    assert "<script" not in page
    assert not re.search(r"(src|href)=\"(?!#)", page)
    assert "prefers-color-scheme: dark" in page
    assert ("h2", "prompt, 2 tokens") in made.texts
    assert ("h2", "token 1") in made.texts
    assert any(tag == "pre" and "self.in_qkv(g, cur)" in text for tag, text in made.texts)
    assert ("b", "14 linear_attn_qkv_mixed-0") in made.texts


def test_recording_ends(tmp_path: Path) -> None:
    create, trace = Tensor.__init__, sys.gettrace()
    with pytest.raises(ZeroDivisionError), CallRecorder().record():
        assert Tensor.__init__ is not create
        _ = 1 // 0
    assert Tensor.__init__ is create
    assert sys.gettrace() is trace
