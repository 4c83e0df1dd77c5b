"""The gated delta net as ordinary ops, for devices without the fused one (delta-net-base.cpp).

One token is computed by the delta rule as defined; many tokens are split into chunks. In each, the
rule is solved as a triangular system (arXiv 2412.06464), unless it must be applied to tokens
separately.
"""

from __future__ import annotations

from typing import NamedTuple

from ggml_py.ops import (
    add,
    cont,
    cumsum,
    diag,
    exp,
    fill,
    mul,
    mul_mat,
    neg,
    pad,
    permute,
    repeat,
    reshape,
    scale,
    set_,
    solve_tri,
    sub,
    sum_rows,
    transpose,
    tri,
    view,
)
from ggml_py.tensor import Tensor
from llama_py.blocks.delta_net.rule import Delta, Outcome, Rule
from llama_py.blocks.delta_net.scores import DeltaScores
from llama_py.blocks.functions import inv_sqrt

CHUNK = 64  # tokens, one gate per head
CHUNK_KDA = 16  # tokens, one gate per dimension


class _Chunks(NamedTuple):
    """Inputs of the loop over chunks: CS tokens each, HB = heads * sequences."""

    k_cd: Tensor  # [S, CS, n_chunks, HB] keys decayed from the start of the chunk
    v_t: Tensor  # [CS, S, n_chunks, HB] values after the rule within the chunk
    kq: Tensor  # [CS, CS, n_chunks, HB] decayed scores
    q_g_exp: Tensor  # [S, CS, n_chunks, HB] queries decayed from the start of the chunk
    kg_t: Tensor  # [CS, S, n_chunks, HB] keys decayed to the end of the chunk
    g_last_exp: Tensor  # [1 or S, 1, n_chunks, HB] decay of the state over the chunk


class UnfusedRule(Rule):
    """Delta net of ordinary ops (build_delta_net_autoregressive, build_delta_net_chunking)."""

    def __call__(self, x: Delta, s: Tensor, form: str) -> Outcome:
        """Compute a whole ubatch by the variant `form` of DELTA_NET, other than the fused one."""
        if x.q.ne[2] == 1:
            return self.autoregressive(x, s)
        if form == "autoregressive":
            return self._token_by_token(x, s)
        return self.chunking(x, s, blocks=form == "blocks")

    def _token_by_token(self, x: Delta, s: Tensor) -> Outcome:
        """Apply the delta rule to one token after another."""
        out = cont(x.v)
        for t in range(x.v.ne[2]):
            o, s = self.autoregressive(Delta(*(_token(part, t) for part in x)), s)
            out = set_(out, o, *out.nb[1:], t * out.nb[2], inplace=True)
        return out, s

    def autoregressive(self, x: Delta, s: Tensor) -> Outcome:
        """Apply the rule to one token: s *= exp(gate); s += beta (v - s k) k; o = s q / sqrt(S).

        A gate per dimension decays keys. llama.cpp applies it along the values here, unlike in
        chunks and in the fused op, which it normally uses.
        """
        q, k, v, g, b = x
        _, n_head, _, n_seqs = v.ne
        q = scale(q, inv_sqrt(q.ne[0]))
        q, k, v = (permute(t, 0, 2, 1, 3) for t in (q, k, v))  # [S, 1, H, B]
        self._name_inputs(Delta(q, k, v, g, b))
        g = reshape(g, g.ne[0], 1, n_head, n_seqs)
        b = reshape(b, 1, 1, n_head, n_seqs)
        s = mul(s, exp(g))
        sk = sum_rows(mul(s, k))  # [1, S, H, B]
        d = mul(sub(v, transpose(sk)), b)  # [S, 1, H, B]
        s = self.cb(add(s, mul(repeat(k, s), transpose(d))), "dnet_add_ar_state")
        o = sum_rows(mul(s, q))  # [1, S, H, B]
        return permute(o, 2, 0, 1, 3), s

    def chunking(self, x: Delta, s: Tensor, blocks: bool = False) -> Outcome:
        """Compute many tokens in chunks of CS tokens."""
        size, n_head, n_tokens, n_seqs = x.v.ne
        kda = x.gate.ne[:2] == x.q.ne[:2]
        cs = CHUNK_KDA if kda and not blocks else CHUNK
        q, k, k_b, v_b, g = self._split_chunks(x, cs)
        g_cs = self.cb(cumsum(cont(transpose(g))), "g_cs")  # [CS, 1 or S, n_chunks, HB]
        scores = DeltaScores(self.builder, self.il)
        make = scores.in_blocks if blocks else scores.per_channel if kda else scores.per_head
        kb, kq = make(q, k, k_b, g_cs)
        kq = self.cb(tri(kq, "lower_diag"), "kq")
        attn = self._solve_chunk(kb, cs)
        v = mul_mat(cont(transpose(v_b)), attn)  # [S, CS, n_chunks, HB]
        chunks = self._decay(q, k, k_b, attn, g_cs, kq)
        s = self.cb(reshape(s, size, size, 1, n_head * n_seqs), "dnet_add_ch_state")
        chunks = chunks._replace(v_t=cont(transpose(v)))
        for chunk in range(v.ne[2]):
            v, s = self._run_chunk(chunks, chunk, v, s)
        padded = cs * v.ne[2]
        strides = (size, size * padded, size * padded * n_head)
        o = permute(view(v, (size, n_tokens, n_head, n_seqs), strides), 0, 2, 1, 3)
        return o, self.cb(reshape(s, size, size, n_head, n_seqs), "output_state")

    def _name_inputs(self, x: Delta) -> None:
        names = ("q_in", "k_in", "v_in", "g_in", "b_in")
        for t, name in zip(x, names, strict=True):
            self.cb(t, name)

    def _split_chunks(self, x: Delta, cs: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return q, k, k*b, v*b and g as [., CS, n_chunks, HB], padded with zeros."""
        n_tokens = x.q.ne[2]
        x = x._replace(q=scale(x.q, inv_sqrt(x.q.ne[0])))
        self._name_inputs(x)
        q, k, v, g, b = (permute(t, 0, 2, 1, 3) for t in x)  # [., T, H, B]
        missing = -n_tokens % cs
        n_chunks = (n_tokens + missing) // cs
        q, k, v, g, b = (pad(t, 0, missing, 0, 0) for t in (q, k, v, g, b))
        v_b = self.cb(mul(v, b), "v_b")
        k_b = self.cb(mul(k, b), "k_b")
        q, k, k_b, v_b, g = (
            reshape(t, t.ne[0], cs, n_chunks, t.ne[2] * t.ne[3]) for t in (q, k, k_b, v_b, g)
        )
        return q, k, k_b, v_b, g

    def _solve_chunk(self, kb: Tensor, cs: int) -> Tensor:
        """Return (1 + lower(kb))^-1 [CS, CS, ...], the delta rule of a whole chunk."""
        attn = self.cb(tri(kb, "lower"), "attn")
        identity = diag(fill(view(attn, (cs,)), 1.0))
        lhs = self.cb(add(attn, identity), "dnet_add_ch_lhs")
        attn = self.cb(neg(attn), "attn_pre_solve")
        return self.cb(add(solve_tri(lhs, attn), identity), "dnet_add_ch_attn_solved")

    def _decay(
        self, q: Tensor, k: Tensor, k_b: Tensor, attn: Tensor, g_cs: Tensor, kq: Tensor
    ) -> _Chunks:
        """Return keys, queries and decays relative to the ends of their chunks, without v_t."""
        g_exp = exp(g_cs)
        kbg = self.cb(mul(cont(transpose(k_b)), g_exp), "k_beta_g_exp")
        k_cd = self.cb(mul_mat(kbg, attn), "k_cumdecay")
        q_g_exp = mul(q, cont(transpose(g_exp)))
        g_last = view(g_cs, (1, *g_cs.ne[1:]), offset=g_cs.ne[0] - 1)
        g_last = cont(self.cb(g_last, "g_last"))
        g_last_exp = self.cb(transpose(exp(g_last)), "g_last_exp_t")
        g_diff = self.cb(neg(sub(g_cs, g_last)), "g_diff")
        kg = self.cb(mul(k, cont(transpose(exp(g_diff)))), "key_gdiff")
        kg_t = self.cb(cont(transpose(kg)), "key_gdiff_t")
        return _Chunks(k_cd, kq, kq, q_g_exp, kg_t, g_last_exp)

    def _run_chunk(
        self, chunks: _Chunks, chunk: int, v: Tensor, s: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Write the outputs of one chunk into v; the state after it."""
        k_cd, v_t, kq, q_g_exp, kg_t = (_slice(t, chunk) for t in chunks[:5])
        v_prime = self.cb(mul_mat(k_cd, s), "v_prime")  # [CS, S, 1, HB]
        v_new = self.cb(sub(v_t, v_prime), "v_t_new")
        v_attn = self.cb(mul_mat(v_new, kq), "v_attn")  # [S, CS, 1, HB]
        inter = self.cb(mul_mat(s, q_g_exp), "attn_inter")
        o = self.cb(add(inter, v_attn), "dnet_add_ch_attn_out")
        v = set_(v, o, *v.nb[1:], chunk * v.nb[2], inplace=True)
        kgv = mul_mat(kg_t, v_new)  # [S, S, 1, HB]
        s = mul(s, _slice(chunks.g_last_exp, chunk))
        return v, self.cb(add(s, kgv), "dnet_add_ch_state")


def _token(x: Tensor, t: int) -> Tensor:
    """Return token t of x as a dense tensor: [., H, T, B] -> [., H, 1, B]."""
    return cont(view(x, (*x.ne[:2], 1, x.ne[3]), offset=t * (x.nb[2] // x.nb[0])))


def _slice(t: Tensor, chunk: int) -> Tensor:
    """Return one chunk of t as a view: [x, y, n_chunks, HB] -> [x, y, 1, HB]."""
    step = t.nb[2] // t.type.type_size
    strides = tuple(nb // t.type.type_size for nb in t.nb[1:])
    return view(t, (*t.ne[:2], 1, t.ne[3]), strides, chunk * step)
