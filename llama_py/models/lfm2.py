"""LFM2: short convolutions, and attention in some layers, perhaps windowed (models/lfm2.cpp)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ggml_py.ops import add, cont, mul, pad_ext, transpose, view
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import QKV, Attention, attend_within, head_norms
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.functions import split
from llama_py.blocks.rope import rope
from llama_py.blocks.short_conv import ShortConv
from llama_py.gguf.keys import Keys, number, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.media import InputMediaMask, InputNeighbors
from llama_py.graph.linear import Linear
from llama_py.hparams import EPS, RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX, Window
from llama_py.hparams.shard import Shard
from llama_py.memory.specs import KVCacheSpec, MemorySpecs
from llama_py.models.trunks.architecture import AnyHParams
from llama_py.models.trunks.decision import KindScorer, ScoringHParams
from llama_py.models.trunks.decoder import Block, Decoder
from llama_py.models.trunks.hybrid import MixedHParams, OperatorLayer
from llama_py.weights import Weights

if TYPE_CHECKING:
    from typing_extensions import Self

WIDTH = 3  # width of a decision model's convolutions
NAMES = {
    "embd": "model.embed_tokens",
    "attn_norm": "model.layers.{}.operator_norm",
    "Qcur_normed": "model.layers.{}.self_attn.q_layernorm",
    "Kcur_normed": "model.layers.{}.self_attn.k_layernorm",
    "attn_out": "model.layers.{}.self_attn.out_proj",
    "shortconv_in": "model.layers.{}.conv.in_proj",
    "shortconv": "model.layers.{}.conv.conv",
    "shortconv_out": "model.layers.{}.conv.out_proj",
    "ffn_norm": "model.layers.{}.ffn_norm",
    "ffn_out": "model.layers.{}.ffn_out",
}


class Lfm2HParams(ScoringHParams, MixedHParams):
    """Hyperparameters of LFM2: `n_shortconv_l_cache` is the width of convolutions, `n_embd_conv`
    the number of their dimensions, in layers without key heads."""

    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_shortconv_l_cache: int = uint("shortconv.l_cache", least=2)
    n_swa: int = uint("attention.sliding_window", 0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self._set_channels(self.n_embd)
        if self.n_layer_decision:
            self.f_norm_eps = keys.number(EPS)
            if self.n_shortconv_l_cache != WIDTH:
                raise keys.error("shortconv.l_cache", f"must be {WIDTH} in a decision model")

    def _set_channels(self, n: int) -> None:
        self.n_embd_conv, self.n_embd_r = n, (self.n_shortconv_l_cache - 1) * n

    def shared(self, share: Shard) -> Self:
        hp = super().shared(share)
        for il in filter(self.is_recr, range(self.n_layer)):
            hp._set_channels(share.count_own(self.n_embd, 1, "shortconv.out_proj", il=il))
        return hp

    def window(self, il: int) -> Window | None:
        without = self.n_layer_decision or self.is_recr(il)
        return Window(self.n_swa) if self.n_swa and not without else None


class Lfm2Attention(Attention):
    parts_keep = KVCacheSpec

    def place(self, g: GraphBuilder, qkv: QKV, il: int) -> tuple[Tensor, Tensor]:
        return rope(g, qkv.q, il), rope(g, qkv.k, il)


class MediaAttention(Lfm2Attention):
    """Attention within the ubatch; media tokens do not attend to text."""

    own_kind = False

    def attend(self, g: GraphBuilder, qkv: QKV, il: int) -> Tensor:
        inp = media_masks(g)[self.own_kind]
        return attend_within(g, QKV(*self.place(g, qkv, il), qkv.v), il, self.scores(g, il), inp)


class OwnKindAttention(MediaAttention):
    """Attention without RoPE; text and media tokens attend only to their own type."""

    own_kind = True

    def place(self, g: GraphBuilder, qkv: QKV, il: int) -> tuple[Tensor, Tensor]:
        return qkv.q, qkv.k


def media_masks(g: GraphBuilder) -> list[Tensor]:
    """Return the masks of a decision model's trunk and head."""

    def create() -> list[Tensor]:
        return [g.add_input(InputMediaMask(g.params, own)).kq_mask for own in (False, True)]

    return g.shared("media_masks", create)


class BareLayer(OperatorLayer):
    """Layer of a decision model's trunk; its sums and the feed-forward's norm have no names."""

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        normed = self.norm(g, cur, NAMES["attn_norm"], il)
        cur = add(self.operator(g, normed, il), cur)
        return add(cur, self.feed_forward(g, self.ffn_norm(g, cur, il=il), il))


class NeighborConv(ShortConv):
    """Short convolution over a token and the tokens before and after it, without a state."""

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        bcx, size = g.cb(self.in_proj(g, cur), "shortconv_in", il), (self.n, g.n_tokens)
        b, c, x = split(bcx, [self.n] * 3)
        bx = mul(b, x)
        padded = pad_ext(bx, 0, 0, 1, 1, 0, 0, 0, 0)
        near = g.shared("neighbors", lambda: g.add_input(InputNeighbors(g.params)))
        taps = cont(transpose(self.conv))
        before, own, after = (view(taps, (self.n,), offset=i * self.n) for i in range(WIDTH))
        y = mul(bx, own)
        y = add(y, mul(mul(view(padded, size), before), near.left))
        y = add(y, mul(mul(view(padded, size, offset=2 * self.n), after), near.right))
        g.cb(y, "shortconv", il)
        return g.cb(self.out_proj(g, mul(c, y)), "shortconv_out", il)


class Lfm2(Decoder):
    arch = "lfm2"
    HParams = Lfm2HParams
    hp: Lfm2HParams
    names = NAMES
    block: ClassVar[type[OperatorLayer]] = OperatorLayer
    conv: ClassVar[type[ShortConv]] = ShortConv
    attention: ClassVar[type[Attention]] = Lfm2Attention

    def __new__(cls, hp: AnyHParams, *_: Any, **__: Any) -> Lfm2:
        """Create a `Lfm2Decision` for a file with a decision head."""
        decides = isinstance(hp, Lfm2HParams) and hp.n_layer_decision
        return super().__new__(Lfm2Decision if decides else cls)

    @classmethod
    def size_name(cls, hp: AnyHParams) -> str:
        if cls.sizes:
            return super().size_name(hp)
        sizes = {2560: "230M", 4608: "350M", 6912: "700M", 8192: "1.2B", 10752: "2.6B"}
        return sizes.get(hp.n_ff[0], "?B")

    def declare_ends(self, w: Weights) -> None:
        hp = self.hp
        self.output_norm = w.norm("token_embd_norm", hp.n_embd)  # this tensor's name in files
        self.output = w.output(hp.n_embd, hp.n_vocab)
        dense = w.optional_linear("dense_2", hp.n_embd, hp.n_embd_out, bias=True, scaled=False)
        self.dense_out = () if dense is None else (dense,)

    def layer(self, w: Weights, il: int) -> OperatorLayer:
        hp, n_embd = self.hp, self.hp.n_embd
        operator: Block
        if hp.is_recr(il):
            operator = self.conv(
                w, n_embd, hp.n_embd_conv, hp.n_shortconv_l_cache, causal=hp.causal_attn
            )
        else:
            operator = self.attention(w, hp, norms=head_norms(w, hp), name="attn_out")
        return self.block(
            w.norm("attn_norm", n_embd),
            operator,
            w.norm("ffn_norm", n_embd),
            self.feed_forward(w, il),
            ffn_name="ffn_out",
        )

    def feed_forward(self, w: Weights, il: int) -> Block:
        return FeedForward(w, self.hp.n_embd, self.hp.layers[il].n_ff, scaled=False, name="")

    def head(self, g: GraphBuilder, cur: Tensor, output: Linear | None = None) -> None:
        if g.cparams.embeddings:
            g.expand(cur)
        else:
            super().head(g, cur, output)


class Lfm2Decision(Lfm2):
    """Model that scores markers of options, without a KV cache; media do not attend to text."""

    names = {key: "" if key.endswith("_normed") else name for key, name in NAMES.items()}
    del names["attn_norm"], names["ffn_norm"]  # layers of the head have the usual names
    block = BareLayer
    conv = NeighborConv
    attention = MediaAttention

    def declare_ends(self, w: Weights) -> None:
        self.output_norm = w.norm("token_embd_norm", self.hp.n_embd)
        self.scorer = KindScorer(w, self.hp, OwnKindAttention)

    def memory_spec(self, il: int) -> MemorySpecs:
        return ()

    def skips_unused_rows(self, g: GraphBuilder) -> bool:
        return False

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        cur = self.scorer(g, self.output_norm(g, cur, "result_norm"))
        g.res.t_embd = g.expand(cur)

    def lm_head(self, nextn: int | None = None) -> None:
        return None
