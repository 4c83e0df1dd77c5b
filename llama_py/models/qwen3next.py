"""Qwen3-Next: delta nets, every fourth layer full attention, experts with a shared one
(models/qwen3next.cpp)."""

from __future__ import annotations

from ggml_py.ops import concat, cont, reshape, sigmoid
from ggml_py.tensor import Tensor
from llama_py.blocks.functions import split
from llama_py.blocks.gated_attention import GatedAttention
from llama_py.blocks.linear_attention import DeltaProjections
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.memory.specs import KVCacheSpec
from llama_py.models.trunks.hybrid import NAMES, HybridMoe, HybridMoeHParams
from llama_py.models.trunks.nextn import DRAFT_NAMES, EarlyNextN
from llama_py.weights import Weights


class Qwen3NextHParams(HybridMoeHParams):
    rope_type = ROPE_NEOX
    interleaved = False


class Qwen3NextProjections(DeltaProjections):
    """Projections; in old files one matrix for queries, keys, values and gates. Betas and alphas
    have one matrix or two (ik_llama.cpp)."""

    def declare(self, w: Weights) -> None:
        hp, n_embd, n_head = self.hp, self.hp.n_embd, self.hp.ssm_dt_rank
        self.old = w.has("ssm_in.weight") and not w.has("attn_qkv.weight")
        self.separate = w.has("ssm_beta.weight") and w.has("ssm_alpha.weight")
        if self.old:
            self.in_mixed = w.linear("ssm_in", n_embd, hp.conv_dim + hp.value_dim, scaled=False)
        else:
            w.skip("ssm_in.weight", "ssm_in.scale", "ssm_in.input_scale")
            self.in_qkv = w.linear(
                "attn_qkv", n_embd, hp.conv_dim, scaled=False, sections=hp.conv_sections
            )
            self.in_z = w.linear("attn_gate", n_embd, hp.value_dim, scaled=False)
        if self.separate:
            self.in_beta = w.linear("ssm_beta", n_embd, n_head, scaled=False)
            self.in_alpha = w.linear("ssm_alpha", n_embd, n_head, scaled=False)
        else:
            self.in_ba = w.linear("ssm_ba", n_embd, 2 * n_head, scaled=False)
        self.out = w.linear("ssm_out", hp.value_dim, n_embd, scaled=False)

    def gates(self, g: GraphBuilder, cur: Tensor, il: int) -> tuple[Tensor, Tensor]:
        if self.separate:
            return super().gates(g, cur, il)
        n_head = self.hp.ssm_dt_rank
        b, a = self.mixed_ba(g, cur, il)
        if g.rotations is None:  # the llama.cpp that reads folded weights needs no copy
            b = cont(b)
        beta = reshape(sigmoid(b), 1, n_head, *g.per_seq)
        return beta, cont(a, n_head, *g.per_seq)

    def mixed_ba(self, g: GraphBuilder, cur: Tensor, il: int) -> tuple[Tensor, Tensor]:
        """Return views of betas before their sigmoid and of alphas, each [H / H_k, H_k, T, B]."""
        n_group, n_each = self.hp.ssm_n_group, self.hp.ssm_dt_rank // self.hp.ssm_n_group
        ba = g.cb(self.in_ba(g, cur), "linear_attn_mixed_ba", il)
        ba = reshape(ba, 2 * n_each, n_group, *g.per_seq)  # each key head: betas, then alphas
        b, a = split(ba, [n_each, n_each], n_dims=4)
        return g.cb(b, "b", il), g.cb(a, "a", il)

    def slot_gates(self, g: GraphBuilder, cur: Tensor, il: int) -> tuple[Tensor, Tensor]:
        if self.separate:
            return super().slot_gates(g, cur, il)
        n_head = self.hp.ssm_dt_rank
        b, a = self.mixed_ba(g, cur, il)
        return cont(b, n_head, 1, g.n_tokens), cont(a, n_head, g.n_tokens)

    def slot_qkvz(self, g: GraphBuilder, cur: Tensor, il: int) -> tuple[Tensor, Tensor]:
        return self.qkvz(g, cur, il) if self.old else super().slot_qkvz(g, cur, il)

    def qkvz(self, g: GraphBuilder, cur: Tensor, il: int) -> tuple[Tensor, Tensor]:
        """Return queries, keys and values for the convolution, and z, which may have four
        dimensions. Old files have one matrix: per key head, the result has query, key, and the
        values and gates of its value heads."""
        if not self.old:
            return super().qkvz(g, cur, il)
        d_k, n_group = self.hp.ssm_d_state, self.hp.ssm_n_group
        d_v = self.hp.value_dim // n_group
        mixed = g.cb(self.in_mixed(g, cur), "linear_attn_mixed_qkvz", il)
        mixed = reshape(mixed, 2 * d_k + 2 * d_v, n_group, *g.per_seq)
        *parts, z = split(mixed, [d_k, d_k, d_v, d_v], n_dims=4)
        for part, name in zip(parts, "qkv", strict=True):
            g.cb(part, name, il)
        z = g.cb(cont(z), "z", il)
        q, k, v = (
            g.cb(cont(part, part.ne[0] * n_group, *g.per_seq), name, il)
            for part, name in zip(parts, ("query_flat", "key_flat", "value_flat"), strict=True)
        )
        return g.cb(concat(concat(q, k, 0), v, 0), "qkv_mixed", il), z


class SplitGatedAttention(GatedAttention):
    """Gated attention that splits joint rows by heads first, except in draft graphs."""

    parts_keep = KVCacheSpec

    def joint(self, g: GraphBuilder, q_gate: Tensor) -> Tensor:
        d, n_head = self.shape.n_embd_head_k, self.shape.n_head
        return (
            reshape(q_gate, 2 * d, n_head, g.n_tokens, 1) if g.params.gtype == "decoder" else q_gate
        )


class Qwen3Next(HybridMoe):
    arch = "qwen3next"
    folds = "qwen3next"
    HParams = Qwen3NextHParams
    sizes = {48: "80B.A3B"}
    names = NAMES | {
        "embd": "model.embed_tokens",
        "Qcur_reshaped": "Qcur_view",
        "gate_view": "gate",
        "gate_reshaped": "",
    }
    draft_names = DRAFT_NAMES | {"Qcur": "mtp_Qcur", "Kcur": "mtp_Kcur"}
    projections = Qwen3NextProjections
    full = SplitGatedAttention
    nextn = EarlyNextN
