"""Graphs are llama.cpp's, node for node: names, ops, shapes, strides, offsets, flags, parameters."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from graph_models import (
    DATA,
    GOLDEN,
    file_of,
    kv_cache,
    load,
    memory_for,
    params_for,
    read_nodes,
    recorded,
    run,
)

from ggml_py.backend import get_tensor
from ggml_py.dump import diff, records
from ggml_py.errors import ContextError, UnknownArchitecture
from ggml_py.graph import Graph
from ggml_py.null import NullDevice
from ggml_py.sched import Scheduler
from ggml_py.tensor import FLAG_OUTPUT
from llama_py.batch import Batch
from llama_py.cparams import make_cparams
from llama_py.gguf_file import GGUFFile
from llama_py.inputs import GraphParams, GraphResult, InputOutIds, InputPos
from llama_py.models import known_architectures, load_model, model_class
from llama_py.models._base import Model

RECORDED = ["llama-dense", "llama-moe", "qwen3-dense", "qwen35moe-moe"]


def nodes_of(results: list[GraphResult]) -> list[dict]:
    return [record for dec, r in enumerate(results) for record in records(r.graph, dec)]


@pytest.mark.parametrize("fa", ["on", "off"])
@pytest.mark.parametrize("name", RECORDED)
def test_nodes_equal_the_recorded_ones(name: str, fa: str) -> None:
    ours = nodes_of(run(load(name), 2, flash_attn=fa == "on"))
    assert diff(ours, read_nodes(DATA / f"{name}.fa-{fa}.jsonl.gz")) is None


def reference_runs() -> list[tuple[str, str, str]]:
    """(node list, model, kind) of the whole reference data, for the architectures we have."""
    cases = []
    for path in sorted(GOLDEN.glob("nodes/*.jsonl.gz")):
        name, kind = path.name.removesuffix(".jsonl.gz").rsplit(".", 1)
        folder = "shapes" if kind in ("fa-on", "fa-off") else "models"
        model = GOLDEN / folder / f"{name}.gguf"
        if not model.exists() and folder == "models":
            model = GOLDEN / "shapes" / f"{name}.gguf"
        if GGUFFile.open(model).architecture in known_architectures():
            cases.append((path.name, f"{model.parent.name}/{model.name}", kind))
    return cases


@pytest.mark.parametrize(("nodes", "model", "kind"), reference_runs())
def test_nodes_equal_all_the_reference_data(nodes: str, model: str, kind: str) -> None:
    loaded = load_model(GGUFFile.open(GOLDEN / model), NullDevice())
    n_prompt = 2 if kind.startswith("fa") else 120
    ours = run(loaded, n_prompt, flash_attn=kind != "fa-off", fused=kind != "nogdn")
    assert diff(nodes_of(ours), read_nodes(GOLDEN / "nodes" / nodes)) is None


def eval_callback_lines(graph: Graph) -> list[str]:
    """Nodes as llama-eval-callback prints them: two sources, no strides."""
    lines = []
    for node in graph.nodes:
        src = [f"{s.name}{{{', '.join(map(str, s.ne))}}}" for s in node.src[:2] if s is not None]
        second = src[1] if len(src) > 1 else ""
        ne = ", ".join(map(str, node.ne))
        head = f"{node.name} = ({node.type}) {node.op}"
        lines.append(f"{head}({src[0]}, {second}}}) = {{{ne}}}".strip())
    return lines


def recorded_lines(name: str) -> list[str]:
    with gzip.open(DATA / name, "rt") as file:
        return [re.sub(r"\) +(\w+\()", r") \1", line.strip(), count=1) for line in file]


def with_nextn() -> Model:
    """The recorded qwen35moe with its attention layer once more, as a NextN layer."""
    metadata, shapes = recorded("qwen35moe-moe")
    metadata["qwen35moe.block_count"] = 3
    metadata["qwen35moe.nextn_predict_layers"] = 1
    metadata["qwen35moe.attention.recurrent_layers"] = [1, 0, 0]
    copies = {k.replace("blk.1.", "blk.2."): ne for k, ne in shapes.items() if "blk.1." in k}
    own = {
        "blk.2.nextn.eh_proj.weight": (512, 256),
        "blk.2.nextn.enorm.weight": (256,),
        "blk.2.nextn.hnorm.weight": (256,),
        "blk.2.nextn.shared_head_norm.weight": (256,),
    }
    return load_model(file_of(metadata, shapes | copies | own), NullDevice(), load_mtp=True)


def draft_params(model: Model, n_tokens: int) -> GraphParams:
    cparams = make_cparams(model.hparams, n_ctx=256)
    memory = kv_cache(model, cparams, [model.hparams.n_layer], NullDevice())
    hidden = np.zeros((n_tokens, model.hparams.n_embd), np.float32)
    batch = Batch(tokens=[1] * n_tokens, embd=hidden)
    params = next(params_for(model, memory, batch, cparams))
    return replace(params, gtype="decoder_mtp")


def test_draft_graph_equals_the_recorded_one() -> None:
    model = with_nextn()
    ours = model.build(draft_params(model, 2))
    assert eval_callback_lines(ours.graph) == recorded_lines("qwen35moe-draft.nodes.gz")


def test_trunk_with_snapshots_equals_the_recorded_one() -> None:
    ours = run(with_nextn(), 2, n_rs_seq=3)[0]
    lines = recorded_lines("qwen35moe-trunk-rs3.nodes.gz")
    assert len(lines) == 196
    assert eval_callback_lines(ours.graph) == lines


def test_draft_graph_needs_its_layer() -> None:
    model = load("qwen35moe-moe", load_mtp=True)
    with pytest.raises(ContextError, match="the model has 0"):
        model.build(draft_params(with_nextn(), 2))
    with pytest.raises(ContextError, match="cannot draft"):
        load("llama-dense").build(draft_params(with_nextn(), 2))


def test_masked_nextn_selects_rows_before_the_last_feed_forward() -> None:
    model = load("qwen35moe-moe")
    cparams = make_cparams(model.hparams, n_ctx=256)
    cparams = replace(cparams, embeddings_nextn=True, embeddings_nextn_masked=True)
    params = next(params_for(model, memory_for(model, cparams), Batch([1, 2, 3]), cparams))
    result = model.build(params)
    assert result.t_h_nextn is result.t_embd
    assert result.graph.find("attn_residual-1").ne[1] == 1  # only the last token goes on
    assert result.graph.find("attn_pregate-1").ne[1] == 3


@pytest.mark.parametrize("name", RECORDED)
def test_no_outputs_at_all_can_be_planned(name: str) -> None:
    model = load(name)
    cparams = make_cparams(model.hparams, n_ctx=256)
    batch = Batch([1, 2, 3], outputs=[False] * 3)
    result = model.build(next(params_for(model, memory_for(model, cparams), batch, cparams)))
    assert result.t_logits is not None
    assert result.t_logits.ne == (128, 0, 1, 1)
    Scheduler([NullDevice()]).plan(result.graph).run()


@pytest.mark.parametrize("unified", [False, True])
@pytest.mark.parametrize("name", RECORDED)
def test_two_sequences_have_streams_unless_unified(name: str, unified: bool) -> None:
    model = load(name)
    cparams = make_cparams(model.hparams, n_ctx=512, n_seq_max=2, kv_unified=unified)
    batch = Batch([1, 2, 3, 4], seq_ids=[(0,), (0,), (1,), (1,)], outputs=[True] * 4)
    params = list(params_for(model, memory_for(model, cparams), batch, cparams))
    assert len(params) == 1
    graph = model.build(params[0]).graph
    mask = graph.find("attn_inp_kq_mask")
    assert mask.ne == ((256, 4, 1, 1) if unified else (256, 2, 1, 2))
    assert graph.find("result_output").ne[1] == 4


class TestReuse:
    model = load("qwen35moe-moe")
    cparams = make_cparams(model.hparams, n_ctx=512, n_seq_max=2)

    def built(self, *batches: Batch) -> tuple[GraphResult, list[GraphParams]]:
        """The graph of the first batch; the parameters of those after it."""
        memory = memory_for(self.model, self.cparams)
        params = [
            p for batch in batches for p in params_for(self.model, memory, batch, self.cparams)
        ]
        return self.model.build(params[0]), params[1:]

    def test_next_token_fits_once_the_state_is_not_new(self) -> None:
        prompt, token = Batch([1, 2]), Batch([3])
        result, (first, second) = self.built(prompt, token, token)
        assert not result.can_reuse(first)  # another number of tokens
        result = self.model.build(first)
        assert result.can_reuse(second)
        assert result.inputs[1].attn.mctx is second.mctx.get_attn()  # type: ignore[attr-defined]

    def test_not_when_the_first_graph_clears_a_state(self) -> None:
        result, (second,) = self.built(Batch([1]), Batch([2]))
        assert not result.can_reuse(second)  # rs_z: the first clears its state

    def test_not_with_another_number_of_outputs(self) -> None:
        batches = (Batch([1, 2]), Batch([3, 4]), Batch([3, 4], outputs=[True, True]))
        _, (second, third) = self.built(*batches)
        assert not self.model.build(second).can_reuse(third)

    def test_not_for_another_sequence(self) -> None:
        one, other = Batch([1]), Batch([1], seq_ids=[(1,)])
        _, (second, third) = self.built(one, Batch([2]), other)
        assert not self.model.build(second).can_reuse(third)

    def test_not_when_more_cells_are_seen(self) -> None:
        model = load("llama-dense")
        cparams = make_cparams(model.hparams, n_ctx=512)
        memory = memory_for(model, cparams)
        results, params = [], []
        for batch in (Batch([1] * 254), Batch([1]), Batch([1]), Batch([1])):
            params += params_for(model, memory, batch, cparams)
            results.append(model.build(params[-1]))
        assert results[1].can_reuse(params[2])  # 255 and 256 of 256 cells
        assert not results[1].can_reuse(params[3])  # 257 of 512


class TestInputs:
    def test_positions_of_text_fill_three_of_four_axes(self) -> None:
        inp = InputPos(4, 2)
        self.set(inp, inp.pos, Batch([1, 2], pos=[5, 6]))
        assert get_tensor(inp.pos).ravel().tolist() == [5, 6, 5, 6, 5, 6, 0, 0]

    def test_output_ids(self) -> None:
        inp = InputOutIds(2)
        self.set(inp, inp.out_ids, Batch([1, 2, 3], outputs=[True, False, True]))
        assert get_tensor(inp.out_ids).ravel().tolist() == [0, 2]

    @staticmethod
    def set(inp, tensor, batch: Batch) -> None:
        from ggml_py.backend import HostBuffer, aligned_bytes

        model = load("qwen35moe-moe")
        cparams = make_cparams(model.hparams, n_ctx=256)
        params = next(params_for(model, memory_for(model, cparams), batch, cparams))
        tensor.buffer = HostBuffer(aligned_bytes(tensor.nbytes))
        inp.set_input(params.ubatch)

    def test_what_no_node_reads_is_not_set(self) -> None:
        model = with_nextn()
        params = draft_params(model, 2)
        result = model.build(params)
        Scheduler([NullDevice()]).plan(result.graph)
        embd = result.inputs[0].embd  # type: ignore[attr-defined]
        assert embd.buffer is None
        result.set_inputs(params.ubatch)


def test_what_is_read_after_the_run_is_an_output() -> None:
    result = run(load("qwen35moe-moe"), 2)[0]
    flagged = [t for t in result.graph.nodes if t.flags & FLAG_OUTPUT]
    assert flagged == [result.t_h_nextn, result.t_embd, result.t_logits]


def test_unknown_architecture_lists_the_known_and_the_nearest() -> None:
    with pytest.raises(UnknownArchitecture, match=r"'qwen35mo'.*llama.*nearest: qwen35moe"):
        model_class("qwen35mo")
    for name in ("", "_base", "__init__", "../llama", "os"):
        with pytest.raises(UnknownArchitecture):
            model_class(name)


@pytest.mark.parametrize("arch", known_architectures())
def test_architecture_is_named_in_its_own_file_only(arch: str) -> None:
    assert model_class(arch).arch == arch
    root = Path(__file__).parents[2]
    mentions = [
        path
        for package in ("ggml_py", "llama_py", "backends")
        for path in (root / package).rglob("*.py")
        if re.search(rf"""["']{re.escape(arch)}["']""", path.read_text())
    ]
    own = root / "llama_py" / "models" / f"{arch.replace('-', '_')}.py"
    assert [m for m in mentions if m != own] == []
