"""Attention to a window of tokens and, beyond it, to compressed keys: all, or an indexer's choice
(models/deepseek4.cpp). Keys are also the values."""

from __future__ import annotations

from dataclasses import dataclass

from ggml_py.ops import concat, cont, mul_mat, permute, reshape, rms_norm, view_4d
from ggml_py.tensor import Tensor
from ggml_py.types import F16, F32
from llama_py.blocks.compressed_indexer import CompressedIndexer
from llama_py.blocks.compressor import Compressor, inp_compressed
from llama_py.blocks.functions import inv_sqrt
from llama_py.blocks.indexer import mask_unchosen
from llama_py.blocks.last_channels import Turn, far_turn, plain_turn
from llama_py.blocks.softmax import Scores, mha
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.attention import InputAttnKV
from llama_py.graph.inputs.compressed import InputCompressed
from llama_py.memory.kv_rot import rotate
from llama_py.memory.specs import CompressedSpec
from llama_py.weights import Weights


@dataclass(frozen=True, slots=True)
class CompressedSizes:
    """Sizes of compressed attention in one layer.

    size       dimensions of a head; RoPE rotates n_rot dimensions
    n_lora_q   rank of the query projection
    n_groups, n_lora_o   heads are projected group by group, to n_lora_o dimensions each
    compressed  memory in addition to the window, or None
    freq_base  RoPE base of compressed keys
    """

    n_embd: int
    n_head: int
    size: int
    n_rot: int
    n_lora_q: int
    n_groups: int
    n_lora_o: int
    freq_base: float
    compressed: CompressedSpec | None = None


class CompressedAttention:
    """Attention with n_head query heads and one key per token. Results are rotated back, relative
    to the token, and projected in two steps."""

    def __init__(
        self,
        w: Weights,
        sizes: CompressedSizes,
        *,
        n_window: int,
        indexer: CompressedIndexer | None = None,
        drafts: bool = False,
    ) -> None:
        """Declare the weights; `n_window`: tokens in the window; `drafts`: layer that drafts."""
        self.sizes, self.n_window, self.indexer, self.drafts = sizes, n_window, indexer, drafts
        n_embd, d, n_head, groups = sizes.n_embd, sizes.size, sizes.n_head, sizes.n_groups
        self.sinks = w.tensor("attn_sinks.weight", n_head)
        self.wq_a = w.linear("attn_q_a", n_embd, sizes.n_lora_q, scaled=False)
        self.q_norm = w.norm("attn_q_a_norm", sizes.n_lora_q)
        self.wq_b = w.linear("attn_q_b", sizes.n_lora_q, n_head * d, scaled=False)
        self.wkv = w.linear("attn_kv", n_embd, d, scaled=False)
        self.kv_norm = w.norm("attn_kv_a_norm", d)
        self.wo_a = w.reshaped_tensor(
            "attn_output_a.weight", n_head * d // groups, sizes.n_lora_o, groups
        )
        self.wo_b = w.linear("attn_output_b", groups * sizes.n_lora_o, n_embd, scaled=False)
        self.compressor: Compressor | None = None
        if sizes.compressed is not None:
            self.compressor = Compressor(w, n_embd, sizes.compressed, "attn_compressor")

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Attend to window and compressed keys: [n_embd, n_tokens] -> same shape."""
        s, turn = self.sizes, self._turn(g)
        small = g.cb(self.wq_a(g, cur), "qr", il)
        small = self.q_norm(g, small, "qr_norm", il)
        q = reshape(self.wq_b(g, small), s.size, s.n_head, g.n_tokens)
        q = g.cb(rms_norm(q, g.hp.f_norm_rms_eps), "q_norm", il)
        q = g.cb(turn(q, g.inp_pos), "q", il)
        kv = self.kv_norm(g, self.wkv(g, cur), il=il)
        kv = g.cb(reshape(kv, s.size, 1, g.n_tokens), "kv_norm", il)
        kv = g.cb(turn(kv, g.inp_pos), "kv", il)
        self._compress(g, cur, turn, il)
        found = self._attend(g, q, kv, cur, small, turn, il)
        found = reshape(found, s.size, s.n_head, g.n_tokens)
        found = g.cb(turn(found, g.inp_pos, back=True), "attn_derope", il)
        return g.cb(self._project(g, found, il), "attn_out", il)

    def _turn(self, g: GraphBuilder) -> Turn:
        s, cp = self.sizes, g.cparams
        if s.compressed is None:
            return plain_turn(cp, s.n_rot)
        return far_turn(cp, s.n_rot, s.freq_base)

    def _inp(self, g: GraphBuilder) -> InputCompressed:
        assert self.sizes.compressed is not None
        return inp_compressed(g, self.sizes.compressed.kind, g.cparams.flash_attn)

    def _compress(self, g: GraphBuilder, cur: Tensor, turn: Turn, il: int) -> None:
        if self.compressor is None:
            return
        inp = self._inp(g)
        self.compressor.store(g, self.compressor.state(g, cur, inp, il), inp, turn, il)
        if self.indexer is not None:
            self.indexer.compress(g, cur, turn, il)

    def _attend(
        self,
        g: GraphBuilder,
        q: Tensor,
        kv: Tensor,
        cur: Tensor,
        small: Tensor,
        turn: Turn,
        il: int,
    ) -> Tensor:
        """Store the new key and attend to all keys. -> [size * n_head, n_tokens]"""
        near = g.inp_attn(il)
        chosen = None
        if self.indexer is not None:
            chosen = self.indexer.choose(g, cur, small, turn, il)
        if near.k_rot is not None:
            q, kv = rotate(q, near.k_rot), rotate(kv, near.k_rot)
        g.expand(q)
        g.expand(kv)
        g.expand(near.mctx.cpy_k(kv, near.k_idxs, il))
        k, mask, n_max = near.mctx.get_k(il), near.kq_mask, 0
        name = "attn_raw"
        if self.sizes.compressed is not None:
            k, mask, n_max, name = self._with_far(g, k, near, chosen, il)
        how = Scores(inv_sqrt(self.sizes.size), self.sinks, n_kv_max=n_max)
        v = view_4d(k, *k.ne, *k.nb[1:], 0) if self.drafts else k
        found = mha(g, q, k, v, mask, il, how)
        if near.k_rot is not None:
            found = rotate(found, near.k_rot)
        return g.cb(found, name, il)

    def _with_far(
        self, g: GraphBuilder, k: Tensor, near: InputAttnKV, chosen: Tensor | None, il: int
    ) -> tuple[Tensor, Tensor, int, str]:
        """Join window and compressed keys; return keys, mask, visible keys, and a name."""
        far = self._inp(g)
        kind = far.kind
        g.cb(k, f"{kind}_raw_k", il)
        comp = g.cb(far.get_k(il, g.ubatch), f"{kind}_comp_k", il)
        k = g.cb(concat(k, comp, 2), f"{kind}_k_all", il)
        if chosen is None:
            mask = concat(near.kq_mask, far.kq_mask, 0)
            return k, g.cb(mask, f"{kind}_kq_mask", il), 0, f"attn_{kind}"
        mask = mask_unchosen(far.kq_mask, chosen, F16 if g.cparams.flash_attn else F32)
        mask = concat(near.kq_mask, g.cb(mask, f"{kind}_top_k_mask", il), 0)
        g.cb(mask, f"{kind}_lid_kq_mask", il)
        n_max = min(near.kq_mask.ne[0], self.n_window) + chosen.ne[0]
        return k, mask, n_max, f"attn_{kind}_lid"

    def _project(self, g: GraphBuilder, found: Tensor, il: int) -> Tensor:
        """[size, n_head, n_tokens] -> [n_embd, n_tokens]"""
        s = self.sizes
        n_group = s.size * s.n_head // s.n_groups
        parts = permute(reshape(found, n_group, s.n_groups, g.n_tokens), 0, 2, 1, 3)
        cur = g.cb(mul_mat(self.wo_a, parts), "attn_wo_a", il)  # [n_lora_o, n_tokens, n_groups]
        cur = cont(permute(cur, 0, 2, 1, 3), s.n_lora_o * s.n_groups, g.n_tokens)
        return self.wo_b(g, cur)
