"""Parameters that a graph is built from (llama-graph.h)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ggml_py._moved import Former
from ggml_py.errors import ContextError
from ggml_py.tensor import Tensor
from llama_py.adapters.control_vector import PlacedDirections
from llama_py.adapters.lora import NO_LORAS, Loras
from llama_py.batch import UBatch
from llama_py.graph.borrowed import TargetTensors
from llama_py.graph.cross import Cross
from llama_py.hparams import HParams
from llama_py.hparams.cparams import CParams
from llama_py.memory.group_context import GroupContext

GraphType = Literal["decoder", "decoder_mtp", "encoder"]


@dataclass(frozen=True, slots=True)
class GraphParams:
    """Parameters that determine a graph, without the weights (llm_graph_params).

    mctx       the memory's context for this ubatch
    n_outputs  number of the ubatch's tokens with logits
    gtype      the trunk, the NextN draft graph, or the encoder of an encoder-decoder
    cvec       control vector, added to the layers' results
    encoded    encoder result, for the decoder of an encoder-decoder
    loras      adapters that are added to weights
    head       (builder, [n_embd, n]) -> logits, if it replaces the model's LM head
    lent       tensors of the target model, for a model that only drafts
    """

    hparams: HParams
    cparams: CParams
    ubatch: UBatch
    mctx: GroupContext
    n_outputs: int
    gtype: GraphType = "decoder"
    cvec: PlacedDirections | None = None
    encoded: Cross | None = None
    loras: Loras = NO_LORAS
    head: Callable[..., Tensor] | None = None
    lent: TargetTensors | None = None

    @property
    def cross(self) -> Cross:
        """Result of the encoder; ContextError if it is missing."""
        if self.encoded is None:
            raise ContextError(
                "the decoder of this model needs an encoded prompt; call encode first"
            )
        return self.encoded

    @property
    def target_tensors(self) -> TargetTensors:
        """Tensors of the target model; ContextError if they are missing."""
        if self.lent is None:
            raise ContextError(
                "this model is a draft model; pass it as model_draft (-md) of its target model"
            )
        return self.lent

    def allow_reuse(self, other: GraphParams) -> bool:
        """Return True if both graphs would have the same nodes, apart from their inputs."""
        return (
            same_shape(self.ubatch, other.ubatch)
            and self.n_outputs == other.n_outputs
            and self.gtype == other.gtype
            and self.cvec is other.cvec
            and self.loras == other.loras
            and self.head is other.head
            and self.lent is other.lent
            and self.cparams == other.cparams
            and self.hparams is other.hparams
        )

    borrowed = Former("target_tensors")


def same_shape(a: UBatch, b: UBatch) -> bool:
    """Return True if two ubatches make the same graph: sizes, type, equal_seqs' streams."""
    return (
        a.equal_seqs == b.equal_seqs
        and a.n_tokens == b.n_tokens
        and a.n_seq_tokens == b.n_seq_tokens
        and a.n_seqs == b.n_seqs
        and a.n_seqs_unq == b.n_seqs_unq
        and (a.token is None) == (b.token is None)
        and (a.embd is None) == (b.embd is None)
        and n_mixed_tokens(a) == n_mixed_tokens(b)
        and (not a.equal_seqs or (a.streams or a.seq_id_unq) == (b.streams or b.seq_id_unq))
    )


def n_mixed_tokens(ubatch: UBatch) -> int:
    """Return the number of tokens of a mixed ubatch; 0 for any other."""
    if ubatch.is_embd is None:
        return 0
    return ubatch.n_tokens - int(np.count_nonzero(ubatch.is_embd))
