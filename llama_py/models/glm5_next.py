"""GLM5-Next: delta nets with a gate per dimension, and latent attention to pools of tokens that
this or an earlier layer's indexer chooses; four residual streams, experts after the first layers;
a NextN layer that drafts (models/glm5-next.cpp).

The graph is llama.cpp b11739's: a mask hides the pools that are not chosen, and the NextN layer has
one stream and its own indexer. With the form `pool_attention=gathered`, small ubatches read the
chosen cells only, like in llama.cpp 0.5.0. If llama.cpp would crash, the weights decide: a delta
net may have one matrix for queries, keys and values. Files without attention to the tokens after
the last pool are refused: llama.cpp returns NaN at the start.
"""

from __future__ import annotations

from collections.abc import Iterator

from ggml_py.ops import cont, get_rows, mul_mat, permute, reshape, soft_max_ext, transpose, view_4d
from ggml_py.ops.hyper_connections import STREAMS
from ggml_py.tensor import Tensor
from llama_py.blocks.activation import clamped_silu
from llama_py.blocks.functions import inv_sqrt
from llama_py.blocks.hyper_connections import HyperConnections
from llama_py.blocks.kda import BoundedKDA
from llama_py.blocks.kpool_indexer import (
    KPoolIndexer,
    PoolSizes,
    column,
    mask_with_cells,
    separate_unused,
)
from llama_py.blocks.softmax import Scores, mha
from llama_py.gguf.keys import Keys, flag, number, numbers, trunk_layers, uint, uints
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.kpool import InputKPool
from llama_py.graph.linear import Linear, Norm
from llama_py.hparams import EPS, L2_EPS
from llama_py.memory.specs import Index, MemorySpecs, StateSpec
from llama_py.models.trunks.decoder import Block, Layer
from llama_py.models.trunks.dsa import INDEXER_TENSORS
from llama_py.models.trunks.experts import expert_layer
from llama_py.models.trunks.kimi import BoundedKimiHParams
from llama_py.models.trunks.latent import Latent
from llama_py.models.trunks.nextn import DRAFT_NAMES, DraftingDecoder, EarlyNextN
from llama_py.models.trunks.rules import QuantizeRules
from llama_py.models.trunks.streams import StreamLayer, join_streams, mean, spread
from llama_py.weights import Weights

MORE_INDEXER_TENSORS = ("indexer_compressor_gate.weight", "indexer_compressor_ape.weight")
KEPT = (
    "hc_",
    "indexer.attn_q_b",
    "indexer.attn_k",
    "indexer.proj",
    "indexer_compressor_gate",
    "indexer_compressor_ape",
    "ssm_f_a.weight",
    "ssm_f_b.weight",
    "ssm_g_a.weight",
    "ssm_g_b.weight",
    "ssm_beta.weight",
    "attn_kv_a_mqa.weight",
    "attn_k_b.weight",
    "attn_v_b.weight",
)
DRAFT_NAMES_GLM5 = DRAFT_NAMES | {
    "mtp_concat": "",
    "attn_out": "mtp_attn_out",
    "mtp_attn_residual": "mtp_ffn_inp",
    "mtp_attn_post_norm": "mtp_ffn_norm",
}
MOST_STEPS = 1000  # each is several nodes if they are not fused


class Glm5NextHParams(BoundedKimiHParams):
    """indexer_...   heads of the indexer; indexer_kpool  tokens of a pool, indexer_top_k  number of
                              tokens to choose, in whole pools, plus the tokens after the last pool
    indexer_types   by layer: 1 has an indexer, 0 uses the choice of the last indexer
    swiglu_clamp_...   limits of gates of routed and of shared experts, by layer; 0: no limit
    hc_eps, hc_n_iter  parameters of the matrices that mix residual streams
    """

    usual_gating = "sigmoid"
    f_norm_eps: float = number(EPS, 0.0, least=0)  # the indexer's
    n_lora_q: int = uint("attention.q_lora_rank", least=1)
    n_embd_head_k_mla: int = uint("attention.key_length_mla", least=1)
    n_embd_head_v_mla: int = uint("attention.value_length_mla", least=1)
    n_expert_shared: int = uint("expert_shared_count", least=1)
    swiglu_clamp_exp: tuple[float, ...] = numbers("swiglu_clamp_exp", 0.0)
    swiglu_clamp_shexp: tuple[float, ...] = numbers("swiglu_clamp_shexp", 0.0)
    indexer_n_head: int = uint("attention.indexer.head_count", least=1)
    indexer_head_size: int = uint("attention.indexer.key_length", least=1)
    indexer_top_k: int = uint("attention.indexer.top_k", least=1)
    indexer_kpool: int = uint("attention.indexer.kpool", least=2)
    indexer_kpool_select_tail: bool = flag("attention.indexer.kpool_select_tail", True)
    indexer_types: tuple[int, ...] = uints("attention.indexer.types", 1, count=trunk_layers)
    n_stream: int = uint("hyper_connection.count", least=STREAMS, most=STREAMS)
    hc_n_iter: int = uint("hyper_connection.sinkhorn_iterations", least=1, most=MOST_STEPS)
    hc_eps: float = number("hyper_connection.epsilon", least=0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if not keys.has("swiglu_clamp_shexp"):
            self.swiglu_clamp_shexp = self.swiglu_clamp_exp
        if not self.indexer_kpool_select_tail:
            raise keys.error(
                "attention.indexer.kpool_select_tail",
                "must be true, otherwise the first tokens attend to no keys",
            )
        if self.indexer_top_k % self.indexer_kpool:
            raise keys.error(
                "attention.indexer.top_k", f"must be a multiple of kpool = {self.indexer_kpool}"
            )
        self.indexers = tuple(self._indexers(keys))

    def delta_net_eps(self) -> float:
        return L2_EPS

    def check_turned(self, keys: Keys) -> None:
        if self.n_rot:
            raise keys.error("rope.dimension_count", "must be 0, because this model uses no RoPE")

    def shared_size(self, keys: Keys) -> int:
        sizes = {*self.n_ff_exp[self.n_layer_dense_lead : self.n_layer]}
        if len(sizes) > 1:
            raise keys.error("expert_feed_forward_length", "must be the same in all layers")
        return max(sizes, default=0) * self.n_expert_shared

    def _indexers(self, keys: Keys) -> Iterator[int]:
        """Yield the last layer with an indexer for each layer, or -1 for a delta net. NextN layers
        have their own."""
        last = -1
        for il in range(self.n_layer_all):
            if il >= self.n_layer:
                yield il
                continue
            if self.is_recr(il):
                yield -1
                continue
            last = il if self.indexer_types[il] else last
            if last < 0:
                raise keys.error(
                    "attention.indexer.types",
                    f"must give layer {il} an indexer, because no earlier layer has one",
                )
            yield last

    @property
    def pools(self) -> PoolSizes:
        return PoolSizes(
            self.indexer_n_head, self.indexer_head_size, self.indexer_kpool, self.indexer_top_k
        )


class Glm5NextKDA(BoundedKDA):
    parts_keep = StateSpec

    def __init__(self, w: Weights, hp: Glm5NextHParams) -> None:
        super().__init__(w, hp.n_embd, *hp.kda_sizes, hp.gate_lower_bound)
        self.g_a = w.linear("ssm_g_a", hp.n_embd, self.size, scaled=False)
        self.g_b = w.linear("ssm_g_b", self.size, self.n_inner, scaled=False)

    def out_gate(self, g: GraphBuilder, cur: Tensor) -> Tensor:
        return self.g_b(g, self.g_a(g, cur))


class PoolAttention:
    """Latent attention to the pools that an indexer chooses. The latent vectors are cached. A mask
    hides the other cells, or small ubatches read the chosen cells only."""

    def __init__(self, w: Weights, hp: Glm5NextHParams, drafts: bool = False) -> None:
        """Declare the weights; `drafts`: of a NextN layer, which always has a mask."""
        self.n = n = hp.latent(w.il)
        self.kq_scale = inv_sqrt(n.d_k)
        self.q_a_norm = w.norm("attn_q_a_norm", n.n_lora_q)
        self.kv_a_norm = w.norm("attn_kv_a_norm", n.n_lora_kv)
        self.q_a = w.linear("attn_q_a", n.n_embd, n.n_lora_q, scaled=False)
        self.q_b = w.linear("attn_q_b", n.n_lora_q, n.n_head * n.d_k, scaled=False)
        self.kv_a = w.linear("attn_kv_a_mqa", n.n_embd, n.n_lora_kv, scaled=False)
        self.k_b = w.tensor("attn_k_b.weight", n.d_k, n.n_lora_kv, n.n_head)
        self.v_b = w.tensor("attn_v_b.weight", n.n_lora_kv, n.d_v, n.n_head)
        self.output: Linear = w.linear("attn_output", n.n_head * n.d_v, n.n_embd, scaled=False)
        self.chooser = hp.indexers[w.il]
        self.indexer: KPoolIndexer | None = None
        if self.chooser == w.il:
            self.indexer = KPoolIndexer(w, n.n_embd, n.n_lora_q, hp.pools, drafts)
        else:  # files may have an indexer in every layer
            w.skip(*INDEXER_TENSORS, *MORE_INDEXER_TENSORS)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Attend to chosen pools: [n_embd, n_tokens] -> same shape."""
        n = self.n
        small = self.q_a_norm(g, self.q_a(g, cur), "q_resid", il)
        q = reshape(self.q_b(g, small), n.d_k, n.n_head, g.n_tokens)
        latent = self.kv_a_norm(g, self.kv_a(g, cur), il=il)
        latent = g.cb(reshape(latent, n.n_lora_kv, 1, g.n_tokens), "kv_cmpr", il)
        q = permute(mul_mat(self.k_b, permute(q, 0, 2, 1, 3)), 0, 2, 1, 3)
        g.cb(q, "q_absorbed", il)
        inp, chosen = self._choose(g, cur, small, il)
        g.expand(q)
        g.expand(latent)
        cache = g.inp_attn(il)
        g.expand(cache.mctx.cpy_k(latent, cache.k_idxs, il))
        attended = self._attend_gathered if inp.gathers else self._attend_masked
        out = g.cb(attended(g, q, inp, chosen, il), "kqv_out", il)
        return g.cb(self.output(g, out), "attn_out", il)

    def _choose(
        self, g: GraphBuilder, cur: Tensor, small: Tensor, il: int
    ) -> tuple[InputKPool, Tensor]:
        def choose() -> tuple[InputKPool, Tensor]:
            assert self.indexer is not None
            inp = self.indexer.inputs(g)
            if inp.masks:
                return inp, g.expand(self.indexer.cells(g, cur, small, il))
            return inp, self.indexer(g, cur, small, g.inp_attn(il).kq_mask, il)

        return g.shared(f"pools-{self.chooser}", choose)

    def _attend_gathered(
        self, g: GraphBuilder, q: Tensor, inp: InputKPool, cells: Tensor, il: int
    ) -> Tensor:
        """Attend to gathered cells I32 [n_sel, T]: q [n_lora_kv, n_head, T] -> [d_v * n_head,
        T]."""
        n, n_tokens, n_sel, cache = self.n, g.n_tokens, inp.n_sel, g.inp_attn(il)
        g.expand(cache.kq_mask)
        rows = cache.mctx.get_k_rows(il, n.n_lora_kv)
        k = get_rows(rows, reshape(cells, n_sel * n_tokens))
        k = g.cb(reshape(k, n.n_lora_kv, n_sel, 1, n_tokens), "kv_gathered", il)
        kq = mul_mat(k, permute(q, 0, 2, 3, 1), "f32")  # [n_sel, 1, n_head, T]
        kq = soft_max_ext(kq, inp.live, self.kq_scale, 0.0)
        g.cb(kq, "kq_soft_max_gathered", il)
        v = cont(transpose(k))  # [n_sel, n_lora_kv, 1, T]
        out = mul_mat(self.v_b, mul_mat(v, kq))  # [d_v, 1, n_head, T]
        g.cb(out, "kqv_gathered", il)
        return reshape(cont(permute(out, 0, 2, 1, 3)), n.d_v * n.n_head, n_tokens)

    def _attend_masked(
        self, g: GraphBuilder, q: Tensor, inp: InputKPool, chosen: Tensor, il: int
    ) -> Tensor:
        """Attend to the result of `_choose` by a mask. -> [d_v * n_head, T]"""
        cache = g.inp_attn(il)
        mask = self._mask(g, cache.kq_mask, inp, chosen)
        g.cb(mask, "kq_mask_dsa", il)
        k = cache.mctx.get_k(il)
        v = view_4d(k, self.n.n_lora_kv, *k.ne[1:], *k.nb[1:], 0)
        return mha(g, q, k, v, mask, il, Scores(self.kq_scale, v_mla=self.v_b, n_kv_max=inp.n_sel))

    def _mask(self, g: GraphBuilder, mask: Tensor, inp: InputKPool, chosen: Tensor) -> Tensor:
        """Return the mask of the result of `_choose`, in the shape of the cache's mask."""
        if not inp.masks:
            return reshape(chosen, *mask.ne)

        def restrict() -> Tensor:
            zeros = column(mask.type, 0.0, *chosen.ne[:2])
            live = g.shared("live-pools", lambda: reshape(inp.live, *chosen.ne[:2]))
            return mask_with_cells(mask, separate_unused(chosen, live, inp.n_kv), zeros)

        return g.shared(f"pool-mask-{self.chooser}", restrict)


class Glm5NextLayer(StreamLayer):
    """Stream layer that reads a block's input before anything else."""

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        x, streams = self.attn_connections.read(g, cur, il, "hc_attn_pre")
        x = self.attention(g, g.expand(self.attn_norm(g, x, "attn_norm", il)), il)
        cur = g.cb(self.attn_connections.write(g, x, streams), "hc_attn_post", il)
        x, streams = self.ffn_connections.read(g, cur, il, "hc_ffn_pre")
        x = self.feed_forward(g, self.ffn_norm(g, x, "ffn_norm", il), il)
        return self.ffn_connections.write(g, x, streams)


class Glm5NextN(EarlyNextN):
    """NextN layer that reads the embeddings first; the last norm's result has another name."""

    tokens_first = True

    def end(self, g: GraphBuilder, norm: Norm, cur: Tensor, early: bool) -> Tensor:
        return g.cb(super().end(g, norm, cur, early), "mtp_shared_head_norm")


class Glm5Next(DraftingDecoder, Latent):
    arch = "glm5-next"
    HParams = Glm5NextHParams
    hp: Glm5NextHParams
    sizes = {45: "320B.A18B"}
    quantize_rules = QuantizeRules(never=KEPT, least_q8=("attn_q_a", "attn_q_b", "nextn.eh_proj"))
    names = {"embd": "inp_embd", "conv_states_all": ""}
    draft_names = DRAFT_NAMES_GLM5
    nextn = Glm5NextN

    def declare_trunk(self, w: Weights) -> None:
        self.indexers: list[KPoolIndexer] = []
        self.draft_indexers: list[KPoolIndexer] = []
        super().declare_trunk(w)

    def nextn_layer(self, w: Weights, il: int) -> Layer:
        n_embd, attention = self.hp.n_embd, PoolAttention(w, self.hp, drafts=True)
        assert attention.indexer is not None
        self.draft_indexers.append(attention.indexer)
        return Layer(
            w.norm("attn_norm", n_embd),
            attention,
            w.norm("ffn_norm", n_embd),
            self.expert_block(w, il),
        )

    def layer(self, w: Weights, il: int) -> Glm5NextLayer:
        hp, n_embd = self.hp, self.hp.n_embd
        return Glm5NextLayer(
            HyperConnections(w, n_embd, "hc_attn", n_iter=hp.hc_n_iter, eps=hp.hc_eps),
            w.norm("attn_norm", n_embd),
            self.attention(w, il),
            HyperConnections(w, n_embd, "hc_ffn", n_iter=hp.hc_n_iter, eps=hp.hc_eps),
            w.norm("ffn_norm", n_embd),
            self.expert_block(w, il),
        )

    def expert_block(self, w: Weights, il: int) -> Block:
        """Declare the feed-forward of layer il."""
        hp = self.hp
        shared, routed = hp.swiglu_clamp_shexp[il], hp.swiglu_clamp_exp[il]
        return expert_layer(
            w, hp, il, bias="needed", act=clamped_silu(shared), routed_act=clamped_silu(routed)
        )

    def attention(self, w: Weights, il: int) -> Block:
        if self.hp.layers[il].recurrent:
            return Glm5NextKDA(w, self.hp)
        made = PoolAttention(w, self.hp)
        if made.indexer is not None:
            self.indexers.append(made.indexer)
        return made

    def memory_spec(self, il: int) -> MemorySpecs:
        kept, hp = super().memory_spec(il), self.hp
        if hp.indexers[il] != il:
            return kept
        # key and gate of a token, and the key of a pool
        return *kept, Index(3 * hp.indexer_head_size, rotated=False, kpool=hp.indexer_kpool)

    def embed(self, g: GraphBuilder) -> Tensor:
        cur = super().embed(g)
        self._first_inputs(g, self.indexers)
        return g.cb(spread(cur), "hc_init")

    def _first_inputs(self, g: GraphBuilder, indexers: list[KPoolIndexer]) -> None:
        """Create the inputs of all indexers, which are the first in the graph."""
        if indexers:
            indexers[0].inputs(g)

    def skips_unused_rows(self, g: GraphBuilder) -> bool:
        return False

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        seeds_all = g.cparams.embeddings_nextn and not g.cparams.embeddings_nextn_masked
        if not seeds_all:
            flat = g.outputs(join_streams(cur))[0]
            cur = reshape(flat, self.hp.n_embd, STREAMS, flat.ne[1])
        super().finish(g, g.cb(mean(cur), "hc_head"), not seeds_all)

    def build_draft(self, g: GraphBuilder) -> None:
        self._first_inputs(g, self.draft_indexers)
        g.expand(g.inp_attn(self.hp.n_layer + g.cparams.nextn_layer).kq_mask)
        super().build_draft(g)
