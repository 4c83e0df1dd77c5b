"""DFlash: layers that draft a block of tokens at once, from mask tokens. They store keys and values
computed from the other model's hidden states; a block attends to these and to its own tokens
(models/dflash.cpp).

A head after it may choose each token by the one before it (DSpark), or convolutions along the
block and scores of pairs of tokens (DFlash2), or layers of attention between candidates of a block
that get the state before it, and scores of pairs (LiLiCorr, llama.cpp b11739). Layers may be
DeepSeek-V4's, with several residual streams (`_dflash_streams.py`).

If blocks have different lengths, or a key or a tensor does not fit, llama.cpp ends the process;
here that is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ggml_py.errors import WeightsError
from ggml_py.ops import add, mul, reshape, rms_norm, scale, tanh
from ggml_py.tensor import Tensor
from llama_py.blocks.activation import GELU, SILU
from llama_py.blocks.attention import QKV, attend
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.functions import inv_sqrt
from llama_py.blocks.hyper_connections import HeadConnections
from llama_py.blocks.rope import rope
from llama_py.blocks.softmax import Scores
from llama_py.gguf.keys import Keys, divisor, flag, number, text, uint, uints
from llama_py.graph.borrowed import TargetTensors
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.tokens import InputEmbd, InputEmbdH
from llama_py.hparams import RMS_EPS, HParams
from llama_py.hparams.cparams import CParams
from llama_py.hparams.layer_shape import ROPE_MROPE, ROPE_NEOX, ROPE_NORMAL, Rope, Window
from llama_py.memory.kv_rot import rotate
from llama_py.memory.specs import KVCacheSpec, MemorySpecs
from llama_py.models.trunks.architecture import Architecture
from llama_py.models.trunks.dflash_streams import StreamBlockLayer, StreamSizes
from llama_py.models.trunks.draft import Ends, target_layers
from llama_py.models.trunks.draft_heads import BlockConv, MarkovHead, Selector
from llama_py.models.trunks.lilicorr import LiLiCorr, LiLiCorrSizes, read_sizes
from llama_py.models.trunks.rules import DraftBlock, DraftRules
from llama_py.models.trunks.streams import spread
from llama_py.weights import Weights

MARKOV = "markov_w1.weight"
ACTIVATIONS = {"silu": SILU, "gelu": GELU, "gelu_pytorch_tanh": GELU}


class DFlashHParams(HParams):
    """block_size  tokens of a block;  sample_from_anchor  the first is a draft token as well

    n_kernel, n_group   of convolutions;  selector_rank, selector_top_k   of pair scores
    """

    mixes_embd = False
    required_heads = equal_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    rope_sections: tuple[int, ...] = uints("rope.dimension_sections", 0, count=lambda _: 4)
    causal_attn: bool = flag("attention.causal", False)
    embedding_scale: float = number("embedding_scale", 0.0)
    attention_scale: float = number("attention.scale", 0.0)
    value_scale: float = number("attention.value_scale", 0.0)
    logit_scale: float = number("logit_scale", 0.0)
    final_logit_softcap: float = divisor("final_logit_softcapping", 0.0)
    hidden_act: str = text("hidden_activation", "silu", choices=tuple(ACTIVATIONS))
    block_size: int = uint("block_size", 16, least=1, most=4096)
    sample_from_anchor: bool = flag("sample_from_anchor", True)
    n_kernel: int = uint("conv_kernel_size", 0)
    n_group: int = uint("conv_group_size", 0)
    selector_rank: int = uint("selector_rank", 0)
    selector_top_k: int = uint("selector_top_k", 0)
    n_swa: int = uint("attention.sliding_window", 0)
    n_streams: int = uint("hyper_connection.count", 0)
    swa_layers: tuple[bool, ...] = ()
    streams: StreamSizes | None = None
    lilicorr: LiLiCorrSizes | None = None

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.target_layers = target_layers(keys, "the layers that it drafts from")
        self.lilicorr = read_sizes(keys, self.n_embd, self.n_vocab, self.block_size)
        if self.n_layer_nextn:
            raise keys.error("nextn_predict_layers", "must be 0")
        if self.n_streams:
            self.streams = StreamSizes(keys, self)
            self.swa_layers = (True,) * self.n_layer_all
            if self.lilicorr is not None:
                raise keys.error("hyper_connection.count", "must be 0 for a model with LiLiCorr")
        elif self.n_swa:
            key = "attention.sliding_window_pattern"
            self.swa_layers = keys.flags(key, self.n_layer_all)
            if not any(self.swa_layers):
                raise keys.error(key, "must give at least one layer a window")

    def _check_rope(self, keys: Keys) -> None:
        plain = ROPE_NORMAL if self.n_streams else ROPE_NEOX
        self.rope_type = ROPE_MROPE if any(self.rope_sections) else plain
        super()._check_rope(keys)

    def rope(self, il: int) -> Rope | None:
        return super().rope(il) if self.streams is None else self.streams.rope(self)

    def window(self, il: int) -> Window | None:
        return Window(self.n_swa) if self.swa_layers and self.swa_layers[il] else None

    def check_pairs(self, where: str) -> None:
        """Raise WeightsError if the scores of pairs do not fit the model."""
        sizes = self.selector_rank, self.selector_top_k, self.n_kernel, self.n_group
        if not all(sizes):
            raise WeightsError(
                f"{where}: sizes of convolutions and pair scores are missing; convert the model "
                "again"
            )
        if self.n_embd % self.n_group:
            raise WeightsError(
                f"{where}: conv_group_size must divide {self.n_embd} dimensions, got {self.n_group}"
            )
        k = self.selector_top_k
        if k * (k + 1) > self.n_embd or k > self.n_vocab:
            raise WeightsError(
                f"{where}: selector_top_k = {k} needs {k * (k + 1)} dimensions, but the model "
                f"has {self.n_embd}"
            )

    @property
    def n_embd_inp(self) -> int:
        return len(self.target_layers) * self.n_embd


class BlockLayer:
    """Layer of attention and feed-forward that also stores keys and values computed from the other
    model's hidden states."""

    def __init__(self, w: Weights, hp: DFlashHParams, conv: bool) -> None:
        n_embd, shape = hp.n_embd, hp.layers[w.il]
        d = shape.n_embd_head_k
        self.heads, self.heads_kv = (d, shape.n_head), (d, shape.n_head_kv)
        self.value_scale = hp.value_scale
        self.attn_norm = w.norm("attn_norm", n_embd)
        self.q = w.linear("attn_q", n_embd, shape.n_embd_q)
        self.k = w.linear("attn_k", n_embd, shape.n_embd_k_gqa)
        self.v = w.optional_linear("attn_v", n_embd, shape.n_embd_v_gqa)
        self.output = w.linear("attn_output", shape.n_embd_v_out, n_embd)
        self.q_norm, self.k_norm = w.norm("attn_q_norm", d), w.norm("attn_k_norm", d)
        self.attn_post_norm = w.optional_norm("post_attention_norm", n_embd)
        self.ffn_post_norm = w.optional_norm("post_ffw_norm", n_embd)
        self.out_scale = w.optional_tensor("layer_output_scale.weight", 1)
        sinks = w.optional_tensor("attn_sinks.weight", shape.n_head)
        self.scores = Scores(hp.attention_scale or inv_sqrt(d), sinks)
        self.ffn_norm = w.norm("ffn_norm", n_embd)
        self.feed_forward = FeedForward(w, n_embd, shape.n_ff, act=ACTIVATIONS[hp.hidden_act])
        self.convs: dict[str, BlockConv] = {}
        if conv:
            sizes = n_embd, hp.n_kernel, hp.n_group
            self.convs = {s: BlockConv(w, f"{s}_conv", *sizes) for s in ("attn", "ffn")}

    def keys_values(
        self, g: GraphBuilder, cur: Tensor, il: int, freqs: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute keys and values: [n_embd, n_tokens] -> [d, n_head_kv, n_tokens] each."""
        k = self.k(g, cur)
        v = k if self.v is None else self.v(g, cur)
        k, v = (reshape(t, *self.heads_kv, g.n_tokens) for t in (k, v))
        k = self.k_norm(g, k, il=il)
        if self.v is None:
            v = rms_norm(v, g.hp.f_norm_rms_eps)
        return rope(g, k, il, freqs), v

    def store(self, g: GraphBuilder, cur: Tensor, il: int, freqs: Tensor | None) -> None:
        """Store keys and values of the other model's hidden states. cur [n_embd, n_tokens]"""
        k, v = self.keys_values(g, cur, il, freqs)
        k, v = g.cb(k, "Kcur_injected", il), g.cb(v, "Vcur_injected", il)
        inp = g.inp_attn(il)
        assert inp.v_idxs is not None
        k = k if inp.k_rot is None else rotate(k, inp.k_rot)
        v = v if inp.v_rot is None else rotate(v, inp.v_rot)
        g.expand(inp.mctx.cpy_k(k, inp.k_idxs, il))
        g.expand(inp.mctx.cpy_v(v, inp.v_idxs, il))

    def __call__(self, g: GraphBuilder, residual: Tensor, il: int, freqs: Tensor | None) -> Tensor:
        """Apply the layer to a block: [n_embd, n_tokens] -> same shape."""
        cur = self.attn_norm(g, residual, "noise_norm", il)
        cur = self._between_convolutions(
            g, "attn", cur, il, lambda x: self._attend(g, x, il, freqs)
        )
        if self.attn_post_norm is not None:
            cur = self.attn_post_norm(g, cur, "attn_post_norm", il)
        ffn_inp = g.cb(add(cur, residual), "ffn_inp", il)
        cur = self.ffn_norm(g, ffn_inp, "ffn_norm", il)
        cur = self._between_convolutions(g, "ffn", cur, il, lambda x: self.feed_forward(g, x, il))
        if self.ffn_post_norm is not None:
            cur = self.ffn_post_norm(g, cur, "ffn_post_norm", il)
        cur = add(cur, ffn_inp)
        return g.cb(cur if self.out_scale is None else mul(cur, self.out_scale), "l_out", il)

    def _between_convolutions(
        self, g: GraphBuilder, what: str, cur: Tensor, il: int, inner: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Apply `inner` between two convolutions, if the layer has them."""
        conv = self.convs.get(what)
        if conv is None:
            return inner(cur)
        own = conv.proj(g, cur)
        cur = inner(g.cb(conv(g, cur, own, 0), f"{what}_conv_in", il))
        return g.cb(conv(g, cur, own, 1), f"{what}_conv_out", il)

    def _attend(self, g: GraphBuilder, cur: Tensor, il: int, freqs: Tensor | None) -> Tensor:
        q = reshape(self.q(g, cur), *self.heads, g.n_tokens)
        q = rope(g, self.q_norm(g, q, il=il), il, freqs)
        k, v = self.keys_values(g, cur, il, freqs)
        qkv = QKV(g.cb(q, "Qcur", il), g.cb(k, "Kcur", il), g.cb(v, "Vcur", il))
        cur = self.output(g, attend(g, qkv, il, self.scores))
        factor = self.value_scale
        return g.cb(scale(cur, factor), "attn_out_scaled", il) if factor else cur


class DFlash(Architecture):
    arch = "dflash"
    HParams = DFlashHParams
    hp: DFlashHParams
    gtypes = ("decoder", "encoder")

    @classmethod
    def draft_method(cls, names: Iterable[str]) -> str:
        return "draft-dspark" if MARKOV in names else "draft-dflash"

    def declare(self, w: Weights) -> None:
        hp, n_embd = self.hp, self.hp.n_embd
        self.ends = ends = Ends(w, hp)
        ends.token_embd = w.optional_tensor("token_embd.weight", n_embd, hp.n_vocab)
        self.fc = w.linear("fc", hp.n_embd_inp, n_embd)
        self.fc_norm = w.norm("enc.output_norm", n_embd)
        self.output_norm = w.norm("output_norm", n_embd)
        ends.declare_output(w)
        self.freqs: Tensor | None = None
        if hp.rope_type == ROPE_NEOX:
            self.freqs = w.optional_tensor("rope_freqs.weight", hp.n_embd_head_k // 2)
        self.markov: MarkovHead | None = None
        if w.has(MARKOV):
            first = int(not hp.sample_from_anchor)
            self.markov = MarkovHead(w, n_embd, hp.n_vocab, ends.some, hp.block_size, first)
        self.selector: Selector | None = None
        if w.has("selector_hidden.weight"):
            hp.check_pairs(w.source)
            sizes = hp.selector_rank, hp.selector_top_k, hp.block_size
            self.selector = Selector(w, n_embd, hp.n_vocab, *sizes)
        pairs = self.selector is not None
        self.lilicorr: LiLiCorr | None = None
        if hp.lilicorr is not None:
            self._check_alone(w)
            self.lilicorr = LiLiCorr(w, hp.lilicorr, hp.n_layer)
        self.connections: HeadConnections | None = None
        if hp.streams is not None:
            self.connections = HeadConnections(w, n_embd, eps=hp.streams.eps)
        self.layers = [self._layer(w.layer(il), pairs) for il in range(hp.n_layer)]
        chained, first = self.markov is not None, int(not hp.sample_from_anchor)
        sure = self.markov is not None and self.markov.sure is not None
        n_pairs, anchored = hp.selector_top_k * pairs, hp.lilicorr is not None
        if hp.lilicorr is not None:
            n_pairs = hp.lilicorr.top_k
        first = first if chained else 1
        block = DraftBlock(hp.block_size, first, chained, sure, n_pairs, anchored)
        self.draft_rules = DraftRules(self.draft_method(w.infos), hp.target_layers, block)

    def _check_alone(self, w: Weights) -> None:
        """Raise WeightsError if the file has another head in addition to LiLiCorr."""
        if self.markov is not None or self.selector is not None:
            raise WeightsError(
                f"{w.source}: the file has two heads that choose tokens, LiLiCorr and another; "
                "convert the model again"
            )

    def _layer(self, w: Weights, pairs: bool) -> BlockLayer | StreamBlockLayer:
        if self.hp.streams is not None:
            return StreamBlockLayer(w, self.hp, self.hp.streams)
        return BlockLayer(w, self.hp, pairs)

    def memory_spec(self, il: int) -> MemorySpecs:
        if self.hp.streams is None:
            return super().memory_spec(il)
        return (KVCacheSpec(1, self.hp.n_embd_head_k, 0, self.hp.window(il), self.hp.rope(il)),)

    def rope_factors(self, cparams: CParams, il: int) -> Tensor | None:
        return self.freqs

    def placeholder_tensors(self) -> TargetTensors:
        return self.ends.placeholder_tensors()

    def build_encoder(self, g: GraphBuilder) -> None:
        n_inp = self.hp.n_embd_inp
        cur = g.add_input(InputEmbd(n_inp, g.n_tokens, ("", "inp_embd"))).embd
        cur = self.fc_norm(g, g.cb(self.fc(g, cur), "fc_out"), "enc_norm_out")
        g.res.t_embd = g.res.t_h_nextn = g.expand(cur)

    def build(self, g: GraphBuilder) -> None:
        if g.ubatch.token is None:
            self._store(g)
            return
        inp = g.add_input(InputEmbdH(self.hp.n_embd, g.n_tokens, name=""))
        cur, factor = self.ends.rows(g, inp.tokens), self.hp.embedding_scale
        cur = g.cb(scale(cur, factor) if factor else cur, "inp_noise_embd")
        if self.connections is not None:
            cur = g.cb(spread(cur), "hc_init")
        for il, layer in enumerate(self.layers):
            cur = layer(g, cur, il, self.freqs)
        if self.connections is not None:
            g.res.t_embd = self.connections.read(g, cur, "hc_head")
            cur = self.output_norm(g, g.res.t_embd, "result_norm")
        else:
            g.res.t_embd = cur = self.output_norm(g, cur, "result_norm")
        cur = self._logits(g, cur)
        g.res.t_logits = g.expand(g.cb(cur, "result_output"))
        for head in (self.markov, self.selector):
            if head is not None:
                head(g, inp.tokens)
        if self.lilicorr is not None:
            self._correlate(g, self.lilicorr, inp.h)

    def _correlate(self, g: GraphBuilder, head: LiLiCorr, states: Tensor) -> None:
        """Apply LiLiCorr to whole blocks with states before them."""

        def rows(ids: Tensor) -> Tensor:
            return self.ends.rows(g, ids)

        logits, hidden = g.res.t_logits, g.res.t_embd
        assert logits is not None and hidden is not None
        whole = g.n_tokens == g.ubatch.n_seqs_unq * self.hp.block_size
        if whole and g.ubatch.embd is not None:
            g.res.t_h_nextn = head(g, rows, logits, hidden, states)
        elif g.params.target_tensors.stands_in:
            head.build_unused(g, rows)

    def _store(self, g: GraphBuilder) -> None:
        """Store keys and values of every layer for the other model's hidden states."""
        names = ("", "inp_target_features")
        cur = g.add_input(InputEmbd(self.hp.n_embd_inp, g.n_tokens, names)).embd
        cur = self.fc_norm(g, self.fc(g, cur), "inp_g_embeddings")
        for il, layer in enumerate(self.layers):
            layer.store(g, cur, il, self.freqs)
        g.res.t_embd = g.expand(cur)

    def _logits(self, g: GraphBuilder, cur: Tensor) -> Tensor:
        """Compute logits for drafting: [n_embd, n_tokens] -> [n_vocab, n_tokens]."""
        cur, hp = self.ends.logits(g, cur), self.hp
        if self.selector is not None:
            cur = scale(cur, hp.logit_scale) if hp.logit_scale else cur
            if cap := hp.final_logit_softcap:
                cur = scale(tanh(scale(cur, 1.0 / cap)), cap)
        return cur if self.ends.some is None else self.ends.some(g, cur)
