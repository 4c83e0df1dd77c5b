"""What a graph is built from, and what comes of it (llama-graph.h)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from ggml_py.errors import ContextError
from ggml_py.graph import Graph
from ggml_py.tensor import FLAG_OUTPUT, Tensor
from llama_py.batch import UBatch
from llama_py.cparams import CParams
from llama_py.graph.cross import Cross
from llama_py.graph.inputs.base import GraphInput
from llama_py.hparams import HParams
from llama_py.memory.group import GroupContext

if TYPE_CHECKING:
    from llama_py.control_vector import ControlVector

GraphType = Literal["decoder", "decoder_mtp", "encoder"]


@dataclass(frozen=True, slots=True)
class GraphParams:
    """All that a graph is built from besides the weights (llm_graph_params).

    mctx       the memory's context for this ubatch
    n_outputs  tokens of the ubatch whose logits are wanted
    gtype      the trunk, the NextN draft graph, or the encoder of an encoder-decoder
    cvec       what is added to the layers' results
    encoded    what the encoder made, for the decoder of an encoder-decoder
    """

    hparams: HParams
    cparams: CParams
    ubatch: UBatch
    mctx: GroupContext
    n_outputs: int
    gtype: GraphType = "decoder"
    cvec: ControlVector | None = None
    encoded: Cross | None = None

    @property
    def cross(self) -> Cross:
        """What the encoder made; ContextError where nothing was encoded."""
        if self.encoded is None:
            raise ContextError("this model decodes what it has encoded; call encode first")
        return self.encoded

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


Input = TypeVar("Input", bound=GraphInput)


class GraphResult:
    """A built graph with its inputs and the tensors that are read afterwards (llm_graph_result).

    t_logits   [n_vocab, n_outputs]
    t_embd     [n_embd, n_outputs] what the head is applied to
    t_embd_pooled  [n_embd, n_seqs] one row a sequence, or with pooling "none" of each output
    t_h_nextn  [n_embd, n_tokens or n_outputs] what seeds the NextN layer, where there is one
    in_layer   nodes that are to run where this layer is, so that its device does not change early
    on_host    nodes that are to run on the host
    fused      nodes that could be other ones, by the form that decides (see llama_py.forms)
    """

    def __init__(self, params: GraphParams) -> None:
        self.params = params
        self.graph = Graph()
        self.inputs: list[GraphInput] = []
        self.t_logits: Tensor | None = None
        self.t_embd: Tensor | None = None
        self.t_embd_pooled: Tensor | None = None
        self.t_h_nextn: Tensor | None = None
        self.in_layer: list[tuple[Tensor, int]] = []
        self.on_host: list[Tensor] = []
        self.fused: defaultdict[str, list[Tensor]] = defaultdict(list)

    def add_input(self, inp: Input) -> Input:
        self.inputs.append(inp)
        return inp

    def set_outputs(self) -> None:
        """Keep what is read after the run from being overwritten during it."""
        for t in (self.t_logits, self.t_embd, self.t_embd_pooled, self.t_h_nextn):
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
