"""Qwen3-Next: delta nets, every fourth layer full attention, experts with a shared one
(models/qwen3next.cpp)."""

from __future__ import annotations

from collections.abc import Mapping

from ggml_py.ops import add, concat, cont, mul, repeat_4d, reshape, sigmoid, softplus, view
from ggml_py.tensor import Tensor
from llama_py.hparams import ROPE_NEOX
from llama_py.inputs import GraphParams
from llama_py.models._hybrid import Projections
from llama_py.models._hybrid_moe import HybridMoeGraph, HybridMoeHParams, HybridMoeModel
from llama_py.models._nextn import NAMES, NextNGraph
from llama_py.weights import LayerLoader


class Qwen3NextHParams(HybridMoeHParams):
    rope_type = ROPE_NEOX


class Qwen3Next(HybridMoeModel):
    arch = "qwen3next"
    hparams_class = Qwen3NextHParams
    supports_rs_rollback = False

    def load_linear_attention(self, t: LayerLoader) -> None:
        """As llama.cpp, without the scales of these matrices. Betas and alphas may also be in two
        matrices, as ik_llama.cpp has it."""
        hp, n_embd, n_head = self.hparams, self.hparams.n_embd, self.hparams.ssm_dt_rank
        old = t.has("ssm_in.weight") and not t.has("attn_qkv.weight")
        t.matrix("ssm_in", n_embd, hp.conv_dim + hp.value_dim, scaled=False, optional=True)
        t.matrix("attn_qkv", n_embd, hp.conv_dim, scaled=False, optional=old)
        t.matrix("attn_gate", n_embd, hp.value_dim, scaled=False, optional=old)
        t.tensor("ssm_conv1d.weight", hp.ssm_d_conv, hp.conv_dim, use="SSM_CONV")
        t.tensor("ssm_dt.bias", n_head, use="ADD")
        t.tensor("ssm_a", n_head, use="MUL")
        separate = t.has("ssm_beta.weight") and t.has("ssm_alpha.weight")
        t.matrix("ssm_ba", n_embd, 2 * n_head, scaled=False, optional=separate)
        t.matrix("ssm_beta", n_embd, n_head, scaled=False, optional=not separate)
        t.matrix("ssm_alpha", n_embd, n_head, scaled=False, optional=not separate)
        t.norm("ssm_norm", hp.ssm_d_state)
        t.matrix("ssm_out", hp.value_dim, n_embd, scaled=False)

    def graph(self, params: GraphParams) -> Qwen3NextGraph:
        return Qwen3NextGraph(self, params)

    def draft_graph(self, params: GraphParams) -> Qwen3NextDraft:
        return Qwen3NextDraft(self, params)


class Qwen3NextGraph(HybridMoeGraph):
    model: Qwen3Next
    names: Mapping[str, str] = {
        **HybridMoeGraph.names,
        "model.input_embed": "model.embed_tokens",
        "Qcur_reshaped": "Qcur_view",
        "gate_view": "gate",
        "gate_reshaped": "",
    }

    def joint_heads(self, q_gate: Tensor, n_embd_head: int, n_head: int) -> Tensor:
        return reshape(q_gate, n_embd_head, n_head, self.n_tokens, 1)

    def projections(self, cur: Tensor, il: int) -> Projections:
        if self.model.layers[il].ssm_ba is None:
            return super().projections(cur, il)
        layer, hp, n_head = self.model.layers[il], self.hparams, self.hparams.ssm_dt_rank
        per_seq = (self.ubatch.n_seq_tokens, self.ubatch.n_seqs)
        qkv, z = self.build_qkvz(cur, il)
        ba = self.cb(self.build_mm(layer.ssm_ba, cur), "linear_attn_mixed_ba", il)
        n_group, n_each = hp.ssm_n_group, n_head // hp.ssm_n_group
        ba = reshape(ba, 2 * n_each, n_group, *per_seq)  # of each key head: betas, then alphas
        b = self.cb(view(ba, (n_each, *ba.ne[1:])), "b", il)
        a = self.cb(view(ba, (n_each, *ba.ne[1:]), offset=n_each), "a", il)
        beta = sigmoid(cont(b))
        alpha = add(cont(a, n_head, *per_seq), layer.ssm_dt)
        gate = mul(self.cb(softplus(alpha), "a_softplus", il), layer.ssm_a)
        beta = reshape(beta, 1, n_head, *per_seq)
        gate = reshape(self.cb(gate, "gate", il), 1, n_head, *per_seq)
        return Projections(qkv, z, beta, gate)

    def build_qkvz(self, cur: Tensor, il: int) -> tuple[Tensor, Tensor]:
        """As for the other hybrids; z may have four dimensions."""
        if self.model.layers[il].attn_qkv is None:
            return self._mixed_qkvz(cur, il)
        return super().build_qkvz(cur, il)

    def _mixed_qkvz(self, cur: Tensor, il: int) -> tuple[Tensor, Tensor]:
        """From old files' ssm_in: of each key head its query, key, and its value heads' values and
        gates."""
        hp, per_seq = self.hparams, (self.ubatch.n_seq_tokens, self.ubatch.n_seqs)
        d_k, n_group = hp.ssm_d_state, hp.ssm_n_group
        d_v = hp.value_dim // n_group
        mixed = self.build_mm(self.model.layers[il].ssm_in, cur)
        self.cb(mixed, "linear_attn_mixed_qkvz", il)
        mixed = reshape(mixed, 2 * d_k + 2 * d_v, n_group, *per_seq)
        parts, offset = [], 0
        for name, size in (("q", d_k), ("k", d_k), ("v", d_v), ("z", d_v)):
            part = view(mixed, (size, n_group, *per_seq), offset=offset)
            parts.append(part if name == "z" else self.cb(part, name, il))
            offset += size
        z = self.cb(cont(parts.pop()), "z", il)
        q, k, v = (
            self.cb(cont(part, part.ne[0] * n_group, *per_seq), name, il)
            for part, name in zip(parts, ("query_flat", "key_flat", "value_flat"), strict=True)
        )
        return self.cb(concat(concat(q, k, 0), v, 0), "qkv_mixed", il), z

    def repeat_heads(self, x: Tensor) -> Tensor:
        """Value head h uses key head h / (H / H_k), so the fused op cannot do it itself."""
        n_head, (size, n_group, n_seq_tokens, n_seqs) = self.hparams.ssm_dt_rank, x.ne
        if n_group == n_head:
            return x
        n_tokens = n_seq_tokens * n_seqs
        x = reshape(x, size, 1, n_group, n_tokens)
        x = repeat_4d(x, size, n_head // n_group, n_group, n_tokens)
        return reshape(x, size, n_head, n_seq_tokens, n_seqs)


class Qwen3NextDraft(NextNGraph, Qwen3NextGraph):
    model: Qwen3Next
    selects_early = True
    names: Mapping[str, str] = NAMES | {"Qcur": "mtp_Qcur", "Kcur": "mtp_Kcur"}

    def joint_heads(self, q_gate: Tensor, n_embd_head: int, n_head: int) -> Tensor:
        return q_gate
