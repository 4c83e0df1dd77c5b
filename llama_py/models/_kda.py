"""Kimi's delta attention: a delta net with a gate per channel, and latent attention without
positions in every fourth layer (the part that models/kimi-linear.cpp and kimi-k3.cpp have in
common)."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from ggml_py.ops import concat, cont, cpy, reshape, silu, ssm_conv, transpose, view
from ggml_py.tensor import Tensor
from llama_py.hparams import ROPE_NONE, Keys
from llama_py.inputs import InputMemHybrid, InputRS
from llama_py.models._delta_net import DeltaNet
from llama_py.models._mla import MLA, MLAHParams, MLAModel
from llama_py.weights import Layer, LayerLoader, WeightLoader


class KDAHParams(MLAHParams):
    """n_embd_head_kda is the size S of a delta net's head; layers without key heads are such."""

    rope_type = ROPE_NONE

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.ssm_d_conv = keys.uint("ssm.conv_kernel")
        self.n_embd_head_kda = keys.uint("kda.head_dim")
        for key, size in (
            ("ssm.conv_kernel", self.ssm_d_conv), ("kda.head_dim", self.n_embd_head_kda),
        ):  # fmt: skip
            if size == 0:
                raise keys.error(key, "it must be at least 1")
        self.kda_d_inner = self.n_head() * self.n_embd_head_kda
        self.n_embd_r = 3 * (self.ssm_d_conv - 1) * self.kda_d_inner
        self.n_embd_s = self.n_embd_head_kda * self.kda_d_inner
        n = self.n_layer
        delta = tuple(self.n_head_kv(il) == 0 for il in range(n))
        self.recurrent_layers = delta + self.recurrent_layers[n:]


class KDAModel(MLAModel):
    memory = "hybrid"
    hparams: KDAHParams

    def load_tensors(self, w: WeightLoader) -> None:
        hp = self.hparams
        self.choose_form(w)
        self.load_embeddings(w)
        for il in range(hp.n_layer):
            t = w.layer(il)
            t.norm("attn_norm", hp.n_embd)
            if hp.is_recr(il):
                self.load_kda(t)
            else:
                self.load_mla(t)
            self.load_feed_forward(t, il, need_shexp=False, need_b=True)
        w.skip_layers(range(hp.n_layer, hp.n_layer_all))

    def load_kda(self, t: LayerLoader) -> None:
        """The weights of a delta net layer; as llama.cpp, without scales."""
        hp, n_embd, n_inner = self.hparams, self.hparams.n_embd, self.hparams.kda_d_inner
        n_head, size = hp.n_head(), hp.n_embd_head_kda
        for part in "qkv":
            name, flat = f"ssm_conv1d_{part}.weight", (hp.ssm_d_conv, n_inner)
            t.tensor(name, hp.ssm_d_conv, 1, n_inner, use="SSM_CONV", other=flat)
        t.qkv(n_embd, n_inner, n_inner, n_inner, scaled=False)
        t.matrix("ssm_f_a", n_embd, size, scaled=False)
        t.matrix("ssm_f_b", size, n_inner, scaled=False)
        t.matrix("ssm_beta", n_embd, n_head, scaled=False)
        t.tensor("ssm_dt.bias", n_inner, use="ADD")
        t.norm("ssm_norm", size)
        t.matrix("attn_output", n_inner, n_embd, scaled=False)


class KDA(MLA, DeltaNet):
    """Blocks of delta net layers."""

    hparams: KDAHParams

    def build_kda_inputs(self) -> InputMemHybrid[Any]:
        absorbed = self.hparams.absorbed
        return self.build_inp_mem_hybrid_k() if absorbed else self.build_inp_mem_hybrid()

    def split_queries(self, q: Tensor, il: int) -> Tensor:
        return q if self.hparams.absorbed else super().split_queries(q, il)

    def build_kda_qkv(self, inp: InputRS, cur: Tensor, il: int) -> list[Tensor]:
        """cur [n_embd, n_tokens] -> queries, keys and values, each [S, H, T, B]"""
        layer, states = self.model.layers[il], inp.mctx.get_r_l(il)
        self.cb(states, "conv_states_all", il)
        start = self.build_rs(inp, states, self.hparams.n_embd_r, self.ubatch.n_seqs)
        merged = self._merged(layer, cur)
        done = []
        for i, part in enumerate("qkv"):
            x = merged[i] if merged else self.build_mm(layer.get(f"attn_{part}"), cur)
            done.append(self._convolve(inp, states, start, i, x, layer.get(f"ssm_conv1d_{part}")))
        return done

    def _merged(self, layer: Layer, cur: Tensor) -> list[Tensor]:
        """The parts of attn_qkv's result, if the file has that. 3 x [d_inner, n_tokens]"""
        if layer.attn_qkv is None:
            return []
        qkv, n = self.build_mm(layer.attn_qkv, cur), self.hparams.kda_d_inner
        return [cont(view(qkv, (n, self.n_tokens), offset=i * n)) for i in range(3)]

    def _convolve(
        self, inp: InputRS, all_states: Tensor, start: Tensor, part: int, x: Tensor, conv: Tensor
    ) -> Tensor:
        """Short convolution of x [d_inner, n_tokens] after the inputs kept in `start`; the last
        ones are stored, as of each of the last n_rs_seq + 1 tokens. -> [S, H, T, B]

        A row of states has, for queries, keys and values (part 0, 1, 2): [d_conv - 1, d_inner].
        """
        hp, mctx, n_inner = self.hparams, inp.mctx, self.hparams.kda_d_inner
        per_seq, width, row = self._per_seq(), hp.ssm_d_conv - 1, hp.n_embd_r
        ne, strides, first = (width, n_inner, per_seq[1]), (width, row), part * width * n_inner
        x = transpose(reshape(x, n_inner, *per_seq))
        conv_x = concat(view(start, ne, strides, first), x, 0)
        for slot in range(self.cparams.n_rs_seq + 1):
            last = view(conv_x, ne, offset=max(0, per_seq[0] - slot))
            cell = slot * mctx.get_size() + mctx.get_head()
            self.expand(cpy(last, view(all_states, ne, strides, cell * row + first)))
        y = ssm_conv(conv_x, reshape(conv, hp.ssm_d_conv, n_inner))
        y = silu(reshape(y, n_inner, self.n_tokens))
        return reshape(y, hp.n_embd_head_kda, hp.n_head(), *per_seq)

    def _per_seq(self) -> tuple[int, int]:
        return self.ubatch.n_seq_tokens, self.ubatch.n_seqs

    def build_kda_state(self, inp: InputRS, il: int) -> Tensor:
        """-> [S, S, H, B]"""
        hp, size = self.hparams, self.hparams.n_embd_head_kda
        n_seqs = self.ubatch.n_seqs
        state = self.build_rs(inp, inp.mctx.get_s_l(il), hp.n_embd_s, n_seqs)
        return reshape(state, size, size, hp.n_head(), n_seqs)

    @abstractmethod
    def build_kda(self, inp: InputRS, cur: Tensor, il: int) -> Tensor:
        """The delta net layer. [n_embd, n_tokens] -> the same"""
