"""What graphs are made for a batch, and when one serves again."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ggml_py.backend import HostBuffer, aligned_bytes, get_tensor
from ggml_py.backend.null import NullDevice
from ggml_py.errors import ContextError, UnknownArchitecture
from ggml_py.graph import Graph
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import FLAG_OUTPUT, Tensor
from llama_py.batch import Batch
from llama_py.graph.inputs.attention import InputAttnKV
from llama_py.graph.inputs.recurrent import InputRS
from llama_py.graph.inputs.tokens import InputOutIds, InputPos
from llama_py.graph.params import GraphParams
from llama_py.graph.result import GraphResult
from llama_py.hparams.cparams import CParams
from llama_py.hparams.hparams import AXES
from llama_py.memory.recurrent import RecurrentContext
from llama_py.model import Model
from llama_py.models import architecture
from llama_py.params import ContextParams
from tests.support.graph_models import CONTINUING, load, memory_for, params_for, run


def build_one(model: Model, batch: Batch, cparams: CParams) -> GraphResult:
    """The graph of a batch's first ubatch in an empty memory."""
    params = next(params_for(model, memory_for(model, cparams), batch, cparams))
    return model.architecture.graph(params)


def drafter(arch: str = "qwen35moe") -> Model:
    """A tiny model with its NextN layer."""
    return load(f"{arch}-mtp", load_mtp=True)


def draft_params(model: Model, n_tokens: int) -> GraphParams:
    cparams = CParams.resolve(model.hparams, ContextParams(n_ctx=256))
    memory = memory_for(model, cparams, mtp=True)
    hidden = np.zeros((n_tokens, model.hparams.n_embd), np.float32)
    batch = Batch(tokens=[1] * n_tokens, embd=hidden)
    params = next(params_for(model, memory, batch, cparams))
    return replace(params, gtype="decoder_mtp")


def test_draft_graph_needs_its_layer() -> None:
    model = load("qwen35moe-moe", load_mtp=True)
    with pytest.raises(ContextError, match="but the model has 0"):
        model.architecture.graph(draft_params(drafter(), 2))
    with pytest.raises(ContextError, match="have no NextN layers"):
        load("llama-dense").architecture.graph(draft_params(drafter(), 2))


def test_masked_nextn_selects_rows_before_the_last_feed_forward() -> None:
    model = load("qwen35moe-moe")
    cparams = CParams.resolve(model.hparams, ContextParams(n_ctx=256))
    cparams = replace(cparams, embeddings_nextn=True, embeddings_nextn_masked=True)
    result = build_one(model, Batch([1, 2, 3]), cparams)
    assert result.t_h_nextn is result.t_embd
    assert result.graph.find("attn_residual-1").ne[1] == 1  # only the last token goes on
    assert result.graph.find("attn_pregate-1").ne[1] == 3


@pytest.mark.parametrize("name", CONTINUING)
def test_no_outputs_at_all_can_be_planned(name: str) -> None:
    model = load(name)
    cparams = CParams.resolve(model.hparams, ContextParams(n_ctx=256))
    result = build_one(model, Batch([1, 2, 3], outputs=[False] * 3), cparams)
    assert result.t_logits is not None
    rows = 3 if name.startswith("cogvlm") else 0  # there all go through the head
    assert result.t_logits.ne == (model.hparams.n_vocab, rows, 1, 1)
    Scheduler([NullDevice()]).plan(result.graph).run()


@pytest.mark.parametrize("unified", [False, True])
@pytest.mark.parametrize("name", CONTINUING)
def test_two_sequences_have_streams_unless_unified(name: str, unified: bool) -> None:
    model = load(name)
    cparams = CParams.resolve(
        model.hparams, ContextParams(n_ctx=512, n_seq_max=2, kv_unified=unified)
    )
    batch = Batch([1, 2, 3, 4], seq_ids=[(0,), (0,), (1,), (1,)], outputs=[True] * 4)
    res = build_one(model, batch, cparams)
    masks = {t.ne for t in res.graph.leafs if t.name == "attn_inp_kq_mask"}
    caches = memory_for(model, cparams).caches
    if caches:  # some models' sequences are always apart
        apart = not unified or any(kv.n_stream > 1 for kv in caches.values())
        assert apart == (not unified or name.startswith("deepseek4"))
        assert masks == {(256, 2, 1, 2) if apart else (256, 4, 1, 1)}
    assert res.t_logits is not None and res.t_logits.ne[1] == 4


class Decoding:
    """Parameters of one batch after the other, as a context would have them."""

    def __init__(self, name: str) -> None:
        self.model = load(name)
        self.cparams = CParams.resolve(self.model.hparams, ContextParams(n_ctx=1024, n_seq_max=2))
        self.memory = memory_for(self.model, self.cparams)

    def params(self, batch: Batch) -> GraphParams:
        return next(params_for(self.model, self.memory, batch, self.cparams))

    def build(self, batch: Batch) -> GraphResult:
        return self.model.architecture.graph(self.params(batch))

    def fits(self, result: GraphResult, batch: Batch) -> bool:
        return result.can_reuse(self.params(batch))


def writes(graph: Graph, cache: str) -> list[Tensor]:
    """The copies into a cache, in order, that copy anything."""
    nodes = (t for t in graph.nodes if t.op == "CPY" and not t.is_empty())
    return [t for t in nodes if t.view_src is not None and t.view_src.name == cache]


@pytest.mark.parametrize(("n_tokens", "starts"), [(4, [2, 3, 4]), (1, [0, 0, 1])])
def test_states_are_read_from_and_written_to_their_cells(n_tokens: int, starts: list[int]) -> None:
    d = Decoding("qwen35moe-moe")
    d.cparams = CParams.resolve(d.model.hparams, ContextParams(n_ctx=1024, n_seq_max=3, n_rs_seq=2))
    d.memory = memory_for(d.model, d.cparams)
    d.build(Batch([1]))
    graph = d.build(Batch([1] * n_tokens, seq_ids=[(1,)] * n_tokens)).graph  # cell 1 of 3, new
    row_r, row_s = 4 * d.model.hparams.n_embd_r, 4 * d.model.hparams.n_embd_s
    conv = writes(graph, "cache_r_l0")
    assert [t.view_offs // row_r for t in conv] == [7, 4, 1]  # two tokens back, one, now
    assert [t.src[0].view_offs // 4 for t in conv if t.src[0]] == starts
    (state,) = writes(graph, "cache_s_l0")
    assert (state.view_offs, state.nb[2]) == (row_s, 3 * row_s)
    assert state.ne[2] == min(n_tokens, 3)
    cleared = [t for t in graph.nodes if t.op == "SCALE" and t.view_src is not None]
    assert [t.view_offs for t in cleared] == [row_r, row_s]


def test_without_snapshots_one_state_is_written() -> None:
    d = Decoding("qwen35moe-moe")
    d.build(Batch([1]))
    graph = d.build(Batch([1, 1], seq_ids=[(1,), (1,)])).graph
    for cache, size in (("r", d.model.hparams.n_embd_r), ("s", d.model.hparams.n_embd_s)):
        (written,) = writes(graph, f"cache_{cache}_l0")
        assert (written.ne, written.view_offs) == ((size, 1, 1, 1), 4 * size)


class TestReuse:
    """A graph serves for the next batch exactly if that would build the same one."""

    def test_next_token_fits_and_binds_its_memory(self) -> None:
        d = Decoding("qwen35moe-moe")
        d.build(Batch([1, 2]))
        result = d.build(Batch([3]))
        params = d.params(Batch([4]))
        assert result.can_reuse(params)
        bound = {type(inp): getattr(inp, "mctx", None) for inp in result.inputs}
        assert bound[InputAttnKV] is params.mctx.kv("kv")
        assert bound[InputRS] is params.mctx.states(RecurrentContext)

    def test_not_after_a_graph_that_clears_a_state(self) -> None:
        d = Decoding("qwen35moe-moe")
        assert not d.fits(d.build(Batch([1])), Batch([2]))

    def test_not_with_another_number_of_tokens_or_outputs(self) -> None:
        d = Decoding("llama-dense")
        result = d.build(Batch([1, 2]))
        assert not d.fits(result, Batch([1]))
        assert not d.fits(result, Batch([1, 2], outputs=[True, True]))
        assert d.fits(result, Batch([1, 2], outputs=[True, False]))

    def test_not_for_another_sequence(self) -> None:
        d = Decoding("llama-dense")
        result = d.build(Batch([1]))
        assert d.fits(result, Batch([1]))
        assert not d.fits(result, Batch([1], seq_ids=[(1,)]))

    @pytest.mark.parametrize("change", ["get_n_rs", "get_head", "get_rs_z"])
    def test_not_when_states_are_in_other_cells(self, change: str) -> None:
        params = Decoding("qwen35moe-moe").params(Batch([1]))
        recr = params.mctx.states(RecurrentContext)
        inp = InputRS(params)
        assert inp.can_reuse(params)
        moved = {name: getattr(recr, name) for name in ("get_n_rs", "get_head", "get_rs_z")}
        moved[change] = lambda: getattr(recr, change)() + 1
        mctx: Any = SimpleNamespace(states=lambda kind: SimpleNamespace(**moved))
        assert not inp.can_reuse(replace(params, mctx=mctx))

    def test_not_when_more_cells_are_seen(self) -> None:
        d = Decoding("llama-dense")
        d.build(Batch([1] * 254))
        result = d.build(Batch([1]))
        assert d.fits(result, Batch([1]))  # 256 of 256 cells
        assert not d.fits(result, Batch([1]))  # 257 of 512

    def test_not_for_the_draft_graph(self) -> None:
        model = drafter()
        params = draft_params(model, 2)
        result = model.architecture.graph(params)
        assert result.can_reuse(params)
        assert not result.can_reuse(replace(params, gtype="decoder"))


class TestInputs:
    def test_positions_of_text_fill_three_of_four_axes(self) -> None:
        inp = InputPos(4, 2)
        self.set(inp, inp.pos, Batch([1, 2], pos=[5, 6]))
        assert get_tensor(inp.pos).ravel().tolist() == [5, 6, 5, 6, 5, 6, 0, 0]

    def test_axes_of_sections_in_embeddings_only(self) -> None:
        pos = np.arange(8, dtype=np.int32).reshape(4, 2)
        inp = InputPos(4, 2, axes=AXES["zyxt"])
        embeddings = Batch(embd=np.zeros((2, 64), np.float32), pos=pos)
        self.set(inp, inp.pos, embeddings)
        assert get_tensor(inp.pos).ravel().tolist() == [6, 7, 2, 3, 4, 5, 0, 1]
        self.set(inp, inp.pos, Batch([1, 2], pos=[5, 6]))
        assert get_tensor(inp.pos).ravel().tolist() == [5, 6, 5, 6, 5, 6, 0, 0]

    def test_output_ids(self) -> None:
        inp = InputOutIds(2)
        self.set(inp, inp.out_ids, Batch([1, 2, 3], outputs=[True, False, True]))
        assert get_tensor(inp.out_ids).ravel().tolist() == [0, 2]

    @staticmethod
    def set(inp: InputPos | InputOutIds, tensor: Tensor, batch: Batch) -> None:
        tensor.buffer = HostBuffer(aligned_bytes(tensor.nbytes))
        inp.set_input(Decoding("qwen35moe-moe").params(batch).ubatch)

    def test_what_no_node_reads_is_not_set(self) -> None:
        model = drafter()
        params = draft_params(model, 2)
        result = model.architecture.graph(params)
        Scheduler([NullDevice()]).plan(result.graph)
        embd = result.inputs[0].embd  # type: ignore[attr-defined]
        assert embd.buffer is None
        result.set_inputs(params.ubatch)


def test_what_is_read_after_the_run_is_an_output() -> None:
    result = run(load("qwen35moe-moe"), 2)[0]
    flagged = [t for t in result.graph.nodes if t.flags & FLAG_OUTPUT]
    assert flagged == [result.t_h_nextn, result.t_embd, result.t_logits]


def test_unknown_architecture_tells_the_nearest() -> None:
    with pytest.raises(UnknownArchitecture, match=r"'qwen35mo'.*\(\d+ are, nearest: qwen35moe"):
        architecture("qwen35mo")
    for name in ("", "_decoder", "__init__", "../llama", "os"):
        with pytest.raises(UnknownArchitecture):
            architecture(name)
