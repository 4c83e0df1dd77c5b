"""Base class of decoders: embeddings, layers, norm, head."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from ggml_py._moved import Former
from ggml_py.ops import add, scale, tanh
from ggml_py.tensor import Tensor
from llama_py.blocks.rope import RopeFactors
from llama_py.graph.borrowed import TargetTensors
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Linear, Norm
from llama_py.hparams.cparams import CParams
from llama_py.models.trunks.architecture import Architecture
from llama_py.weights import Bias, Weights


class Block(Protocol):
    """Interface of attention, feed-forward, and their replacements."""

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Apply the block: [n_embd, n] -> same shape."""


class BlockSum(Protocol):
    """Several blocks with one sum of their results."""

    def __call__(self, g: GraphBuilder, *inputs_il: Any) -> Tensor:
        """Apply the block to several inputs [n_embd, n] and the layer's number. -> [n_embd, n]"""


class AnyLayer(Protocol):
    """A layer of a trunk."""

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        """Apply the layer: [n_embd, n_tokens] -> same shape, or [n_embd, n_outputs] if last."""


@dataclass(slots=True)
class Layer:
    """x + attention(norm(x)), then x + feed_forward(norm(x)); results may be normed again.

    attention, feed_forward   blocks; None for a layer without
    post_ffn_il   the last norm, and its result, have the layer's number in their names
    residual_scale   factor of attention and feed-forward results; 0: no factor
    """

    attn_norm: Norm | None
    attention: Block | None
    ffn_norm: Norm | None
    feed_forward: Block | None
    attn_post_norm: Norm | None = None
    ffn_post_norm: Norm | None = None
    post_ffn_il: tuple[bool, bool] = (False, True)
    residual_scale: float = 0.0

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        if self.attention is not None:
            cur = self._attend(g, self.attention, cur, il, last)
        elif last:
            cur = g.outputs(cur)[0]
        return (
            cur if self.feed_forward is None else self._feed_forward(g, self.feed_forward, cur, il)
        )

    def _attend(
        self, g: GraphBuilder, attention: Block, residual: Tensor, il: int, last: bool
    ) -> Tensor:
        cur = attention(g, self.attn_normed(g, residual, il), il)
        cur, residual = self.select_rows(g, cur, residual, il, last)
        if self.residual_scale:
            cur = g.cb(scale(cur, self.residual_scale), "hidden_scaled", il)
        return g.cb(self.attn_sum(residual, cur), "ffn_inp", il)

    def attn_normed(self, g: GraphBuilder, x: Tensor, il: int) -> Tensor:
        """Normalize attention's input, if there is a norm: [n_embd, n_tokens] -> same shape."""
        return x if self.attn_norm is None else self.attn_norm(g, x, "attn_norm", il)

    def select_rows(
        self, g: GraphBuilder, cur: Tensor, residual: Tensor, il: int, last: bool
    ) -> tuple[Tensor, Tensor]:
        """Return attention's normed result and the layer's input; if last, outputs only."""
        if last:
            cur, residual = g.outputs(cur, residual)
        return self.attn_post_normed(g, cur, il), residual

    def attn_post_normed(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Normalize attention's result, if the layer has a norm: [n_embd, n] -> same shape."""
        norm = self.attn_post_norm
        return cur if norm is None else norm(g, cur, "attn_post_norm", il)

    def attn_sum(self, x: Tensor, cur: Tensor) -> Tensor:
        """Add attention's result `cur` to the layer's input x. [n_embd, n]"""
        return add(cur, x)

    def ffn_sum(self, x: Tensor, cur: Tensor) -> Tensor:
        """Add the feed-forward's result `cur` to its input x. [n_embd, n]"""
        return add(cur, x)

    def _feed_forward(
        self, g: GraphBuilder, feed_forward: Block, ffn_inp: Tensor, il: int
    ) -> Tensor:
        cur = ffn_inp if self.ffn_norm is None else self.ffn_norm(g, ffn_inp, "ffn_norm", il)
        cur = feed_forward(g, cur, il)
        if self.ffn_post_norm is not None:
            inner, named = (il if numbered else -1 for numbered in self.post_ffn_il)
            cur = g.cb(self.ffn_post_norm(g, cur, il=inner), "ffn_post_norm", named)
        if self.residual_scale:
            cur = g.cb(scale(cur, self.residual_scale), "hidden_scaled_ffn", il)
        return self.ffn_sum(ffn_inp, cur)

    selected = Former("select_rows")


class EarlyNormLayer(Layer):
    """Layer that expands the normed input before its other nodes."""

    def attn_normed(self, g: GraphBuilder, x: Tensor, il: int) -> Tensor:
        return g.expand(super().attn_normed(g, x, il))


class LateSelectLayer(Layer):
    """Outputs are selected of attention's normed result."""

    def select_rows(
        self, g: GraphBuilder, cur: Tensor, residual: Tensor, il: int, last: bool
    ) -> tuple[Tensor, Tensor]:
        cur = self.attn_post_normed(g, cur, il)
        if last:
            cur, residual = g.outputs(cur, residual)
        return cur, residual


@dataclass(slots=True)
class ParallelLayer:
    """x + attention(norm(x)) + feed_forward(norm(x)), with the same norm or separate norms.

    attn_norm_2, ffn_norm   separate norms of x for attention and for the feed-forward
    order      order of the sums of x, attention's and feed-forward's results
    sum_name   name of the first sum
    both       attention and feed-forward together, with one sum, if devices share both
    """

    side_by_side: ClassVar = ("attention", "feed_forward")

    norm: Norm
    attention: Block
    feed_forward: Block
    attn_norm_2: Norm | None = None
    ffn_norm: Norm | None = None
    order: Literal["f(ax)", "(af)x", "(fa)x", "(fx)a"] = "(fx)a"
    sum_name: str = ""
    both: BlockSum | None = None

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        x, attended = cur, self.norm(g, cur, "attn_norm", il)
        normed = attended
        if self.attn_norm_2 is not None:
            attended = self.attn_norm_2(g, x, "attn_norm_2", il)
        if self.both is not None and not last:  # otherwise rows are selected between the two
            if self.ffn_norm is not None:
                normed = self.ffn_norm(g, x, "ffn_norm", il)
            return add(self.both(g, attended, normed, il), x)
        attended = self.attention(g, attended, il)
        if last and self.ffn_norm is None:  # only output rows remain
            attended, x, normed = g.outputs(attended, x, normed)
        elif last:
            attended, x = g.outputs(attended, x)
        if self.ffn_norm is not None:
            normed = self.ffn_norm(g, x, "ffn_norm", il)
        fed = self.feed_forward(g, normed, il)
        return self._sum(g, {"x": x, "a": attended, "f": fed}, il)

    def _sum(self, g: GraphBuilder, parts: dict[str, Tensor], il: int) -> Tensor:
        inner = self.order[self.order.index("(") + 1 : self.order.index(")")]
        both = add(parts.pop(inner[0]), parts.pop(inner[1]))
        both = g.cb(both, self.sum_name, il) if self.sum_name else both
        (third,) = parts.values()
        return add(both, third) if self.order[0] == "(" else add(third, both)


class Decoder(Architecture):
    """Tokens to logits through layers of one kind; an architecture declares the layers.

    layer_sum    name of a layer's result before the control vector
    output_bias  the head may have a bias
    """

    layer_sum: ClassVar[str] = ""
    output_bias: ClassVar[Bias] = False

    def declare(self, w: Weights) -> None:
        self.token_embd = self.embeddings(w)
        self.declare_ends(w)
        self.declare_trunk(w)
        self.declare_nextn(w)

    def embeddings(self, w: Weights) -> Tensor:
        """Declare the token embeddings, [n_embd, n_vocab]."""
        return w.tensor("token_embd.weight", self.hp.n_embd, self.hp.n_vocab)

    def declare_ends(self, w: Weights) -> None:
        """Declare the tensors before and after the layers."""
        self.output_norm = w.norm("output_norm", self.hp.n_embd)
        self.output = w.output(self.hp.n_embd, self.hp.n_vocab, bias=self.output_bias)

    def declare_trunk(self, w: Weights) -> None:
        self.layers: list[AnyLayer] = [self.layer(w.layer(il), il) for il in range(self.hp.n_layer)]

    @abstractmethod
    def layer(self, w: Weights, il: int) -> AnyLayer:
        """Make layer il; its tensors are named without their prefix."""

    def declare_nextn(self, w: Weights) -> None:
        """Skip the NextN layers after the trunk; subclasses that draft declare them."""
        n = self.hp.n_layer_all
        w.skip_nextn(range(n - self.hp.n_layer_nextn, n))

    def embed(self, g: GraphBuilder) -> Tensor:
        """Return the first layer's input, [n_embd, n_tokens]."""
        return g.input_embd(self.token_embd)

    def build(self, g: GraphBuilder) -> None:
        cur, end = self.embed(g), len(self.layers) - 1
        early = self.skips_unused_rows(g) and end + 1 not in g.cparams.embeddings_layer_inp
        for il, layer in enumerate(self.layers):
            g.res.t_layer_inp[il] = self.layer_input(g, cur, il)
            before, cur = cur, layer(g, cur, il, early and il == end)
            if cur is not before:  # layers may be empty
                cur = self.after_layer(g, g.layer_out(cur, il, self.layer_sum), il)
        g.res.t_layer_inp[end + 1] = self.layer_input(g, cur, end + 1)
        self.finish(g, cur, early)

    def layer_input(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Return the input of layer il that draft models read, [n_embd, n_tokens]."""
        return cur

    def after_layer(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Return the input of the layer after il: [n_embd, n] -> same shape."""
        return cur

    def skips_unused_rows(self, g: GraphBuilder) -> bool:
        """Return True if only outputs pass through the end of the last layer."""
        return True

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        """Build the graph from the last layer's result to the logits.

        selected  `cur` has only the rows of outputs
        """
        if not selected:
            cur = g.outputs(cur)[0]
        cur = self.output_norm(g, cur, "result_norm")
        g.res.t_embd = cur
        self.head(g, cur)

    def tensors_for_draft(self) -> TargetTensors:
        if self.hp.hadamard is not None:
            raise self.hp.hadamard.refuse(
                "a draft model cannot read them", "use another draft method (--spec-type)"
            )
        return TargetTensors(self.token_embd, self.lm_head())

    def lm_head(self, nextn: int | None = None) -> Linear | None:
        return self.output

    def head(self, g: GraphBuilder, cur: Tensor, output: Linear | None = None) -> None:
        """Finish the graph: logits of `cur` [n_embd, n_outputs] by the context's head, `output`, or
        the model's head."""
        logits = self.scaled_logits(g, cur, output)
        if cap := self.hp.final_logit_softcap:
            logits = scale(tanh(scale(logits, 1.0 / cap)), cap)
        g.res.t_logits = g.expand(g.cb(logits, "result_output"))

    def scaled_logits(self, g: GraphBuilder, cur: Tensor, output: Linear | None) -> Tensor:
        """Compute logits before the cap: [n_embd, n_outputs] -> [n_vocab, n_outputs]."""
        logits, factor = self.logits(g, cur, output), self.hp.logit_scale
        return scale(logits, factor) if factor else logits

    def logits(self, g: GraphBuilder, cur: Tensor, output: Linear | None) -> Tensor:
        """Compute logits before scale and cap: [n_embd, n_outputs] -> [n_vocab, n_outputs]."""
        return (g.params.head or output or self.output)(g, cur)

    selects_early = Former("skips_unused_rows")


class EarlyScaleDecoder(Decoder):
    """The factor on logits is applied before the head."""

    def scaled_logits(self, g: GraphBuilder, cur: Tensor, output: Linear | None) -> Tensor:
        if factor := self.hp.logit_scale:
            cur = g.cb(scale(cur, factor), "lmhead_scaling")
        return self.logits(g, cur, output)


class LongDecoder(Decoder):
    """Decoder with optional factors of RoPE frequencies in its file.

    long_factors  factors for short and for long contexts, regardless of the file's scaling
    freqs_unread  llama.cpp does not use the factors
    """

    long_factors: ClassVar[bool] = False
    freqs_unread: ClassVar[bool] = False

    def declare(self, w: Weights) -> None:
        self.factors = RopeFactors(w, self.hp, long=self.long_factors, unread=self.freqs_unread)
        super().declare(w)

    def rope_factors(self, cparams: CParams, il: int) -> Tensor | None:
        return self.factors(cparams)
