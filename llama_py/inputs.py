"""Graph inputs: leafs whose values are set before each run, and whether a built graph still fits
(llama-graph.h).

Each input knows its tensors, fills them from a ubatch (`set_input`), and says whether the tensors
it made would be the same for other parameters (`can_reuse`); if so it takes over their memory
context.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ggml_py.backend import set_tensor
from ggml_py.graph import Graph
from ggml_py.ops import view
from ggml_py.tensor import FLAG_INPUT, FLAG_OUTPUT, Tensor
from ggml_py.types import F16, F32, I32, GGMLType
from llama_py.batch import UBatch
from llama_py.cparams import CParams
from llama_py.hparams import HParams

if TYPE_CHECKING:
    from llama_py.control_vector import ControlVector

GraphType = Literal["decoder", "decoder_mtp"]


@dataclass(frozen=True, slots=True)
class GraphParams:
    """All that a graph is built from besides the weights (llm_graph_params).

    mctx       the memory's context for this ubatch: of the kind the model's memory is
    n_outputs  tokens of the ubatch whose logits are wanted
    gtype      the trunk, or the NextN draft graph
    cvec       what is added to the layers' results
    """

    hparams: HParams
    cparams: CParams
    ubatch: UBatch
    mctx: Any
    n_outputs: int
    gtype: GraphType = "decoder"
    cvec: ControlVector | None = None

    def allow_reuse(self, other: GraphParams) -> bool:
        """Whether graphs of both would have the same nodes, as far as the inputs do not decide."""
        return (
            same_shape(self.ubatch, other.ubatch)
            and self.n_outputs == other.n_outputs
            and self.gtype == other.gtype
            and self.cvec is other.cvec
            and self.cparams == other.cparams
            and self.hparams is other.hparams
        )


def same_shape(a: UBatch, b: UBatch) -> bool:
    """Whether two ubatches make the same graph: sizes, kind, and with equal_seqs the sequences."""
    return (
        a.equal_seqs == b.equal_seqs
        and a.n_tokens == b.n_tokens
        and a.n_seq_tokens == b.n_seq_tokens
        and a.n_seqs == b.n_seqs
        and a.n_seqs_unq == b.n_seqs_unq
        and (a.token is None) == (b.token is None)
        and (a.embd is None) == (b.embd is None)
        and (not a.equal_seqs or a.seq_id_unq == b.seq_id_unq)
    )


class GraphInput(Protocol):
    """What a graph asks of each of its inputs."""

    def set_input(self, ubatch: UBatch) -> None:
        """Write the values for this ubatch into the tensors."""

    def can_reuse(self, params: GraphParams) -> bool:
        """Whether the tensors would be the same for params; binds to their memory context."""


Input = TypeVar("Input", bound=GraphInput)


class GraphResult:
    """A built graph with its inputs and the tensors that are read afterwards (llm_graph_result).

    t_logits   [n_vocab, n_outputs]
    t_embd     [n_embd, n_outputs] what the head is applied to
    t_h_nextn  [n_embd, n_tokens or n_outputs] what seeds the NextN layer, where there is one
    in_layer   nodes that are to run where this layer is, so that its device does not change early
    on_host    nodes that are to run on the host
    fused      nodes that could be other ones, by the field of CParams that decides
    """

    def __init__(self, params: GraphParams) -> None:
        self.params = params
        self.graph = Graph()
        self.inputs: list[GraphInput] = []
        self.t_logits: Tensor | None = None
        self.t_embd: Tensor | None = None
        self.t_h_nextn: Tensor | None = None
        self.in_layer: list[tuple[Tensor, int]] = []
        self.on_host: list[Tensor] = []
        self.fused: defaultdict[str, list[Tensor]] = defaultdict(list)

    def add_input(self, inp: Input) -> Input:
        self.inputs.append(inp)
        return inp

    def set_outputs(self) -> None:
        """Keep what is read after the run from being overwritten during it."""
        for t in (self.t_logits, self.t_embd, self.t_h_nextn):
            if t is not None:
                t.flags |= FLAG_OUTPUT

    def set_inputs(self, ubatch: UBatch) -> None:
        for inp in self.inputs:
            inp.set_input(ubatch)

    def can_reuse(self, params: GraphParams) -> bool:
        """Whether this graph serves for params too; if so its inputs are bound to their memory."""
        return self.params.allow_reuse(params) and all(
            [inp.can_reuse(params) for inp in self.inputs]
        )


def new_input(name: str, type: GGMLType, *ne: int) -> Tensor:
    """A leaf that the caller fills before each run."""
    t = Tensor(type, ne, name=name)
    t.flags |= FLAG_INPUT
    return t


def _write(t: Tensor, values: npt.NDArray[Any]) -> None:
    # A leaf that no node reads has no memory: there is nothing to set.
    if t.buffer is not None:
        set_tensor(t, values)


class InputEmbd:
    """Token ids, and the embeddings that may come in their place (llm_graph_input_embd)."""

    def __init__(self, n_embd: int, n_tokens: int) -> None:
        self.tokens = new_input("inp_tokens", I32, n_tokens)
        self.embd = new_input("inp_embd", F32, n_embd, n_tokens)

    def set_input(self, ubatch: UBatch) -> None:
        if ubatch.token is not None:
            _write(self.tokens, ubatch.token)
        if ubatch.embd is not None:
            _write(self.embd, ubatch.embd)

    def can_reuse(self, params: GraphParams) -> bool:
        return self.tokens.ne[0] == params.ubatch.n_tokens


class InputEmbdH:
    """Token ids, each with the hidden state before it, for a draft graph (llm_graph_input_embd_h).

    tokens  I32 [n_tokens]; embd F32 [n_embd, n_tokens] in their place; h F32 [n_embd, n_tokens]
    """

    def __init__(self, n_embd: int, n_tokens: int) -> None:
        self.tokens = new_input("", I32, n_tokens)
        self.embd = new_input("", F32, n_embd, n_tokens)
        self.h = new_input("mtp_h_input", F32, n_embd, n_tokens)

    def set_input(self, ubatch: UBatch) -> None:
        if ubatch.token is not None:
            _write(self.tokens, ubatch.token)
        if ubatch.embd is not None:
            _write(self.embd, ubatch.embd)
            _write(self.h, ubatch.embd)

    def can_reuse(self, params: GraphParams) -> bool:
        return self.h.ne[1] == params.ubatch.n_tokens


class InputPos:
    """Positions, section by section when RoPE has several axes (llm_graph_input_pos)."""

    def __init__(self, n_pos_per_embd: int, n_tokens: int) -> None:
        self.n_pos = n_pos_per_embd
        self.pos = new_input("inp_pos", I32, n_tokens * n_pos_per_embd)

    def set_input(self, ubatch: UBatch) -> None:
        pos = ubatch.pos
        if ubatch.token is not None and self.n_pos == 4:
            pos = pos[: ubatch.n_tokens]  # text: time, row and column are the same, no fourth axis
            pos = np.concatenate((pos, pos, pos, np.zeros_like(pos)))
        _write(self.pos, pos)

    def can_reuse(self, params: GraphParams) -> bool:
        return self.pos.ne[0] == params.ubatch.n_tokens * self.n_pos


class InputAttnTemp:
    """A factor on the queries that grows slowly with the position (llm_graph_input_attn_temp).

    1 + scale * ln(1 + floor(pos / length)); attn_scale F32 [1, 1, n_tokens]
    """

    def __init__(self, length: int, scale: float, n_tokens: int) -> None:
        self.length = length
        self.scale = scale
        self.attn_scale = new_input("inp_attn_scale", F32, 1, 1, n_tokens)

    def set_input(self, ubatch: UBatch) -> None:
        steps = np.floor(ubatch.pos[: ubatch.n_tokens] / self.length)
        _write(self.attn_scale, (np.log(steps + 1) * self.scale + 1).astype(np.float32))

    def can_reuse(self, params: GraphParams) -> bool:
        return self.attn_scale.ne[2] == params.ubatch.n_tokens


class InputOutIds:
    """Which tokens of the ubatch are outputs (llm_graph_input_out_ids)."""

    def __init__(self, n_outputs: int) -> None:
        self.out_ids = new_input("out_ids", I32, n_outputs)

    def set_input(self, ubatch: UBatch) -> None:
        n_outputs = self.out_ids.ne[0]
        every = n_outputs == ubatch.n_tokens
        ids = np.arange(n_outputs) if every else np.flatnonzero(ubatch.output)
        _write(self.out_ids, ids.astype(np.int32))

    def can_reuse(self, params: GraphParams) -> bool:
        return self.out_ids.ne[0] == params.n_outputs


class KVContext(Protocol):
    """What graphs ask of a key/value cache for one ubatch (llama_kv_cache_context)."""

    def get_n_kv(self) -> int: ...
    def get_k(self, il: int) -> Tensor: ...
    def get_v(self, il: int) -> Tensor: ...
    def cpy_k(self, k_cur: Tensor, k_idxs: Tensor, il: int) -> Tensor: ...
    def cpy_v(self, v_cur: Tensor, v_idxs: Tensor, il: int) -> Tensor: ...
    def build_input_k_idxs(self, ubatch: UBatch) -> Tensor: ...
    def build_input_v_idxs(self, ubatch: UBatch) -> Tensor: ...
    def build_input_k_rot(self) -> Tensor | None: ...
    def build_input_v_rot(self) -> Tensor | None: ...
    def set_input_k_idxs(self, dst: Tensor, ubatch: UBatch) -> None: ...
    def set_input_v_idxs(self, dst: Tensor, ubatch: UBatch) -> None: ...
    def set_input_kq_mask(self, dst: Tensor, ubatch: UBatch, causal: bool) -> None: ...
    def set_input_k_rot(self, dst: Tensor) -> None: ...
    def set_input_v_rot(self, dst: Tensor) -> None: ...


class RecurrentContext(Protocol):
    """What graphs ask of a recurrent memory for one ubatch (llama_memory_recurrent_context)."""

    def get_n_rs(self) -> int: ...
    def get_head(self) -> int: ...
    def get_rs_z(self) -> int: ...
    def get_size(self) -> int: ...
    def get_r_l(self, il: int) -> Tensor: ...
    def get_s_l(self, il: int) -> Tensor: ...
    def s_copy(self, i: int) -> int: ...


class InputAttnK:
    """Where keys are written, and the mask of what is seen (llm_graph_input_attn_k)."""

    def __init__(self, params: GraphParams, mctx: KVContext) -> None:
        self.mctx = mctx
        self.causal = params.cparams.causal_attn
        self.k_idxs = mctx.build_input_k_idxs(params.ubatch)  # I64 [n_tokens]
        mask_type = F16 if params.cparams.flash_attn else F32  # flash attention takes no other
        self.kq_mask = new_input("attn_inp_kq_mask", mask_type, *_mask_ne(params, mctx))

    def set_input(self, ubatch: UBatch) -> None:
        if self.kq_mask.buffer is not None:  # else no layer attends
            self.mctx.set_input_k_idxs(self.k_idxs, ubatch)
            self.mctx.set_input_kq_mask(self.kq_mask, ubatch, self.causal)

    def can_reuse(self, params: GraphParams) -> bool:
        return self.rebind(params, params.mctx)

    def rebind(self, params: GraphParams, mctx: KVContext) -> bool:
        """Take over mctx; whether the tensors fit it."""
        self.mctx = mctx
        fits = self.k_idxs.ne[0] == params.ubatch.n_tokens
        return fits and self.kq_mask.ne == _mask_ne(params, mctx)


class InputAttnKV(InputAttnK):
    """And where values are written (llm_graph_input_attn_kv)."""

    def __init__(self, params: GraphParams, mctx: KVContext) -> None:
        super().__init__(params, mctx)
        self.v_idxs = mctx.build_input_v_idxs(params.ubatch)  # I64 [n_tokens], or one per element
        self.k_rot = mctx.build_input_k_rot()  # rotations of heads, for quantized caches
        self.v_rot = mctx.build_input_v_rot()

    def set_input(self, ubatch: UBatch) -> None:
        super().set_input(ubatch)
        if self.kq_mask.buffer is None:
            return
        self.mctx.set_input_v_idxs(self.v_idxs, ubatch)
        if self.k_rot is not None:
            self.mctx.set_input_k_rot(self.k_rot)
        if self.v_rot is not None:
            self.mctx.set_input_v_rot(self.v_rot)


class InputAttnKVISWA:
    """The same twice: for layers that see all tokens, and for those with a window
    (llm_graph_input_attn_kv_iswa)."""

    def __init__(self, params: GraphParams, mctx: Any) -> None:
        self.base = InputAttnKV(params, mctx.get_base())
        self.swa = InputAttnKV(params, mctx.get_swa())

    def set_input(self, ubatch: UBatch) -> None:
        self.base.set_input(ubatch)
        self.swa.set_input(ubatch)

    def can_reuse(self, params: GraphParams) -> bool:
        fits = self.base.rebind(params, params.mctx.get_base())
        return self.swa.rebind(params, params.mctx.get_swa()) and fits


def _mask_ne(params: GraphParams, mctx: KVContext) -> tuple[int, int, int, int]:
    """[n_kv, tokens of a stream, 1, n_stream]; sequences with a cache of their own are streams."""
    n_stream = 1 if params.cparams.kv_unified else params.ubatch.n_seqs_unq
    return (mctx.get_n_kv(), params.ubatch.n_tokens // n_stream, 1, n_stream)


class InputRS:
    """Which recurrent states to start from (llm_graph_input_rs).

    s_copy  I32 [n_rs] the cell each state comes from: first the states of the ubatch's n_seqs
            sequences (s_copy_main), then those that only move (s_copy_extra)
    """

    def __init__(self, params: GraphParams, mctx: RecurrentContext) -> None:
        n_rs, n_seqs = mctx.get_n_rs(), params.ubatch.n_seqs
        self.mctx = mctx
        self.head, self.rs_z = mctx.get_head(), mctx.get_rs_z()  # offsets in the graph's views
        self.s_copy = new_input("rs_s_copy", I32, n_rs)
        self.s_copy_main = view(self.s_copy, (n_seqs,))
        self.s_copy_extra = view(self.s_copy, (n_rs - n_seqs,), offset=n_seqs)

    def set_input(self, ubatch: UBatch) -> None:
        n_rs = self.mctx.get_n_rs()
        _write(self.s_copy, np.array([self.mctx.s_copy(i) for i in range(n_rs)], np.int32))

    def can_reuse(self, params: GraphParams) -> bool:
        return self.rebind(params, params.mctx)

    def rebind(self, params: GraphParams, mctx: RecurrentContext) -> bool:
        """Take over mctx; whether the tensors and the graph's views fit it."""
        self.mctx = mctx
        return (
            self.s_copy.ne[0] == mctx.get_n_rs()
            and self.s_copy_main.ne[0] == params.ubatch.n_seqs
            and self.head == mctx.get_head()
            and self.rs_z == mctx.get_rs_z()
        )


AttnInput = TypeVar("AttnInput", bound=InputAttnK)


class InputMemHybrid(Generic[AttnInput]):
    """Inputs of a model that has both kinds of memory (llm_graph_input_mem_hybrid)."""

    def __init__(self, attn: AttnInput, recr: InputRS) -> None:
        self.attn = attn
        self.recr = recr

    def set_input(self, ubatch: UBatch) -> None:
        self.attn.set_input(ubatch)
        self.recr.set_input(ubatch)

    def can_reuse(self, params: GraphParams) -> bool:
        fits = self.attn.rebind(params, params.mctx.get_attn())
        return self.recr.rebind(params, params.mctx.get_recr()) and fits
