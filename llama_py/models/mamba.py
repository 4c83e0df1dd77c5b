"""Mamba: a state space with steps, inputs and outputs chosen by each token (models/mamba.cpp)."""

from __future__ import annotations

from ggml_py.ops import add, cont, cpy, mul, reshape, ssm_scan, swiglu_split, view
from ggml_py.tensor import Tensor
from llama_py.hparams import Keys
from llama_py.inputs import GraphParams, InputRS
from llama_py.models._ssm import SSMGraph, SSMHParams, SSMModel
from llama_py.weights import LayerLoader


class MambaHParams(SSMHParams):
    def load_groups(self, keys: Keys) -> int:
        if self.ssm_d_inner != 2 * self.n_embd:
            raise keys.error("ssm.inner_size", f"it must be twice {self.n_embd}, embedding_length")
        self.ssm_dt_b_c_rms = keys.flag("ssm.dt_b_c_rms", False)
        return 0


class Mamba(SSMModel):
    arch = "mamba"
    hparams_class = MambaHParams
    hparams: MambaHParams

    def load_scan(self, t: LayerLoader) -> None:
        hp, d_inner, d_state = self.hparams, self.hparams.ssm_d_inner, self.hparams.ssm_d_state
        t.matrix("ssm_in", hp.n_embd, 2 * d_inner)
        t.matrix("ssm_x", d_inner, hp.ssm_dt_rank + 2 * d_state, scaled=False)
        t.matrix("ssm_dt", hp.ssm_dt_rank, d_inner, bias="needed", scaled=False)
        t.tensor("ssm_a", d_state, d_inner, use="SSM_SCAN")
        t.tensor("ssm_d", d_inner, use="MUL")

    def graph(self, params: GraphParams) -> MambaGraph:
        return MambaGraph(self, params)


class MambaGraph(SSMGraph):
    model: Mamba
    hparams: MambaHParams

    def state_space(self, inp: InputRS, cur: Tensor, il: int) -> Tensor:
        layer, n_seqs, d_inner = self.model.layers[il], self.ubatch.n_seqs, self.hparams.ssm_d_inner
        n_seq_tokens = self.ubatch.n_seq_tokens
        states = self.conv_states(inp, il)
        cur = reshape(cur, cur.ne[0], n_seq_tokens, n_seqs)
        xz = self.build_mm(layer.ssm_in, cur)  # [2 * d_inner, T, B]
        x, z = (view(xz, (d_inner, *xz.ne[1:3]), offset=i * d_inner) for i in range(2))
        all_states, n = inp.mctx.get_r_l(il), self.hparams.n_embd_r
        cells = view(all_states, (n * n_seqs,), offset=inp.mctx.get_head() * n)
        x = self.convolve(states, x, cells, il)
        y = add(self.scan(inp, x, il), mul(x, layer.ssm_d))
        cur = self.build_mm(layer.ssm_out, swiglu_split(cont(z), y))
        return reshape(cur, cur.ne[0], n_seq_tokens * n_seqs)

    def scan(self, inp: InputRS, x: Tensor, il: int) -> Tensor:
        """x [d_inner, T, B] -> the same; each channel is a head of size one."""
        layer, hp = self.model.layers[il], self.hparams
        d_inner, n_seq_tokens, n_seqs, _ = x.ne
        dt_b_c = self.build_mm(layer.ssm_x, x)  # [dt_rank + 2 * d_state, T, B]
        row, matrix = dt_b_c.ne[0], dt_b_c.ne[0] * n_seq_tokens
        dt = view(dt_b_c, (hp.ssm_dt_rank, n_seq_tokens, n_seqs))
        ne, strides = (hp.ssm_d_state, 1, n_seq_tokens, n_seqs), (hp.ssm_d_state, row, matrix)
        b = view(dt_b_c, ne, strides, hp.ssm_dt_rank)
        c = view(dt_b_c, ne, strides, hp.ssm_dt_rank + hp.ssm_d_state)
        if hp.ssm_dt_b_c_rms:
            dt, b, c = (self.build_norm(t, None, il) for t in (dt, b, c))
        else:
            dt = cont(dt)
        dt = add(self.build_mm(layer.ssm_dt, dt), layer.ssm_dt.bias)
        x = reshape(x, 1, d_inner, n_seq_tokens, n_seqs)
        all_states, n = inp.mctx.get_s_l(il), hp.n_embd_s

        def scan_from(states: Tensor, ids: Tensor) -> Tensor:
            states = reshape(states, hp.ssm_d_state, 1, d_inner, inp.mctx.get_size())
            return ssm_scan(states, x, dt, layer.ssm_a, b, c, ids)

        y = self.build_rs(inp, all_states, n, n_seqs, scan_from)
        cells = view(all_states, (n * n_seqs,), offset=inp.mctx.get_head() * n)
        self.expand(cpy(view(y, (n * n_seqs,), offset=x.n_elements), cells))
        return view(y, (d_inner, n_seq_tokens, n_seqs), (d_inner, d_inner * n_seq_tokens))
