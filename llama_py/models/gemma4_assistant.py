"""Gemma 4's assistant: a few layers that draft for Gemma 4, from its token embeddings and hidden
states. They attend to keys and values of that model's last two layers, without a separate cache
(models/gemma4-assistant.cpp).

Layers with a window attend to the model's last but one, others to its last. A model with other last
layers or other heads is refused here; llama.cpp reads invalid memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from ggml_py.errors import ContextError
from ggml_py.ops import add, concat, mul, mul_mat, scale
from ggml_py.tensor import Tensor
from ggml_py.types import F32
from llama_py.blocks.activation import GELU
from llama_py.blocks.attention import Projections
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import Keys, number, uint
from llama_py.graph.borrowed import TargetTensors
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.tokens import InputEmbd
from llama_py.graph.linear import Linear
from llama_py.hparams import RMS_EPS, WindowedHParams
from llama_py.hparams.cparams import CParams
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.memory.specs import KVCacheSpec, MemorySpecs
from llama_py.models.trunks.architecture import Architecture
from llama_py.models.trunks.kv_shared import QueriesOnly
from llama_py.models.trunks.rules import DraftRules
from llama_py.weights import Weights


class Gemma4AssistantHParams(WindowedHParams):
    """n_embd_out  n_embd of the target model"""

    mixes_embd = False
    attention_scale = 1.0
    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_swa: int = uint("attention.sliding_window", least=1)
    n_embd_head_k_swa: int = uint("attention.key_length_swa", least=1)
    n_embd_head_v_swa: int = uint("attention.value_length_swa", least=1)

    def load(self, keys: Keys) -> None:
        pattern = "attention.sliding_window_pattern"
        if not keys.is_array(pattern):
            raise keys.error(pattern, "must be an array")
        if self.n_embd_out == self.n_embd:
            raise keys.error(
                "embedding_length_out",
                "must differ from embedding_length, because it is the target model's size",
            )
        super().load(keys)

    def _check_layers(self, keys: Keys) -> None:
        if self.n_layer_nextn != self.n_layer_all:
            raise keys.error("nextn_predict_layers", f"must be block_count = {self.n_layer_all}")
        self.n_layer_nextn = 0  # all are one graph's

    @property
    def n_embd_hidden(self) -> int:
        return self.n_embd_out


class AssistantLayer:
    def __init__(self, w: Weights, hp: Gemma4AssistantHParams, freqs: Tensor | None) -> None:
        n_embd, shape = hp.n_embd, hp.layers[w.il]
        self.attn_norm = w.norm("attn_norm", n_embd)
        queries = Projections(w, n_embd, shape, bias=False, scaled=False, needed="q")
        q_norm = w.norm("attn_q_norm", shape.n_embd_head_k)
        self.attention = QueriesOnly(w, hp, q_norm, None, queries, freqs)
        self.attn_post_norm = w.norm("post_attention_norm", n_embd)
        self.ffn_norm = w.norm("ffn_norm", n_embd)
        self.feed_forward = FeedForward(w, n_embd, shape.n_ff, act=GELU, scaled=False)
        self.ffn_post_norm = w.norm("post_ffw_norm", n_embd)
        self.out_scale = w.tensor("layer_output_scale.weight", 1)

    def __call__(self, g: GraphBuilder, residual: Tensor, il: int, last: bool) -> Tensor:
        """Apply the layer: [n_embd, n_tokens] -> same shape, or [n_embd, n_outputs] if last."""
        cur = self.attention(g, self.attn_norm(g, residual, "attn_norm", il), il)
        if last:
            cur, residual = g.outputs(cur, residual)
        cur = self.attn_post_norm(g, cur, "attn_post_norm", il)
        attn_out = g.cb(add(cur, residual), "attn_out", il)
        cur = self.feed_forward(g, self.ffn_norm(g, attn_out, "ffn_norm", il), il)
        cur = g.cb(self.ffn_post_norm(g, cur), "ffn_post_norm", il)
        return g.cb(mul(add(cur, attn_out), self.out_scale), "out_scaled", il)


class Gemma4Assistant(Architecture):
    arch = "gemma4-assistant"
    HParams = Gemma4AssistantHParams
    hp: Gemma4AssistantHParams
    draft_rules = DraftRules("draft-mtp", shares_memory=True, continues_states=True)
    names = {"Qcur": ""}

    def declare(self, w: Weights) -> None:
        hp, n_embd = self.hp, self.hp.n_embd
        self.token_embd = w.tensor("token_embd.weight", n_embd, hp.n_vocab)
        self.output = Linear(self.token_embd)
        self.output_norm = w.norm("output_norm", n_embd)
        self.pre = w.tensor("nextn.pre_projection.weight", 2 * hp.n_embd_out, n_embd)
        self.post = w.tensor("nextn.post_projection.weight", n_embd, hp.n_embd_out)
        w.skip("masked_embd_centroids.weight", "masked_embd_ordering")
        self.freqs: Tensor | None = None
        if not all(hp.swa_layers):
            self.freqs = w.tensor("rope_freqs.weight", hp.n_embd_head_k // 2)
        self.layers = [AssistantLayer(w.layer(il), hp, self._freqs(il)) for il in range(hp.n_layer)]

    def _freqs(self, il: int) -> Tensor | None:
        return None if self.hp.swa_layers[il] else self.freqs

    def rope_factors(self, cparams: CParams, il: int) -> Tensor | None:
        return self._freqs(il)

    def lm_head(self, nextn: int | None = None) -> Linear | None:
        return self.output

    def placeholder_tensors(self) -> TargetTensors:
        return TargetTensors(Tensor(F32, (self.hp.n_embd_out, self.hp.n_vocab)))

    def reads(self, kept: Mapping[int, MemorySpecs]) -> Mapping[int, int]:
        last, found = max(kept), dict[int, int]()
        for il in range(self.hp.n_layer):
            found[il] = last - 1 if self.hp.swa_layers[il] else last
            mine, theirs = self.memory_spec(il)[0], _target_spec(kept, found[il])
            assert isinstance(mine, KVCacheSpec)
            if theirs is None or _sizes(mine) != _sizes(theirs):
                raise ContextError(
                    f"layer {il} needs keys of (heads, size, window) {_sizes(mine)}, but layer "
                    f"{found[il]} of the target model has "
                    f"{None if theirs is None else _sizes(theirs)}"
                )
        return found

    def build(self, g: GraphBuilder) -> None:
        inp = g.add_input(InputEmbd(self.hp.n_embd_out, g.n_tokens, ("inp_tokens", "inp_h")))
        table = g.params.target_tensors.token_embd
        if table is None or table.ne[0] != self.hp.n_embd_out:
            raise ContextError(
                f"this draft model needs embeddings of length {self.hp.n_embd_out}, which the "
                "target model does not have; use the model that it was trained with"
            )
        tokens = scale(g.rows(table, inp.tokens), self.hp.n_embd_out**0.5)
        both = concat(g.cb(tokens, "inp_embd_target"), inp.embd, 0)
        cur = g.cb(mul_mat(self.pre, g.cb(both, "inp_xh")), "pre_proj")
        for il, layer in enumerate(self.layers):
            cur = layer(g, cur, il, il == len(self.layers) - 1)
        cur = self.output_norm(g, cur, "result_norm")
        logits = (g.params.head or self.output)(g, cur)
        g.res.t_logits = g.cb(logits, "result_output")
        g.res.t_h_nextn = g.cb(mul_mat(self.post, cur), "h_nextn")
        g.expand(g.res.t_logits)
        g.expand(g.res.t_h_nextn)


def _target_spec(kept: Mapping[int, MemorySpecs], il: int) -> KVCacheSpec | None:
    """Return the keys and values that layer il attends to, its own or another layer's."""
    for one in kept.get(il, ()):
        if isinstance(one, KVCacheSpec):
            return one
        il = getattr(one, "il", il)
    return next((k for k in kept.get(il, ()) if isinstance(k, KVCacheSpec)), None)


def _sizes(one: KVCacheSpec) -> tuple[int, int, bool]:
    return one.n_head_kv, one.n_embd_head_k, one.window is not None
