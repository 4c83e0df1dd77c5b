"""Layers that read and write several residual streams, the head after them, and a NextN layer that
reads the streams of a token (models/deepseek4.cpp)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from ggml_py.errors import ContextError
from ggml_py.ops import add, concat, repeat_4d, reshape, scale, view
from ggml_py.ops.hyper_connections import STREAMS
from ggml_py.tensor import Tensor
from llama_py.blocks.hyper_connections import HeadConnections, HyperConnections
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.tokens import InputEmbdH
from llama_py.graph.linear import Linear, Norm
from llama_py.hparams import HParams
from llama_py.models.trunks.decoder import Block
from llama_py.weights import Weights


@dataclass(slots=True)
class StreamLayer:
    """Layer with residual streams; drafts: it is a NextN layer."""

    attn_connections: HyperConnections
    attn_norm: Norm
    attention: Block
    ffn_connections: HyperConnections
    ffn_norm: Norm
    feed_forward: Block
    drafts: bool = False

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        """Apply the layer: [n_embd, 4, n_tokens] -> same shape."""
        x, streams = self.attn_connections.read(g, cur, il, "hc_attn_pre")
        x = self.attention(g, self.attn_norm(g, x, "attn_norm", il), il)
        cur = g.cb(self.attn_connections.write(g, x, streams), "hc_attn_post", il)
        x, streams = self.ffn_connections.read(g, cur, il, "hc_ffn_pre")
        for t in () if self.drafts else streams:
            g.expand(t)
        x = self.feed_forward(g, self.ffn_norm(g, x, "ffn_norm", il), il)
        return self.ffn_connections.write(g, x, streams)


def spread(x: Tensor) -> Tensor:
    """Copy x to every stream: [n_embd, n] -> [n_embd, 4, n]."""
    n_embd, n = x.ne[:2]
    return repeat_4d(reshape(x, n_embd, 1, n), n_embd, STREAMS, n, 1)


def mean(x: Tensor) -> Tensor:
    """Average the streams: [n_embd, 4, n] -> [n_embd, n]."""
    each = [view(x, (x.ne[0], x.ne[2]), (x.ne[0] * STREAMS,), i * x.ne[0]) for i in range(STREAMS)]
    return scale(reduce(add, each), 1 / STREAMS)


def join_streams(x: Tensor) -> Tensor:
    """Join the streams of each token: [n_embd, 4, n] -> [4 * n_embd, n]."""
    return reshape(x, x.ne[0] * STREAMS, x.ne[2])


class StreamNextN:
    """A layer after the trunk, fed with a token and the streams before it."""

    def __init__(self, w: Weights, hp: HParams, layer: StreamLayer) -> None:
        n_embd, n_vocab = hp.n_embd, hp.n_vocab
        self.layer = layer
        self.eh_proj = w.linear("nextn.eh_proj", 2 * n_embd, n_embd)
        self.enorm = w.norm("nextn.enorm", n_embd)
        self.hnorm = w.norm("nextn.hnorm", n_embd)
        self.embed_tokens = w.optional_tensor("nextn.embed_tokens.weight", n_embd, n_vocab)
        self.head = w.optional_linear("nextn.shared_head_head", n_embd, n_vocab, scaled=False)
        self.head_norm = w.optional_norm("nextn.shared_head_norm", n_embd)

    def build(
        self,
        g: GraphBuilder,
        token_embd: Tensor,
        connections: HeadConnections,
        output_norm: Norm,
        il: int,
    ) -> Tensor:
        """Build the head's input, [n_embd, n_outputs]."""
        if g.ubatch.token is None:
            raise ContextError(
                "this NextN layer needs tokens in addition to hidden states; pass a Batch with both"
            )
        inp = g.add_input(InputEmbdH(g.hp.n_embd_hidden, g.n_tokens))
        tokens = token_embd if self.embed_tokens is None else self.embed_tokens
        embd = g.cb(g.rows(tokens, inp.tokens), "mtp_tok_embd", il)
        h = g.cb(reshape(inp.h, g.hp.n_embd, STREAMS, g.n_tokens), "mtp_h_state", il)
        h = self.hnorm(g, h, "mtp_hnorm", il)
        embd = g.cb(spread(self.enorm(g, embd, il=il)), "mtp_enorm", il)
        cur = g.cb(concat(embd, h, 0), "mtp_concat", il)  # [2 * n_embd, 4, n_tokens]
        cur = g.cb(self.eh_proj(g, cur), "mtp_eh_proj", il)
        cur = g.cb(self.layer(g, cur, il, False), "mtp_l_out", il)
        flat = g.outputs(join_streams(cur))[0]
        g.res.t_h_nextn = g.cb(flat, "h_nextn")
        cur = connections.read(g, reshape(flat, g.hp.n_embd, STREAMS, flat.ne[1]), "hc_head")
        norm = output_norm if self.head_norm is None else self.head_norm
        return norm(g, cur, "result_norm")


DRAFT_NAMES_STREAMS = {
    "hc_attn_pre": "mtp_hc_attn_pre",
    "attn_norm": "mtp_attn_norm",
    "hc_attn_post": "mtp_hc_attn_post",
    "hc_ffn_pre": "mtp_hc_ffn_pre",
    "ffn_norm": "mtp_ffn_norm",
    "ffn_moe_out": "mtp_ffn_moe_out",
    "ffn_shexp": "mtp_ffn_shexp",
    "ffn_out": "mtp_ffn_out",
    "hc_head": "mtp_hc_head",
    "result_norm": "mtp_shared_head_norm",
}


def own_head(nextn: StreamNextN | None, output: Linear) -> Linear:
    """Return the head of a NextN layer if it has one, else the model's."""
    return output if nextn is None or nextn.head is None else nextn.head
