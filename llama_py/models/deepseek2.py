"""DeepSeek-V2 and -V3, and others of their shape: latent attention, experts after the first layers
(models/deepseek2.cpp)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ggml_py.ops import mul
from ggml_py.tensor import Tensor
from llama_py.hparams import ROPE_NORMAL, Keys
from llama_py.inputs import GraphParams, InputAttnTemp
from llama_py.models._decoder import Decoder
from llama_py.models._mla import GATING_FUNCS, MLA, MLAHParams, MLAModel
from llama_py.weights import WeightLoader

GLM_4_7_LITE = (47, 48), 154880  # layers, vocabulary: its files do not name the gating function


class Deepseek2HParams(MLAHParams):
    rope_type = ROPE_NORMAL

    def load(self, keys: Keys) -> None:
        super().load(keys)
        f32 = np.float32
        # Files have it times 0.1.
        log_mul = f32(keys.number("rope.scaling.yarn_log_multiplier", 0.0)) / f32(0.1)
        self.rope_yarn_log_mul = float(log_mul)
        if log_mul not in (0, 1):
            self.rope_yarn_mscale = self.rope_yarn_log_mul
        self.attn_temp_scale = keys.number("attention.temperature_scale", 0.0)
        self.attn_temp_length = keys.uint("attention.temperature_length", 0)
        if self.attn_temp_scale and not self.attn_temp_length:
            raise keys.error("attention.temperature_length", "it must be at least 1")

    def default_gating(self, keys: Keys) -> int:
        layers, n_vocab = GLM_4_7_LITE
        glm = self.n_layer in layers and self.n_vocab == n_vocab
        return 1 + GATING_FUNCS.index("sigmoid" if glm else "softmax")


class Deepseek2(MLAModel):
    arch = "deepseek2"
    hparams_class = Deepseek2HParams
    hparams: Deepseek2HParams

    def load_tensors(self, w: WeightLoader) -> None:
        hp = self.hparams
        self.choose_form(w)
        self.load_embeddings(w)
        for il in range(hp.n_layer):
            t = w.layer(il)
            t.norm("attn_norm", hp.n_embd)
            self.load_mla(t)
            t.matrix("attn_output", hp.n_head() * hp.n_embd_head_v_mla, hp.n_embd)
            self.load_feed_forward(t, il, need_shexp=hp.n_expert_shared > 0, need_b=False)
        w.skip_layers(range(hp.n_layer, hp.n_layer_all))

    def graph(self, params: GraphParams) -> Deepseek2Graph:
        return Deepseek2Graph(self, params)


class Deepseek2Graph(MLA, Decoder):
    model: Deepseek2
    hparams: Deepseek2HParams

    def build(self) -> None:
        hp = self.hparams
        self.attn_scale: Tensor | None = None
        if hp.attn_temp_scale:
            temp = InputAttnTemp(hp.attn_temp_length, hp.attn_temp_scale, self.n_tokens)
            self.attn_scale = self.res.add_input(temp).attn_scale
        super().build()

    def build_attn_inp(self) -> Any:
        return self.build_attn_inp_k() if self.hparams.absorbed else self.build_attn_inp_kv()

    def attention(self, cur: Tensor, inp: Any, inp_pos: Tensor, il: int) -> Tensor:
        self.inp_pos = inp_pos
        wo = self.model.layers[il].attn_output
        return self.latent_attention(inp, wo, cur, il, kq_scale=self._kq_scale())

    def turn(self, x: Tensor, offset: int = 0) -> Tensor:
        return self.build_rope(x, self.inp_pos, offset=offset)

    def temper(self, q: Tensor, il: int) -> Tensor:
        if self.attn_scale is None:
            return q
        return self.cb(mul(q, self.attn_scale), "Qcur_attn_temp_scaled", il)

    def _kq_scale(self) -> float:
        """1 / sqrt(d), with what YaRN adds: its factor as it was before CParams divided out ggml's
        own, and mscale, both squared because they are of queries and keys. In float32 steps."""
        hp, cp, f32 = self.hparams, self.cparams, np.float32
        log = np.log(f32(1.0) / f32(cp.rope_freq_scale))
        factor = f32(cp.yarn_attn_factor) * (f32(1.0) + f32(0.1) * log)
        mscale = factor * (f32(1.0) + f32(0.1) * f32(hp.rope_yarn_log_mul) * log)
        return float(mscale * mscale / np.sqrt(f32(hp.n_embd_head_k_mla)))
