"""Attention over a key/value cache (llama-graph.cpp:build_qkv, build_attn, build_attn_mha)."""

from __future__ import annotations

from typing import NamedTuple

from ggml_py.ops import (
    add,
    cast,
    concat,
    cont,
    flash_attn_ext,
    mul_mat,
    permute,
    reshape,
    rope_ext,
    scale,
    soft_max_ext,
    tanh,
    transpose,
    view,
    view_4d,
)
from ggml_py.tensor import Tensor
from ggml_py.types import F16, F32
from llama_py.inputs import InputAttnK, InputAttnKV, InputAttnKVISWA
from llama_py.models._graph import GraphContext
from llama_py.weights import Layer, Linear

HINT_HADAMARD = 1  # ggml.h:GGML_HINT_SRC0_IS_HADAMARD


class QKV(NamedTuple):
    """Queries [d, n_head, n_tokens], keys and values [d, n_head_kv, n_tokens]; or not yet split
    into heads: [d * n_head, n_tokens]."""

    q: Tensor
    k: Tensor
    v: Tensor


class Attention(GraphContext):
    """Blocks that let tokens see each other through the cache."""

    def build_attn_inp_kv(self) -> InputAttnKV:
        return self.res.add_input(InputAttnKV(self.params, self.mctx))

    def build_attn_inp_k(self) -> InputAttnK:
        return self.res.add_input(InputAttnK(self.params, self.mctx))

    def build_attn_inp_kv_iswa(self) -> InputAttnKV | InputAttnKVISWA:
        """Of two caches, if there is a layer with a window."""
        if not any(self.hparams.swa_layers):
            return self.build_attn_inp_kv()
        return self.res.add_input(InputAttnKVISWA(self.params, self.mctx))

    def build_rope(
        self,
        cur: Tensor,
        inp_pos: Tensor,
        freq_factors: Tensor | None = None,
        *,
        swa: bool = False,
        offset: int = 0,
    ) -> Tensor:
        """Rotate n_rot channels of each head, from `offset` on, by its token's position.

        swa  at the frequencies of layers with a window. [d, H, n_tokens] -> the same
        """
        hp, cp = self.hparams, self.cparams
        freq = cp.rope_freq_base, cp.rope_freq_scale
        if swa:
            freq = hp.rope_freq_base_train_swa, hp.rope_freq_scale_train_swa
        return rope_ext(
            cur, inp_pos, freq_factors, hp.n_rot, hp.rope_type, cp.n_ctx_orig_yarn, *freq,
            cp.yarn_ext_factor, cp.yarn_attn_factor, cp.yarn_beta_fast, cp.yarn_beta_slow,
            hp.rope_sections, offset,
        )  # fmt: skip

    def build_qkv(
        self,
        layer: Layer,
        cur: Tensor,
        il: int,
        *,
        n_embd_head_q: int | None = None,
        split_heads: bool = True,
    ) -> QKV:
        """Project to queries, keys and values, with biases, from one matrix or from three.

        n_embd_head_q  when queries carry more than their head (a gate)
        split_heads    False: leave the heads of a token joined, and do not name anything
        """
        hp = self.hparams
        d_k, d_v = hp.n_embd_head_k, hp.n_embd_head_v
        heads = (
            (n_embd_head_q or d_k, hp.n_head(il)),
            (d_k, hp.n_head_kv(il)),
            (d_v, hp.n_head_kv(il)),
        )
        if layer.attn_qkv is not None:
            parts = self._fused_qkv(layer, cur, il, heads, split_heads)
        else:
            parts = self._separate_qkv(layer, cur, il, heads, split_heads)
        if split_heads:
            for name, t in zip(("Qcur", "Kcur", "Vcur"), parts, strict=True):
                self.cb(t, name, il)
        return QKV(*parts)

    def _fused_qkv(
        self, layer: Layer, cur: Tensor, il: int, heads: tuple[tuple[int, int], ...], split: bool
    ) -> list[Tensor]:
        w: Linear = layer.attn_qkv
        qkv = self.cb(self.build_mm(w, cur), "wqkv", il)
        bias = w.bias
        old = [layer.get(stem) for stem in ("attn_q", "attn_k", "attn_v")]
        if bias is None and None not in old:
            bias = concat(concat(old[0], old[1], 0), old[2], 0)
        if bias is not None:
            qkv = self.cb(add(qkv, bias), "wqkv_b", il)
        parts, offset, row = [], 0, qkv.ne[0]
        for d, n_head in heads:
            if split:
                part = view(qkv, (d, n_head, self.n_tokens), (d, row), offset)
            else:
                part = cont(view(qkv, (d * n_head, self.n_tokens), (row,), offset))
            parts.append(part)
            offset += d * n_head
        return parts

    def _separate_qkv(
        self, layer: Layer, cur: Tensor, il: int, heads: tuple[tuple[int, int], ...], split: bool
    ) -> list[Tensor]:
        parts = []
        weights: tuple[Linear, ...] = (layer.attn_q, layer.attn_k, layer.attn_v)
        for w, name, (d, n_head) in zip(weights, ("Qcur", "Kcur", "Vcur"), heads, strict=True):
            part = self.build_mm(w, cur)
            if split:
                self.cb(part, name, il)
            if w.bias is not None:
                part = add(part, w.bias)
                if split:
                    self.cb(part, name, il)
            parts.append(reshape(part, d, n_head, self.n_tokens) if split else part)
        return parts

    def build_attn(
        self,
        inp: InputAttnKV | InputAttnKVISWA,
        wo: Linear | None,
        qkv: QKV,
        il: int,
        *,
        kq_scale: float,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Store keys and values, attend to all that the mask lets see, project.

        -> [n_embd, n_tokens], without wo [d_v * n_head, n_tokens]
        """
        k_first = isinstance(inp, InputAttnKVISWA)
        if isinstance(inp, InputAttnKVISWA):
            inp = inp.swa if self.hparams.is_swa(il) else inp.base
        if inp.k_rot is not None:
            qkv = qkv._replace(q=rotate(qkv.q, inp.k_rot), k=rotate(qkv.k, inp.k_rot))
        if inp.v_rot is not None:
            qkv = qkv._replace(v=rotate(qkv.v, inp.v_rot))
        self._expand_together(qkv, k_first)
        self.expand(inp.mctx.cpy_k(qkv.k, inp.k_idxs, il))
        self.expand(inp.mctx.cpy_v(qkv.v, inp.v_idxs, il))
        k, v = inp.mctx.get_k(il), inp.mctx.get_v(il)
        cur = self.build_attn_mha(qkv.q, k, v, inp.kq_mask, il, kq_scale=kq_scale, sinks=sinks)
        self.cb(cur, "kqv_out", il)
        if inp.v_rot is not None:
            cur = rotate(cur, inp.v_rot)  # its own inverse
        return self._project(wo, cur)

    def build_attn_k(
        self,
        inp: InputAttnK,
        wo: Linear | None,
        qkv: QKV,
        il: int,
        *,
        kq_scale: float,
        v_mla: Tensor,
    ) -> Tensor:
        """build_attn with a cache of keys only: the values are their first d_v channels, which
        v_mla unpacks (see build_attn_mha)."""
        self._expand_together(qkv)
        self.expand(inp.mctx.cpy_k(qkv.k, inp.k_idxs, il))
        k = inp.mctx.get_k(il)
        v = view_4d(k, qkv.v.ne[0], *k.ne[1:], *k.nb[1:], 0)
        cur = self.build_attn_mha(qkv.q, k, v, inp.kq_mask, il, kq_scale=kq_scale, v_mla=v_mla)
        return self._project(wo, self.cb(cur, "kqv_out", il))

    def _expand_together(self, qkv: QKV, k_first: bool = False) -> None:
        """Nothing else comes between; k is last, next to where it is stored, unless k_first."""
        for t in (qkv.q, qkv.k, qkv.v) if k_first else (qkv.q, qkv.v, qkv.k):
            self.expand(t)

    def _project(self, wo: Linear | None, cur: Tensor) -> Tensor:
        if wo is None:
            return cur
        cur = self.build_mm(wo, cur)
        return cur if wo.bias is None else add(cur, wo.bias)

    def build_attn_mha(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor,
        il: int,
        *,
        kq_scale: float,
        sinks: Tensor | None = None,
        v_mla: Tensor | None = None,
    ) -> Tensor:
        """softmax(kq_scale * q k + mask) v for every head, and the heads joined.

        q [d, n_head, n_tokens], k [d, n_head_kv, n_kv, n_stream], v likewise (or transposed, as
        the cache keeps it without flash attention); v_mla [d_v, d_mla, n_head] unpacks values.
        -> [d_v * n_head, n_tokens]
        """
        v_trans = v.nb[1] > v.nb[2]
        n_stream = k.ne[3]
        n_tokens = q.ne[2] // n_stream
        strides = (q.nb[1] // q.nb[0], q.nb[2] // q.nb[0], q.nb[2] // q.nb[0] * n_tokens)
        q = view(q, (*q.ne[:2], n_tokens, n_stream), strides)
        q, k, v = (permute(t, 0, 2, 1, 3) for t in (q, k, v))
        if self.cparams.flash_attn:
            v = transpose(v) if v_trans else v
            cur = self._flash(q, k, v, mask, il, kq_scale, sinks, v_mla)
        else:
            cur = self._soft_max(q, k, v, mask, il, kq_scale, sinks, v_mla, v_trans)
        return self.expand(cur)

    def _flash(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, il: int, kq_scale: float,
        sinks: Tensor | None, v_mla: Tensor | None,
    ) -> Tensor:  # fmt: skip
        hp = self.hparams
        k, v = (cast(t, F16) if t.type is F32 else t for t in (k, v))
        cur = flash_attn_ext(
            q, k, v, mask, kq_scale, hp.max_alibi_bias, hp.attn_logit_softcap, sinks, "f32"
        )  # [d_v, n_head, n_tokens, n_stream]
        self.res.fused["flash_attn"].append(cur)
        if v_mla is not None:
            cur = mul_mat(v_mla, permute(cur, 0, 2, 1, 3))
            cur = cont(permute(self.cb(cur, "fattn_mla", il), 0, 2, 1, 3))
        return reshape(cur, cur.ne[0] * cur.ne[1], cur.ne[2] * cur.ne[3])

    def _soft_max(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, il: int, kq_scale: float,
        sinks: Tensor | None, v_mla: Tensor | None, v_trans: bool,
    ) -> Tensor:  # fmt: skip
        hp = self.hparams
        kq = self.cb(mul_mat(k, q, "f32"), "kq", il)  # [n_kv, n_tokens, n_head, n_stream]
        if cap := hp.attn_logit_softcap:
            kq = self.cb(scale(kq, 1.0 / cap), "kq_scaled_1", il)
            kq = self.cb(tanh(kq), "kq_tanh", il)
            kq = self.cb(scale(kq, cap), "kq_scaled_2", il)
        kq = soft_max_ext(kq, mask, kq_scale, hp.max_alibi_bias, sinks)
        self.cb(kq, "kq_soft_max", il)
        if not v_trans:
            v = self.cb(cont(transpose(v)), "v_cont", il)
        kqv = self.cb(mul_mat(v, kq), "kqv", il)  # [d_v, n_tokens, n_head, n_stream]
        if v_mla is not None:
            kqv = self.cb(mul_mat(v_mla, kqv), "kqv_mla", il)
        cur = permute(kqv, 0, 2, 1, 3)
        cur = cont(cur, cur.ne[0] * cur.ne[1], cur.ne[2] * cur.ne[3])
        if not self.cparams.offload_kqv:
            self.res.on_host.append(cur)
        return cur


def rotate(cur: Tensor, rot: Tensor) -> Tensor:
    """Each block of rot's size times rot [n, n] (llama-impl.h:llama_mul_mat_hadamard)."""
    n = rot.ne[0]
    flat = reshape if cur.is_contiguous() else cont
    res = mul_mat(rot, flat(cur, n, cur.n_elements // n))
    res.params = (0, HINT_HADAMARD, 0)
    return reshape(res, *cur.ne)
