"""Decoders of selective state spaces alone: no attention, no feed-forward
(models/mamba.cpp and mamba-base.cpp)."""

from __future__ import annotations

from abc import abstractmethod

from ggml_py.ops import add, concat, cpy, get_rows, reshape, silu, ssm_conv, transpose, view
from ggml_py.tensor import Tensor
from llama_py.hparams import HParams, Keys
from llama_py.inputs import InputRS
from llama_py.models._base import GraphBuilder, Model
from llama_py.weights import LayerLoader, Linear, WeightLoader


class SSMHParams(HParams):
    """Sizes under their ssm names.

    ssm_d_conv  width of the convolution; ssm_d_inner  channels; ssm_d_state  states of a channel;
    ssm_dt_rank  rank of the time step, or heads; conv_dim  channels of the convolution
    """

    def load(self, keys: Keys) -> None:
        self.load_rms_eps(keys)
        names = ("conv_kernel", "inner_size", "state_size", "time_step_rank")
        sizes = [keys.uint(f"ssm.{name}") for name in names]
        for name, size in zip(names, sizes, strict=True):
            if size == 0:
                raise keys.error(f"ssm.{name}", "it must be at least 1")
        self.ssm_d_conv, self.ssm_d_inner, self.ssm_d_state, self.ssm_dt_rank = sizes
        self.ssm_n_group = self.load_groups(keys)
        self.conv_dim = self.ssm_d_inner + 2 * self.ssm_n_group * self.ssm_d_state
        self.n_embd_r = (self.ssm_d_conv - 1) * self.conv_dim
        self.n_embd_s = self.ssm_d_state * self.ssm_d_inner
        self.recurrent_layers = (True,) * self.n_layer_all

    @abstractmethod
    def load_groups(self, keys: Keys) -> int:
        """Groups of channels whose states are convolved too; check what this kind needs."""


class SSMModel(Model):
    memory = "recurrent"
    hparams: SSMHParams

    def load_tensors(self, w: WeightLoader) -> None:
        hp = self.hparams
        self.load_embeddings(w)
        for il in range(hp.n_layer):
            t = w.layer(il)
            t.norm("attn_norm", hp.n_embd)
            t.matrix("ssm_conv1d", hp.ssm_d_conv, hp.conv_dim, use="SSM_CONV", bias="needed")
            t.matrix("ssm_out", hp.ssm_d_inner, hp.n_embd)
            self.load_scan(t)

    @abstractmethod
    def load_scan(self, t: LayerLoader) -> None:
        """Declare what differs between the kinds."""


class SSMGraph(GraphBuilder):
    model: SSMModel
    hparams: SSMHParams

    def build(self) -> None:
        cur = self.build_inp_embd(self.model.token_embd)
        inp = self.build_rs_inp()
        inp_out_ids = self.build_inp_out_ids()
        for il, layer in enumerate(self.model.layers):
            residual = cur
            cur = self.cb(self.build_norm(cur, layer.attn_norm, il), "attn_norm", il)
            cur = self.state_space(inp, cur, il)
            if il == self.n_layer - 1:  # only outputs go on
                cur = get_rows(cur, inp_out_ids)
                residual = get_rows(residual, inp_out_ids)
            cur = self.layer_out(add(cur, residual), il)
        self.res.t_embd = self.cb(self.build_norm(cur, self.model.output_norm), "result_norm")
        self.build_head(self.res.t_embd)  # [n_vocab, n_outputs]

    @abstractmethod
    def state_space(self, inp: InputRS, cur: Tensor, il: int) -> Tensor:
        """[n_embd, n_tokens] -> the same"""

    def conv_states(self, inp: InputRS, il: int) -> Tensor:
        """The last inputs of each sequence. -> [d_conv - 1, conv_dim, n_seqs]"""
        hp, n_seqs = self.hparams, self.ubatch.n_seqs
        states = self.build_rs(inp, inp.mctx.get_r_l(il), hp.n_embd_r, n_seqs)
        return reshape(states, hp.ssm_d_conv - 1, hp.conv_dim, n_seqs)

    def convolve(self, states: Tensor, x: Tensor, cells: Tensor, il: int) -> Tensor:
        """The convolution of x [conv_dim, T, B] after `states`; what follows it goes to `cells`."""
        conv: Linear = self.model.layers[il].ssm_conv1d
        assert conv.bias is not None
        conv_x = concat(states, transpose(x), 0)
        self.expand(cpy(view(conv_x, states.ne[:3], offset=x.ne[1]), cells))
        return silu(add(ssm_conv(conv_x, conv.weight), conv.bias))
