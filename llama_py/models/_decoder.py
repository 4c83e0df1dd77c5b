"""The plain decoder: attention and feed-forward, each normed before and added after."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from ggml_py.ops import add, get_rows
from ggml_py.tensor import Tensor
from llama_py.models._base import GraphBuilder, Model


class Decoder(GraphBuilder):
    """The trunk of most models; an architecture says what its two blocks are."""

    model: Model

    def build(self) -> None:
        layers = self.model.layers
        cur = self.build_inp_embd(self.model.token_embd)  # [n_embd, n_tokens]
        inp_pos = self.build_inp_pos()
        inp_attn = self.build_attn_inp()
        inp_out_ids = self.build_inp_out_ids()
        for il in range(self.n_layer):
            residual = cur
            cur = self.cb(self.build_norm(cur, layers[il].attn_norm, il), "attn_norm", il)
            cur = self.attention(cur, inp_attn, inp_pos, il)
            if il == self.n_layer - 1:  # only outputs go on
                cur = get_rows(cur, inp_out_ids)
                residual = get_rows(residual, inp_out_ids)
            ffn_inp = self.cb(add(cur, residual), "ffn_inp", il)
            cur = self.cb(self.build_norm(ffn_inp, layers[il].ffn_norm, il), "ffn_norm", il)
            cur = self.layer_out(add(self.feed_forward(cur, il), ffn_inp), il)
        self.res.t_embd = self.cb(self.build_norm(cur, self.model.output_norm), "result_norm")
        self.build_head(self.res.t_embd)  # [n_vocab, n_outputs]

    def build_attn_inp(self) -> Any:
        """What `attention` gets as inp."""
        return self.build_attn_inp_kv()

    @abstractmethod
    def attention(self, cur: Tensor, inp: Any, inp_pos: Tensor, il: int) -> Tensor:
        """[n_embd, n_tokens] -> the same"""

    @abstractmethod
    def feed_forward(self, cur: Tensor, il: int) -> Tensor:
        """[n_embd, n] -> the same"""
