"""Common parts of T5's encoder and decoder: distance buckets, cross-attention."""

from __future__ import annotations

from ggml_py.ops import cont, get_rows, permute, reshape
from ggml_py.tensor import Tensor
from llama_py.blocks.activation import GELU, RELU
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.softmax import Scores, mha
from llama_py.gguf.keys import number, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.buckets import InputPosBucket, InputPosBucketKV
from llama_py.hparams import RMS_EPS, HParams
from llama_py.hparams.layer_shape import LayerShape
from llama_py.hparams.shard import Shard
from llama_py.models.trunks.decoder import Layer
from llama_py.weights import Weights


class BucketHParams(HParams):
    required_heads = equal_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_rel_attn_bkts: int = uint("attention.relative_buckets_count", least=4, most=254)

    def shared_heads(self, share: Shard, il: int) -> LayerShape:
        return share.heads(self.layers[il], il, "attn_o", "cross_attn_o")


class Distances:
    """A score for each pair of tokens by their distance (llama-graph.cpp:build_pos_bias).

    table  [n_head, n_buckets]
    """

    def __init__(self, table: Tensor, decoding: bool) -> None:
        self.table = table
        self.make = InputPosBucketKV if decoding else InputPosBucket

    def __call__(self, g: GraphBuilder) -> Tensor:
        """Return the bias by distance, F32 [n_kv, n_tokens of a stream, n_head, n_stream]."""
        n_buckets = self.table.ne[1]
        inp = g.shared("bucket", lambda: g.add_input(self.make(g.params, n_buckets)))
        bucket, n_stream = inp.pos_bucket, inp.n_stream
        flat = g.cb(reshape(bucket, bucket.ne[0] * bucket.ne[1]), "pos_bucket_1d")
        cur = get_rows(self.table, flat)
        cur = reshape(cur, cur.ne[0], bucket.ne[0], bucket.ne[1] // n_stream, n_stream)
        return g.cb(cont(permute(cur, 2, 0, 1, 3)), "pos_bias")


class CrossAttention:
    """Attention to complete rows: the encoder's own, or its result in the decoder.

    stem       prefix of the weights' names
    distances  None: no bias by distance
    """

    parts_keep = None

    def __init__(
        self, w: Weights, hp: HParams, stem: str, distances: Distances | None = None
    ) -> None:
        shape, n_embd, self.distances = hp.layers[w.il], hp.n_embd, distances
        sizes = shape.n_embd_q, shape.n_embd_k_gqa, shape.n_embd_v_gqa
        self.parts = [
            w.linear(f"{stem}_{part}", n_embd, n, scaled=False)
            for part, n in zip("qkv", sizes, strict=True)
        ]
        self.heads = shape.n_head, shape.n_head_kv, shape.n_head_kv
        self.output = w.linear(f"{stem}_o", shape.n_embd_v_out, n_embd, scaled=False)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Attend to the rows: cur [n_embd, n_tokens] -> same shape."""
        rows, mask = self.read(g, cur)
        names, sources = ("Qcur", "Kcur", "Vcur"), (cur, rows, rows)
        q, k, v = (
            self._heads(g.cb(part(g, x), name, il), n)
            for part, x, name, n in zip(self.parts, sources, names, self.heads, strict=True)
        )
        how = Scores(1.0, bias=None if self.distances is None else self.distances(g))
        for t in q, k, v:
            g.expand(t)
        cur = g.cb(mha(g, q, k, v, mask, il, how), "kqv_out", il)
        return g.cb(self.output(g, cur), "kqv_out", il)

    @staticmethod
    def _heads(t: Tensor, n: int) -> Tensor:
        return reshape(t, t.ne[0] // n, n, t.ne[1])

    def read(self, g: GraphBuilder, cur: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows to attend to, and their mask."""
        if self.distances is not None:
            return cur, g.inp_no_cache(None).kq_mask
        return g.inp_cross.embd, g.inp_cross.kq_mask


class Tables:
    """The distances of one stack's layers: each has its own, or the first's."""

    def __init__(self, hp: BucketHParams, decoding: bool = False) -> None:
        self.hp, self.decoding = hp, decoding

    def __call__(self, w: Weights) -> Distances:
        """Return the distances of layer w.il; call it for layer 0 first."""
        ne = self.hp.layers[w.il].n_head, self.hp.n_rel_attn_bkts
        if w.il == 0:
            self.first = w.tensor("attn_rel_b.weight", *ne)
        table = w.optional_tensor("attn_rel_b.weight", *ne)
        return Distances(self.first if table is None else table, self.decoding)


def reader(w: Weights, hp: HParams, distances: Distances) -> Layer:
    """Declare a layer of an encoder."""
    norm = w.norm("attn_norm", hp.n_embd)
    attention = CrossAttention(w, hp, "attn", distances)
    return Layer(norm, attention, w.norm("ffn_norm", hp.n_embd), feed_forward(w, hp))


def feed_forward(w: Weights, hp: HParams) -> FeedForward:
    """Declare the feed-forward: gated in Flan-T5, plain in T5."""
    gated, n_ff = w.has("ffn_gate.weight"), hp.layers[w.il].n_ff
    act = GELU if gated else RELU
    return FeedForward(w, hp.n_embd, n_ff, act=act, gated=gated, scaled=False)
