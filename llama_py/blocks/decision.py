"""Blocks for options that read a text, and for questions that also read each other."""

from __future__ import annotations

from ggml_py.ops import add, cont, gelu_erf, mul_mat, permute, reshape, soft_max_ext
from ggml_py.tensor import Tensor
from llama_py.blocks.functions import inv_sqrt
from llama_py.graph.builder import GraphBuilder
from llama_py.weights import Weights


class FieldAttention:
    """Attention of rows to all rows of a text, or to each other, without positions."""

    def __init__(self, w: Weights, stem: str, n_embd: int, n_head: int) -> None:
        self.n_head = n_head
        self.q, self.k, self.v, self.o = (
            w.linear(f"{stem}_{name}", n_embd, n_embd, bias="needed", scaled=False)
            for name in "qkvo"
        )

    def __call__(self, g: GraphBuilder, cur: Tensor, text: Tensor) -> Tensor:
        """Attend from cur [n_embd, n] to text [n_embd, n_kv]. -> like cur"""
        v = cont(permute(self._heads(self.v(g, text)), 1, 2, 0, 3))
        k = permute(self._heads(self.k(g, text)), 0, 2, 1, 3)
        q = permute(self._heads(self.q(g, cur)), 0, 2, 1, 3)
        weights = soft_max_ext(mul_mat(k, q), None, inv_sqrt(q.ne[0]), 0.0)
        kqv = permute(mul_mat(v, weights), 0, 2, 1, 3)
        return self.o(g, cont(kqv, cur.ne[0], cur.ne[1]))

    def _heads(self, x: Tensor) -> Tensor:
        return reshape(x, x.ne[0] // self.n_head, self.n_head, x.ne[1])


class RoutingBlock:
    """Options attend to the text, then a feed-forward."""

    def __init__(self, w: Weights, n_embd: int, n_ff: int, n_head: int) -> None:
        self.cross_norm = w.norm("cross_attn_norm", n_embd, kind="layer", bias="needed")
        self.cross = FieldAttention(w, "cross_attn", n_embd, n_head)
        self.ffn_norm = w.norm("ffn_norm", n_embd, kind="layer", bias="needed")
        self.up = w.linear("ffn_up", n_embd, n_ff, bias="needed", scaled=False)
        self.down = w.linear("ffn_down", n_ff, n_embd, bias="needed", scaled=False)
        self.declare(w, n_embd, n_head)

    def declare(self, w: Weights, n_embd: int, n_head: int) -> None:
        """Declare the weights before the attention to the text."""
        self.text_norm = w.norm("cross_attn_norm_kv", n_embd, kind="layer", bias="needed")

    def __call__(self, g: GraphBuilder, cur: Tensor, text: Tensor) -> Tensor:
        """Apply the block to cur [n_embd, n]; text [n_embd, n_tokens]. -> like cur"""
        cur, text = self.prepare(g, cur, text)
        cur = add(cur, self.cross(g, self.cross_norm(g, cur), text))
        return add(cur, self.down(g, gelu_erf(self.up(g, self.ffn_norm(g, cur)))))

    def prepare(self, g: GraphBuilder, cur: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows and text for the attention to the text."""
        return cur, self.text_norm(g, text)


class JointBlock(RoutingBlock):
    """Questions attend to each other, then to the text, which is not normed."""

    def declare(self, w: Weights, n_embd: int, n_head: int) -> None:
        self.norm = w.norm("attn_norm", n_embd, kind="layer", bias="needed")
        self.attention = FieldAttention(w, "attn", n_embd, n_head)

    def prepare(self, g: GraphBuilder, cur: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        normed = self.norm(g, cur)
        return add(cur, self.attention(g, normed, normed)), text
