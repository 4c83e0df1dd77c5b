"""OLMo 2 and 3: only the results of blocks are normed, and queries and keys over all heads;
perhaps most layers see a window of tokens (models/olmo2.cpp)."""

from __future__ import annotations

from dataclasses import replace

from ggml_py.ops import concat, cont, div, mul, reshape, scale, sqr, sqrt, sum_rows, view
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import QKV, Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.geometry import ROPE_NEOX, Rope
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import RMS_EPS, WindowedHParams
from llama_py.keys import Keys, number
from llama_py.linear import Norm
from llama_py.memory.kept import KeysValues
from llama_py.models._decoder import Decoder, Layer
from llama_py.share import Steps
from llama_py.weights import Weights


class Olmo2HParams(WindowedHParams):
    """Positions within a window are not scaled, by a factor or YaRN, and turn as trained."""

    rope_type = ROPE_NEOX
    required_heads = equal_heads = whole_rope = True
    n_pattern = 4
    f_norm_rms_eps: float = number(RMS_EPS, least=0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.rope_freq_base_swa = self.rope_freq_base_train  # no graph reads the file's

    def rope(self, il: int) -> Rope | None:
        rope = super().rope(il)
        return replace(rope, yarn=False) if rope and self.swa_layers[il] else rope


class Olmo2(Decoder):
    arch = "olmo2"
    HParams = Olmo2HParams
    hp: Olmo2HParams
    layer_sum = "ffn_out"

    def layer(self, w: Weights, il: int) -> Layer:
        hp, shape = self.hp, self.hp.layers[il]
        return Layer(
            None,
            NormedRows(w, hp),
            None,
            FeedForward(w, hp.n_embd, shape.n_ff, scaled=False),
            attn_post_norm=w.norm("post_attention_norm", hp.n_embd),
            ffn_post_norm=w.norm("post_ffw_norm", hp.n_embd),
            post_ffn_il=(False, False),
        )


class NormedRows(Attention):
    """Queries and keys are normed before they are split into heads.

    n_rows  channels of the queries, and of the keys, of all heads
    """

    parts_keep = KeysValues

    def __init__(self, w: Weights, hp: Olmo2HParams) -> None:
        shape = hp.layers[w.il]
        sizes = shape.n_embd_q, shape.n_embd_k_gqa
        norms = [
            Norm(w.tensor(f"attn_{x}_norm.weight", n)) for x, n in zip("qk", sizes, strict=True)
        ]
        super().__init__(w, hp, q_norm=norms[0], k_norm=norms[1])
        d = shape.n_embd_head_k
        self.n_rows = d * hp.n_head[w.il], d * hp.n_head_kv[w.il]

    def steps(self, g: GraphBuilder, cur: Tensor, il: int) -> Steps:
        """The result, of some of the heads: the mean squares of whole rows come before it."""
        q, k, v = self.project(g, cur, il)
        mine = [scale(sum_rows(sqr(x)), 1.0 / n) for x, n in zip((q, k), self.n_rows, strict=True)]
        means = yield concat(mine[0], mine[1], 0)  # [2, n_tokens]
        rows = []
        for i, (x, norm) in enumerate(((q, self.q_norm), (k, self.k_norm))):
            assert norm is not None and norm.weight is not None
            mean = cont(view(means, (1, g.n_tokens), (2,), i))
            rows.append(mul(div(x, sqrt(scale(mean, 1.0, g.hp.f_norm_rms_eps))), norm.weight))
        return self.attended(g, self._heads(g, QKV(rows[0], rows[1], v), il), il)

    def project(self, g: GraphBuilder, cur: Tensor, il: int) -> QKV:
        """cur [n_embd, n_tokens] -> heads of a token joined"""
        q, k, v = self.qkv.rows(g, cur, il)
        return QKV(g.cb(q, "Qcur", il), g.cb(k, "Kcur", il), g.cb(v, "Vcur", il))

    def normed(self, g: GraphBuilder, qkv: QKV, il: int) -> QKV:
        return self._heads(g, super().normed(g, qkv, il), il)

    def _heads(self, g: GraphBuilder, rows: QKV, il: int) -> QKV:
        sizes = self.qkv.heads
        q, k, v = (reshape(x, *n, g.n_tokens) for x, n in zip(rows, sizes, strict=True))
        return QKV(q, k, g.cb(v, "Vcur", il))
