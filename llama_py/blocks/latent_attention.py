"""Latent attention (shared by models/deepseek2.cpp, kimi-linear.cpp and kimi-k3.cpp).

Keys and values of all heads are computed from one latent vector per token. The cache stores that
vector; queries and results are projected into its space ("absorbed"). For older files with both
projections in one matrix, it stores the keys and values of every head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ggml_py._moved import Former, adopt, former_names
from ggml_py.ops import concat, cont, mul_mat, permute, repeat_4d, reshape, view
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import QKV, attend, attend_latent
from llama_py.blocks.functions import heads, inv_sqrt
from llama_py.blocks.indexer import mask_unchosen
from llama_py.blocks.softmax import Scores
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Linear, Norm
from llama_py.memory.specs import KVCacheSpec
from llama_py.weights import Weights

Turn = Callable[[GraphBuilder, Tensor, int, int], Tensor]  # (g, x, il, first dimension)


@dataclass(frozen=True, slots=True)
class LatentSizes:
    """n_lora_kv, n_lora_q   ranks of the latent vector, and of the queries (0: full rank)
    n_head, d_k, d_v         heads, and sizes of their unpacked keys and values
    n_rot                    the last dimensions of the keys, a part that all heads share
    """

    n_embd: int
    n_head: int
    n_lora_kv: int
    n_lora_q: int
    d_k: int
    d_v: int
    n_rot: int

    @property
    def nope(self) -> int:
        """Dimensions of a key without RoPE."""
        return self.d_k - self.n_rot


def caches_latent(w: Weights) -> bool:
    """Return True if latent vectors are cached, instead of each head's keys and values."""
    return not w.any_ends(".attn_kv_b.weight")


class LatentAttention:
    """Attention with keys and values computed from one latent vector per token.

    sinks      F32 [n_head] an additional score per head without a value
    few_names  do not name steps before RoPE and the cache
    """

    parts_keep: ClassVar[type | tuple[type, ...]] = KVCacheSpec
    sinks: Tensor | None = None
    few_names: bool = False

    def __init__(
        self,
        w: Weights,
        n: LatentSizes,
        *,
        absorbed: bool,
        output: Linear,
        turn: Turn | None = None,
        kq_scale: Callable[[GraphBuilder], float] | None = None,
        name: str = "",
    ) -> None:
        """Declare the weights of the layer.

        turn      RoPE for dimensions of heads; None: no rotation
        kq_scale  factor of products of queries and keys, if it is not 1 / sqrt(d_k)
        name      name of the projected result
        """
        self.n, self.output, self.absorbed, self.name = n, output, absorbed, name
        self.turn, self.kq_scale = turn, kq_scale or (lambda _: inv_sqrt(n.d_k))
        self._declare_queries(w)
        self.kv_a = w.linear("attn_kv_a_mqa", n.n_embd, n.n_lora_kv + n.n_rot, scaled=False)
        self.kv_a_norm = w.norm("attn_kv_a_norm", n.n_lora_kv)
        if absorbed:
            self.k_b = w.tensor("attn_k_b.weight", n.nope, n.n_lora_kv, n.n_head)
            self.v_b = w.tensor("attn_v_b.weight", n.n_lora_kv, n.d_v, n.n_head)
        else:
            self.kv_b = w.linear(
                "attn_kv_b", n.n_lora_kv, n.n_head * (n.nope + n.d_v), scaled=False
            )

    def _declare_queries(self, w: Weights) -> None:
        n = self.n
        self.q_a: Linear | None = None
        self.q_a_norm: Norm | None = None
        n_q = n.n_head * n.d_k
        if w.has("attn_q_a.weight") or w.has("attn_q_a_norm.weight"):
            self.q_a_norm = w.norm("attn_q_a_norm", n.n_lora_q)
            self.q_a = w.linear("attn_q_a", n.n_embd, n.n_lora_q, scaled=False)
            self.q = w.linear("attn_q_b", n.n_lora_q, n_q, scaled=False)
        else:
            self.q = w.linear("attn_q", n.n_embd, n_q, scaled=False)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Attend over latent vectors: [n_embd, n_tokens] -> same shape."""
        n = self.n
        small = self._small(g, cur, il)
        chosen = self.choose(g, cur, small, il)
        q = self._queries(g, small, il)
        kv = self._step(g, self.kv_a(g, cur), "kv_cmpr_pe", il)
        latent = self._step(g, view(kv, (n.n_lora_kv, g.n_tokens)), "kv_cmpr", il)
        k_pe = heads(kv, n.n_rot, 1, g.n_tokens, offset=n.n_lora_kv, step=kv.ne[0])
        k_pe = self.shared_key(g, self._step(g, k_pe, "k_pe", il), il)
        k_pe = g.cb(self._rotate(g, k_pe, il), _finer(g, "k_pe_rope", "k_pe"), il)
        latent = self.kv_a_norm(g, latent, _finer(g, "kv_cmpr_norm", "kv_cmpr"), il)
        if self.absorbed:
            mask, n_kv_max = None, 0
            if chosen is not None:
                mask, n_kv_max = mask_unchosen(g.inp_attn(il).kq_mask, chosen), chosen.ne[0]
            how = Scores(self.kq_scale(g), self.sinks, v_mla=self.v_b, n_kv_max=n_kv_max)
            attended = attend_latent(g, self._absorb(g, q, latent, k_pe, il), il, how, mask)
        else:
            how = Scores(self.kq_scale(g), self.sinks)
            attended = attend(g, self._unpack(g, q, latent, k_pe, il), il, how)
        cur = self.gate_heads(g, attended, cur, il)
        cur = self.output(g, cur)
        return g.cb(cur, self.name, il) if self.name else cur

    def gate_heads(self, g: GraphBuilder, attended: Tensor, cur: Tensor, il: int) -> Tensor:
        """Gate the heads' results [d_v * n_head, n_tokens] before their projection; `cur`: block
        input."""
        return attended

    def shared_key(self, g: GraphBuilder, k_pe: Tensor, il: int) -> Tensor:
        """Return the key part that all heads share, [n_rot, 1, n_tokens], before RoPE."""
        return k_pe

    def scale_queries(self, g: GraphBuilder, q: Tensor, il: int) -> Tensor:
        """Scale queries by position, if the model does."""
        return q

    def _step(self, g: GraphBuilder, x: Tensor, name: str, il: int) -> Tensor:
        return x if self.few_names else g.cb(x, name, il)

    def _rotate(self, g: GraphBuilder, x: Tensor, il: int, offset: int = 0) -> Tensor:
        return x if self.turn is None else self.turn(g, x, il, offset)

    def choose(self, g: GraphBuilder, cur: Tensor, small: Tensor, il: int) -> Tensor | None:
        """Choose cells to attend to if latent vectors are cached; None: all visible cells.
        -> I32 [n_chosen, tokens of a stream, 1, n_stream]

        small  input of the query projection
        """
        return None

    def _small(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Return the input of the query projection: a low-rank vector if the model has one."""
        if self.q_a is None:
            return cur
        assert self.q_a_norm is not None
        small = self._step(g, self.q_a(g, cur), _finer(g, "q_a", "qr"), il)
        return self._step(g, self.q_a_norm(g, small, il=il), _finer(g, "q_a_norm", "qr"), il)

    def _queries(self, g: GraphBuilder, small: Tensor, il: int) -> Tensor:
        """Project to queries: [d_k, n_head, n_tokens], or joined rows if absorbed."""
        q = self._step(g, self.q(g, small), "q", il)
        return q if self.absorbed else self._split(g, q, il)

    def _split(self, g: GraphBuilder, q: Tensor, il: int) -> Tensor:
        return g.cb(reshape(q, self.n.d_k, self.n.n_head, g.n_tokens), "q", il)

    def _absorb(self, g: GraphBuilder, q: Tensor, latent: Tensor, k_pe: Tensor, il: int) -> QKV:
        """Project queries into the latent space, with one key head that includes the values."""
        n, n_tokens = self.n, g.n_tokens
        strides = (n.d_k, n.d_k * n.n_head)
        q_nope = self._step(g, view(q, (n.nope, n.n_head, n_tokens), strides), "q_nope", il)
        q_pe = self._step(g, view(q, (n.n_rot, n.n_head, n_tokens), strides, n.nope), "q_pe", il)
        q_pe = g.cb(self._rotate(g, q_pe, il), _finer(g, "q_pe_rope", "q_pe"), il)
        q_nope = self._step(g, permute(q_nope, 0, 2, 1, 3), "q_nope_perm", il)
        q_nope = self._step(g, mul_mat(self.k_b, q_nope), "q_nope_absorbed", il)
        q_nope = self._step(g, permute(q_nope, 0, 2, 1, 3), "q_nope_absorbed_perm", il)
        queries = self._step(
            g, concat(q_nope, q_pe, 0), "Qcur", il
        )  # [n_lora_kv + n_rot, n_head, T]
        values = self._step(g, reshape(latent, n.n_lora_kv, 1, n_tokens), "kv_cmpr_reshape", il)
        keys = self._step(g, concat(values, k_pe, 0), "Kcur", il)
        return QKV(self.scale_queries(g, queries, il), keys, self._step(g, values, "Vcur", il))

    def _unpack(self, g: GraphBuilder, q: Tensor, latent: Tensor, k_pe: Tensor, il: int) -> QKV:
        """Unpack keys and values of every head. A head's key is [nope, pe] like its query;
        llama.cpp swaps these for Kimi, so its scores multiply dimensions that do not belong
        together."""
        n, n_tokens, each = self.n, g.n_tokens, self.n.nope + self.n.d_v
        kv = g.cb(self.kv_b(g, latent), "kv", il)
        k_nope = g.cb(heads(kv, n.nope, n.n_head, n_tokens, step=each), "k_nope_view", il)
        values = heads(kv, n.d_v, n.n_head, n_tokens, offset=n.nope, step=each)
        values = g.cb(cont(g.cb(values, "Vcur_view", il)), "Vcur_cont", il)
        queries = g.cb(self._rotate(g, q, il, n.nope), "Qcur", il)
        k_pe = repeat_4d(k_pe, n.n_rot, n.n_head, n_tokens, 1)
        keys = g.cb(concat(k_nope, k_pe, 0), "Kcur", il)
        return QKV(self.scale_queries(g, queries, il), keys, values)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        adopt(cls)

    gated = Former("gate_heads")
    tempered = Former("scale_queries")


def _finer(g: GraphBuilder, name: str, usual: str) -> str:
    """Return `name` if the graph uses that finer name, else `usual`."""
    return name if name in g.names else usual


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, absorbed="caches_latent")
