"""DeepSeek-V4: four residual streams, attention to a window and to compressed keys beyond it, all
or the best of an indexer; experts, in the first layers chosen by the token itself; a NextN
layer that drafts (models/deepseek4.cpp).

llama.cpp reads the memory of one embedding as embeddings of all streams; here it is one. If
llama.cpp rolls back further than its stored states, this is refused here; a copied sequence has the
state after a rollback. Tokens of several sequences may begin these, in separate batches; llama.cpp
accepts them anywhere."""

from __future__ import annotations

from typing import ClassVar

from ggml_py.errors import WeightsError
from ggml_py.ops import add, argsort_top_k, get_rows, reshape
from ggml_py.ops.hyper_connections import STREAMS
from ggml_py.tensor import Tensor
from ggml_py.types import I32
from llama_py.blocks.activation import clamped_silu
from llama_py.blocks.compressed_attention import CompressedAttention, CompressedSizes
from llama_py.blocks.compressed_indexer import CompressedIndexer
from llama_py.blocks.experts import (
    GATING,
    GATING_FUNCS,
    UNSCALED,
    Experts,
    Routing,
    SharedExperts,
    Weighing,
)
from llama_py.blocks.hyper_connections import HeadConnections, HyperConnections
from llama_py.gguf.keys import Keys, base, flag, number, numbers, uint, uints
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Linear
from llama_py.graph.params import GraphType
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NORMAL, NonCausal, Rope, Window
from llama_py.memory.specs import CompressedSpec, KVCacheSpec, MemorySpecs
from llama_py.models.trunks.experts import RoutedHParams
from llama_py.models.trunks.nextn import DraftingDecoder
from llama_py.models.trunks.streams import (
    DRAFT_NAMES_STREAMS,
    StreamLayer,
    StreamNextN,
    join_streams,
    mean,
    own_head,
    spread,
)
from llama_py.weights import Weights

CHOSEN, ALL = 4, 128  # tokens per key with an indexer, and without
ROTATED = 64  # minimum size of the blocks that rotate heads


class Deepseek4HParams(RoutedHParams):
    """n_swa           tokens in the window
    compress_ratios   tokens of a compressed key, by layer: 0 (uncompressed), 4 or 128
    n_groups, n_lora_o   sizes of the projection of heads
    n_iter, stream_eps   parameters of the weights that mix residual streams
    n_layer_hash      number of layers with a table from tokens to experts
    swiglu_clamp_*    limits of hidden values of routed and of shared experts, by layer; 0: no limit
    """

    mixes_embd = False
    rope_type = ROPE_NORMAL
    required_heads = equal_heads = True
    non_causal_type: ClassVar[NonCausal] = "swa_full"
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_lora_q: int = uint("attention.q_lora_rank", least=1)
    n_swa: int = uint("attention.sliding_window", least=1)
    n_ff_exp: tuple[int, ...] = uints("expert_feed_forward_length", least=1)
    n_expert_shared: int = uint("expert_shared_count", least=1)
    expert_weights_scale: float = number("expert_weights_scale")
    expert_weights_norm: bool = flag("expert_weights_norm")
    expert_gating_func: int = uint("expert_gating_func")
    swiglu_clamp_exp: tuple[float, ...] = numbers("swiglu_clamp_exp")
    swiglu_clamp_shexp: tuple[float, ...] = numbers(
        "swiglu_clamp_shexp", lambda hp: list(hp.swiglu_clamp_exp)
    )
    indexer_n_head: int = uint("attention.indexer.head_count", least=1)
    indexer_head_size: int = uint("attention.indexer.key_length", least=1)
    indexer_top_k: int = uint("attention.indexer.top_k", least=1)
    n_groups: int = uint("attention.output_group_count", least=1)
    n_lora_o: int = uint("attention.output_lora_rank", least=1)
    freq_base_compressed: float = base("attention.compress_rope_freq_base")
    compress_ratios: tuple[int, ...] = uints("attention.compress_ratios", longer=True)
    n_stream: int = uint("hyper_connection.count", least=STREAMS, most=STREAMS)
    n_iter: int = uint("hyper_connection.sinkhorn_iterations", least=1, most=1000)
    stream_eps: float = number("hyper_connection.epsilon", least=0)
    n_layer_hash: int = uint("hash_layer_count", counts="first")

    def load(self, keys: Keys) -> None:
        super().load(keys)
        known = GATING_FUNCS.index("sqrt_softplus") + 1
        if self.expert_gating_func != known:
            raise keys.error("expert_gating_func", f"must be {known}")
        if any(n != 1 for n in self.n_head_kv):
            raise keys.error("attention.head_count_kv", "must be 1")
        if any(n % self.n_groups or not n for n in self.n_head):
            raise keys.error(
                "attention.output_group_count", f"must divide head_count = {self.n_head[0]}"
            )
        self._check_compressed(keys)
        self.n_ff_shexp = self.n_ff_exp[0] * self.n_expert_shared

    def _check_compressed(self, keys: Keys) -> None:
        key, trunk = "attention.compress_ratios", self.n_layer_all - self.n_layer_nextn
        if any(n not in (0, CHOSEN, ALL) for n in self.compress_ratios):
            raise keys.error(key, f"items must each be 0, {CHOSEN} or {ALL}")
        if any(self.compress_ratios[trunk:]):
            raise keys.error(key, "must be 0 for NextN layers")
        if self.n_layer_nextn and self.n_layer_hash > trunk:
            raise keys.error(
                "hash_layer_count",
                f"must be at most {trunk}, because the other layers are NextN layers",
            )
        size = self.indexer_head_size
        if CHOSEN in self.compress_ratios and (size % ROTATED or size < self.n_rot):
            raise keys.error(
                "attention.indexer.key_length",
                f"must be a multiple of {ROTATED}, and not below rope.dimension_count ="
                f" {self.n_rot}",
            )

    def window(self, il: int) -> Window | None:
        return Window(self.n_swa)

    def rope(self, il: int) -> Rope | None:
        offset = self.n_embd_head_k - self.n_rot
        return Rope(
            ROPE_NORMAL,
            self.n_rot,
            self.rope_freq_base_train,
            offset=offset,
            fixed=True,
            yarn=False,
        )

    @property
    def n_embd_hidden(self) -> int:
        return STREAMS * self.n_embd

    @property
    def rotates_keys(self) -> bool:
        """True if all keys are rotated like the indexer's, because they have the same size."""
        return self.n_embd_head_k == self.indexer_head_size and not self.n_embd_head_k % ROTATED

    def compressed_spec(self, il: int) -> CompressedSpec | None:
        """Return the compressed keys of layer il, which reach beyond its window, or None."""
        ratio = self.compress_ratios[il]
        if not ratio:
            return None
        kind = "csa" if ratio == CHOSEN else "hca"
        return CompressedSpec(kind, ratio, self.n_embd_head_k, ratio == CHOSEN, self.rotates_keys)

    def index(self, il: int) -> CompressedSpec | None:
        """Return the compressed keys of layer il's indexer."""
        if self.compress_ratios[il] != CHOSEN:
            return None
        return CompressedSpec("lid", CHOSEN, self.indexer_head_size, True, True)


class TableExperts(Experts):
    """Choose experts of tokens by a table, if any; for input embeddings by probabilities, with a
    separate bias, if any."""

    def __init__(self, w: Weights, hp: Deepseek4HParams, il: int) -> None:
        hashed, n_expert = il < hp.n_layer_hash, hp.n_expert
        super().__init__(
            w,
            hp,
            hp.n_ff_exp[il],
            experts=UNSCALED,
            routing=Routing(
                gating="sqrt_softplus", bias="no" if hashed else "needed", router_scaled=False
            ),
            weighing=Weighing(hp.expert_weights_norm, hp.expert_weights_scale),
            act=clamped_silu(hp.swiglu_clamp_exp[il]),
        )
        self.drafts = il >= hp.n_layer
        self.media_bias = w.optional_tensor("exp_probs_b_vl.bias", n_expert)
        self.table: Tensor | None = None
        if hashed:
            self.table = w.tensor("ffn_gate_tid2eid.weight", self.n_used, hp.n_vocab)

    def _select(self, g: GraphBuilder, logits: Tensor, il: int) -> tuple[Tensor, Tensor]:
        media = g.ubatch.token is None and not self.drafts
        if media or self.table is None:
            bias = self.media_bias if media and self.media_bias is not None else self.probs_bias
            probs = selection = g.cb(GATING[self.routing.gating](logits), "ffn_moe_probs", il)
            if bias is not None:
                selection = g.cb(add(probs, bias), "ffn_moe_probs_biased", il)
            if self.n_groups > 1:
                selection = self._mask_groups(g, selection, il)
            selected = argsort_top_k(selection, self.n_used)
            assert selected.src[0] is not None
            g.cb(selected.src[0], "ffn_moe_argsort", il)
            return probs, g.cb(selected, "ffn_moe_topk", il)
        if self.table.type is not I32:
            raise WeightsError(
                f"tensor {self.table.name!r} must be i32, got {self.table.type}; convert the "
                "model again"
            )
        probs = g.cb(GATING[self.routing.gating](logits), "ffn_moe_probs", il)
        return probs, g.cb(get_rows(self.table, g.inp_tokens), "ffn_moe_topk", il)


class Deepseek4(DraftingDecoder):
    arch = "deepseek4"
    HParams = Deepseek4HParams
    hp: Deepseek4HParams
    names = {"l_out": "l_last"}
    draft_names = DRAFT_NAMES_STREAMS
    reads_images = True
    gtypes: ClassVar[tuple[GraphType, ...]] = ("decoder", "decoder_mtp")

    def declare_ends(self, w: Weights) -> None:
        n_embd = self.hp.n_embd
        self.output_norm = w.norm("output_norm", n_embd)
        self.output = w.output(n_embd, self.hp.n_vocab)
        self.connections = HeadConnections(w, n_embd, eps=self.hp.stream_eps)

    def layer(self, w: Weights, il: int) -> StreamLayer:
        hp = self.hp
        shared = clamped_silu(hp.swiglu_clamp_shexp[il])
        return StreamLayer(
            self._connections(w, "hc_attn"),
            w.norm("attn_norm", hp.n_embd),
            self._attention(w, il),
            self._connections(w, "hc_ffn"),
            w.norm("ffn_norm", hp.n_embd),
            SharedExperts(w, hp, TableExperts(w, hp, il), hp.n_ff_shexp, scaled=False, act=shared),
            il >= hp.n_layer,
        )

    def _connections(self, w: Weights, stem: str) -> HyperConnections:
        hp = self.hp
        return HyperConnections(w, hp.n_embd, stem, n_iter=hp.n_iter, eps=hp.stream_eps)

    def _attention(self, w: Weights, il: int) -> CompressedAttention:
        hp, index = self.hp, self.hp.index(il)
        sizes = CompressedSizes(
            hp.n_embd,
            hp.n_head[il],
            hp.n_embd_head_k,
            hp.n_rot,
            hp.n_lora_q,
            hp.n_groups,
            hp.n_lora_o,
            hp.freq_base_compressed,
            hp.compressed_spec(il),
        )
        indexer = None
        if index is not None:
            indexer = CompressedIndexer(
                w,
                n_embd=hp.n_embd,
                n_lora_q=hp.n_lora_q,
                n_head=hp.indexer_n_head,
                kept=index,
                n_chosen=hp.indexer_top_k,
            )
        drafts = il >= hp.n_layer
        return CompressedAttention(w, sizes, n_window=hp.n_swa, indexer=indexer, drafts=drafts)

    def declare_nextn(self, w: Weights) -> None:
        made = ((w.layer(il), self.layer(w.layer(il), il)) for il in self.nextn_layers(w))
        self.drafting = [StreamNextN(own, self.hp, layer) for own, layer in made]

    def memory_spec(self, il: int) -> MemorySpecs:
        hp = self.hp
        near = KVCacheSpec(
            1,
            hp.n_embd_head_k,
            0,
            hp.window(il),
            hp.rope(il),
            apart=il < hp.n_layer,
            rotated=hp.rotates_keys,
        )
        return tuple(one for one in (near, hp.compressed_spec(il), hp.index(il)) if one is not None)

    def embed(self, g: GraphBuilder) -> Tensor:
        embd, near = super().embed(g), g.inp_attn(0)
        near.k_idxs.name = ""
        g.expand(near.kq_mask)
        return g.cb(spread(embd), "hc_init")

    def layer_input(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Return the mean of the streams."""
        cur = g.cb(mean(cur), "layer_inp", il)
        return g.expand(cur) if il in g.cparams.embeddings_layer_inp else cur

    def skips_unused_rows(self, g: GraphBuilder) -> bool:
        return False

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        flat = g.outputs(join_streams(cur))[0]
        if g.cparams.embeddings_nextn:
            g.res.t_h_nextn = g.cb(flat if g.cparams.embeddings_nextn_masked else cur, "h_nextn")
        x = reshape(flat, self.hp.n_embd, STREAMS, flat.ne[1])
        cur = self.output_norm(g, self.connections.read(g, x, "hc_head"), "result_norm")
        g.res.t_embd = cur
        self.head(g, cur)

    def lm_head(self, nextn: int | None = None) -> Linear | None:
        return own_head(None if nextn is None else self.drafting[nextn], self.output)

    def build_draft(self, g: GraphBuilder) -> None:
        number = g.cparams.nextn_layer
        il, one = self.hp.n_layer + number, self.drafting[number]
        cur = one.build(g, self.token_embd, self.connections, self.output_norm, il)
        g.res.t_embd = cur
        self.head(g, cur, own_head(one, self.output))
