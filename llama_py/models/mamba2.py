"""Mamba-2: heads that decay as one, groups that share inputs and outputs (models/mamba2.cpp)."""

from __future__ import annotations

from typing import NamedTuple

from ggml_py.ops import add, cont, cpy, mul, reshape, ssm_scan, swiglu_split, view
from ggml_py.tensor import Tensor
from llama_py.hparams import Keys
from llama_py.inputs import GraphParams, InputRS
from llama_py.models._ssm import SSMGraph, SSMHParams, SSMModel
from llama_py.weights import LayerLoader


class Mamba2HParams(SSMHParams):
    """ssm_dt_rank is the number of heads."""

    def load_groups(self, keys: Keys) -> int:
        n_group = keys.uint("ssm.group_count")
        if n_group == 0 or self.ssm_d_inner % n_group or self.ssm_dt_rank % n_group:
            raise keys.error("ssm.group_count", "it must divide inner_size and time_step_rank")
        if self.ssm_d_inner % self.ssm_dt_rank:
            raise keys.error(
                "ssm.time_step_rank", f"it must divide inner_size = {self.ssm_d_inner}"
            )
        return n_group


class Mamba2(SSMModel):
    arch = "mamba2"
    hparams_class = Mamba2HParams
    hparams: Mamba2HParams

    def load_scan(self, t: LayerLoader) -> None:
        hp, n_head, n_group = self.hparams, self.hparams.ssm_dt_rank, self.hparams.ssm_n_group
        t.matrix("ssm_in", hp.n_embd, hp.ssm_d_inner + hp.conv_dim + n_head)
        t.tensor("ssm_dt.bias", n_head, use="ADD")
        t.tensor("ssm_a", 1, n_head, use="SSM_SCAN")
        t.tensor("ssm_d", 1, n_head, use="MUL")
        t.tensor("ssm_norm.weight", hp.ssm_d_inner // n_group, n_group, use="MUL")

    def graph(self, params: GraphParams) -> Mamba2Graph:
        return Mamba2Graph(self, params)


class Scanned(NamedTuple):
    """What a scan reads, of T tokens of B sequences."""

    x: Tensor  # [head_dim, n_head, T, B]
    dt: Tensor  # [n_head, T, B]
    b: Tensor  # [d_state, n_group, T, B]
    c: Tensor  # [d_state, n_group, T, B]


class Mamba2Graph(SSMGraph):
    model: Mamba2
    hparams: Mamba2HParams

    def state_space(self, inp: InputRS, cur: Tensor, il: int) -> Tensor:
        layer, hp, per_seq = (
            self.model.layers[il], self.hparams, (self.ubatch.n_seq_tokens, self.ubatch.n_seqs)
        )  # fmt: skip
        d_inner, n_head, n_group = hp.ssm_d_inner, hp.ssm_dt_rank, hp.ssm_n_group
        states = self.conv_states(inp, il)
        projected = self.build_mm(layer.ssm_in, cur)
        projected = reshape(projected, projected.ne[0], *per_seq)  # z, x, b, c, dt
        z = _heads(projected, d_inner // n_head, n_head, 0)
        x = view(projected, (hp.conv_dim, *per_seq), offset=d_inner)
        dt = view(projected, (n_head, *per_seq), offset=d_inner + hp.conv_dim)
        all_states, n = inp.mctx.get_r_l(il), hp.n_embd_r
        cells = view(all_states, (n, per_seq[1]), offset=inp.mctx.get_head() * n)
        xbc = self.convolve(states, x, cells, il)
        y = self.scan(inp, self.split(xbc, dt, il), il)
        y = swiglu_split(cont(z), self.cb(y, "mamba2_y_add_d", il))
        y = self.build_norm(reshape(y, d_inner // n_group, n_group, *per_seq), layer.ssm_norm, il)
        cur = self.build_mm(layer.ssm_out, reshape(y, d_inner, self.n_tokens))
        return self.cb(cur, "mamba_out", il)

    def split(self, xbc: Tensor, dt: Tensor, il: int) -> Scanned:
        """xbc [conv_dim, T, B], dt [n_head, T, B]"""
        hp, d_inner, n_head = self.hparams, self.hparams.ssm_d_inner, self.hparams.ssm_dt_rank
        d_state, n_group = hp.ssm_d_state, hp.ssm_n_group
        x = _heads(xbc, d_inner // n_head, n_head, 0)
        b = _heads(xbc, d_state, n_group, d_inner)
        c = _heads(xbc, d_state, n_group, d_inner + n_group * d_state)
        return Scanned(x, add(cont(dt), self.model.layers[il].ssm_dt), b, c)

    def scan(self, inp: InputRS, s: Scanned, il: int) -> Tensor:
        """-> [head_dim, n_head, T, B]; the new state is stored."""
        layer, hp, n_seqs = self.model.layers[il], self.hparams, s.x.ne[3]
        head_dim, n_head, n_seq_tokens = s.x.ne[:3]
        all_states, n = inp.mctx.get_s_l(il), hp.n_embd_s

        def scan_from(states: Tensor, ids: Tensor) -> Tensor:
            states = reshape(states, hp.ssm_d_state, head_dim, n_head, states.ne[1])
            return ssm_scan(states, s.x, s.dt, layer.ssm_a, s.b, s.c, ids)

        result = self.build_rs(inp, all_states, n, n_seqs, scan_from)
        new = view(result, (n, n_seqs, 1), (n, n * n_seqs), s.x.n_elements)
        group = inp.mctx.get_size() * n
        cells = view(all_states, (n, n_seqs, 1), (n, group), inp.mctx.get_head() * n)
        self.expand(cpy(new, cells))
        row = head_dim * n_head
        y = view(result, s.x.ne, (head_dim, row, row * n_seq_tokens))
        return add(y, mul(s.x, layer.ssm_d))


def _heads(t: Tensor, size: int, n: int, offset: int) -> Tensor:
    """[., T, B] -> [size, n, T, B] from channel `offset` on"""
    row, matrix = t.nb[1] // t.nb[0], t.nb[2] // t.nb[0]
    return view(t, (size, n, *t.ne[1:3]), (size, row, matrix), offset)
