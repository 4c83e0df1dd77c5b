"""WavTokenizer's decoder: converts sound codes to the spectrum of each frame, by convolutions along
the text (models/wavtokenizer-dec.cpp). Its results are embeddings; it has no logits."""

from __future__ import annotations

from dataclasses import dataclass

from ggml_py.ops import (
    add,
    cont,
    gelu,
    group_norm,
    mul,
    mul_mat,
    reshape,
    sigmoid,
    soft_max_ext,
    transpose,
)
from ggml_py.ops.conv import conv_1d, conv_1d_dw
from ggml_py.tensor import Tensor
from llama_py.blocks.functions import inv_sqrt
from llama_py.gguf.keys import Keys, number, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.tokens import OneSequence
from llama_py.graph.linear import Linear, Norm
from llama_py.hparams import EPS, HParams
from llama_py.models.trunks.architecture import Architecture
from llama_py.weights import Weights


class WavTokenizerHParams(HParams):
    """n_embd_conv  dimensions of convolutions; n_posnet, n_convnext  numbers of blocks"""

    causal_attn = cached = False
    n_embd: int = uint("features_length", least=1)
    n_embd_out: int = uint("embedding_length", least=1)
    f_norm_eps: float = number(EPS, least=0)
    f_norm_group_eps: float = number("attention.group_norm_epsilon", least=0)
    n_norm_groups: int = uint("attention.group_norm_groups", least=1)
    n_embd_conv: int = uint("posnet.embedding_length", least=1)
    n_posnet: int = uint("posnet.block_count", most=6)
    n_embd_convnext: int = uint("convnext.embedding_length", least=1)
    n_convnext: int = uint("convnext.block_count")

    def load(self, keys: Keys) -> None:
        n = self.n_embd_conv
        if self.n_embd_convnext != n:
            raise keys.error("convnext.embedding_length", f"must be posnet.embedding_length = {n}")
        for key, blocks in (("posnet", self.n_posnet), ("convnext", self.n_convnext)):
            if blocks > self.n_layer_all:
                rule = f"must be at most block_count = {self.n_layer_all}"
                raise keys.error(f"{key}.block_count", rule)


@dataclass(slots=True)
class Conv:
    """Convolution along the text with padding. weight [K, n_in, n_out], bias [1, n_out]"""

    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Convolve x: [n_tokens, n_in] -> [n_tokens, n_out]."""
        return add(conv_1d(self.weight, x, 1, self.weight.ne[0] // 2, 1), self.bias)


@dataclass(slots=True)
class GroupNorm:
    """Groups of dimensions with mean 0 and mean square 1. weight, bias [1, n_embd]"""

    weight: Tensor
    bias: Tensor

    def __call__(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Normalize groups of dimensions: [n_tokens, n_embd] -> same shape."""
        hp: WavTokenizerHParams = g.hp  # type: ignore[assignment]
        n, n_embd = x.ne[:2]
        cur = group_norm(reshape(x, n, 1, n_embd), hp.n_norm_groups, hp.f_norm_group_eps)
        cur = g.cb(reshape(cur, n, n_embd), "norm", 0)
        return add(g.cb(mul(cur, self.weight), "norm_w", 0), self.bias)


class Resnet:
    """Residual block x + conv(swish(norm(conv(swish(norm(x))))))."""

    def __init__(self, w: Weights, n: int) -> None:
        self.steps = [(_norm(w, f"norm{i}", n), _conv(w, f"conv{i}", 3, n, n)) for i in (1, 2)]

    def __call__(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Apply the block: [n_tokens, n_embd] -> same shape."""
        cur = x
        for norm, conv in self.steps:
            cur = norm(g, cur)
            cur = conv(mul(sigmoid(cur), cur))
        return add(cur, x)


class FrameAttention:
    """x + attention of one head to all of the text."""

    def __init__(self, w: Weights, n: int) -> None:
        self.norm = _norm(w, "attn_norm", n)
        stems = ("attn_q", "attn_k", "attn_v", "attn_output")
        self.q, self.k, self.v, self.output = (_conv(w, stem, 1, n, n) for stem in stems)

    def __call__(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Attend over all frames: [n_tokens, n_embd] -> same shape."""
        cur = self.norm(g, x)
        q, k, v = self.q(cur), self.k(cur), self.v(cur)
        q, k = cont(transpose(q)), cont(transpose(k))
        kq = soft_max_ext(mul_mat(k, q), None, inv_sqrt(q.ne[0]), 0.0)
        return add(self.output(mul_mat(kq, v)), x)


class ConvNext:
    """x + gamma * feed_forward(norm(conv(x))), with a separate convolution per dimension."""

    def __init__(self, w: Weights, hp: WavTokenizerHParams) -> None:
        n, n_ff = hp.n_embd_conv, hp.n_ff[0]
        self.dw, self.dw_bias = w.tensor("dw.weight", 7, 1, n), w.tensor("dw.bias", 1, n)
        self.norm = w.norm("norm", n, kind="layer", bias="needed")
        self.up = w.linear("pw1", n, n_ff, bias="needed", scaled=False)
        self.down = w.linear("pw2", n_ff, n, bias="needed", scaled=False)
        self.gamma = w.tensor("gamma.weight", n)

    def __call__(self, g: GraphBuilder, x: Tensor, il: int) -> Tensor:
        """Apply the block: [n_tokens, n_embd] -> same shape."""
        cur = add(conv_1d_dw(self.dw, x, 1, self.dw.ne[0] // 2, 1), self.dw_bias)
        cur = self.norm(g, cont(transpose(cur)))
        cur = g.cb(_apply_linear(g, self.up, cur, "ffn_up", il), "ffn_up_b", il)
        cur = _apply_linear(g, self.down, g.cb(gelu(cur), "ffn_gelu", il), "ffn_down", il)
        return add(cont(transpose(mul(cur, self.gamma))), x)


def _apply_linear(g: GraphBuilder, linear: Linear, x: Tensor, name: str, il: int) -> Tensor:
    assert linear.bias is not None
    return add(g.cb(linear.matmul(g, x), name, il), linear.bias)


def _conv(w: Weights, stem: str, width: int, n_in: int, n_out: int) -> Conv:
    return Conv(w.tensor(f"{stem}.weight", width, n_in, n_out), w.tensor(f"{stem}.bias", 1, n_out))


def _norm(w: Weights, stem: str, n: int) -> GroupNorm:
    return GroupNorm(w.tensor(f"{stem}.weight", 1, n), w.tensor(f"{stem}.bias", 1, n))


class WavTokenizer(Architecture):
    arch = "wavtokenizer-dec"
    HParams = WavTokenizerHParams
    hp: WavTokenizerHParams

    def declare(self, w: Weights) -> None:
        hp, n = self.hp, self.hp.n_embd_conv
        self.token_embd = w.tensor("token_embd.weight", hp.n_embd, hp.n_vocab)
        self.conv = _conv(w, "conv1d", 7, hp.n_embd, n)
        self.posnet = [self._block(w.scope(f"posnet.{i}."), i) for i in range(hp.n_posnet)]
        self.tok_norm = self._layer_norm(w, "token_embd_norm")
        self.convnext = [ConvNext(w.scope(f"convnext.{i}."), hp) for i in range(hp.n_convnext)]
        self.output_norm = self._layer_norm(w, "output_norm")
        self.output = w.linear("output", n, hp.n_embd_out, bias="needed", scaled=False)

    def _block(self, w: Weights, i: int) -> Resnet | FrameAttention | GroupNorm:
        """Declare block i of two resnets, attention, two resnets, norm."""
        n = self.hp.n_embd_conv
        if i == 2:
            return FrameAttention(w, n)
        return _norm(w, "attn_norm", n) if i == 5 else Resnet(w, n)

    def _layer_norm(self, w: Weights, stem: str) -> Norm:
        return w.norm(stem, self.hp.n_embd_conv, kind="layer", bias="needed")

    def build(self, g: GraphBuilder) -> None:
        g.add_input(OneSequence())
        cur = self.conv(cont(transpose(g.input_embd(self.token_embd))))
        for block in self.posnet:
            cur = block(g, cur)
        cur = self.tok_norm(g, cont(transpose(cur)), il=0)
        cur = cont(transpose(cur))
        for il, layer in enumerate(self.convnext):
            cur = layer(g, cur, il)
        cur = self.output(g, self.output_norm(g, cont(transpose(cur))))
        g.res.t_embd = g.expand(g.cb(cur, "result_embd"))
