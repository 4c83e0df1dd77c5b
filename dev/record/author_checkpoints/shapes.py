"""Parts of checkpoints: names of tensors and their shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

D, F, V, H, K, S, E = (
    64,
    96,
    128,
    4,
    2,
    16,
    4,
)  # sizes of rows, ff, tokens, heads, keys, head, experts
FE = 48  # of an expert
SIZES: dict[str, Any] = {
    "vocab_size": V,
    "hidden_size": D,
    "intermediate_size": F,
    "num_hidden_layers": 2,
    "num_attention_heads": H,
    "num_key_value_heads": K,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}
Shapes = dict[str, Any]
Checkpoint = tuple[dict[str, Any], Shapes]


def nest(path: str, shapes: Mapping[str, Any]) -> Shapes:
    return {f"{path}.{name}": shape for name, shape in shapes.items()}


def matrices(**shapes: list[int]) -> Shapes:
    """Names with `__` for points, and `.weight` at the end."""
    return {f"{name.replace('__', '.')}.weight": shape for name, shape in shapes.items()}


def norms(*names: str, n: int = D) -> Shapes:
    return {f"{name}.weight": [n] for name in names}


def outer(path: str = "model", embedding: str = "embed_tokens", head: str = "lm_head") -> Shapes:
    return {f"{path}.{embedding}.weight": [V, D], f"{path}.norm.weight": [D],
            f"{head}.weight": [V, D]}  # fmt: skip


def attention(path: str = "self_attn") -> Shapes:
    return nest(path, matrices(q_proj=[H * S, D], k_proj=[K * S, D], v_proj=[K * S, D],
                                o_proj=[D, H * S]))  # fmt: skip


def mlp(path: str = "mlp", n: int = F) -> Shapes:
    return nest(path, matrices(gate_proj=[n, D], up_proj=[n, D], down_proj=[D, n]))


def experts(path: str = "mlp.experts", parts: str = "gate_proj up_proj down_proj") -> Shapes:
    gate, up, down = parts.split()
    one = {f"{gate}.weight": [FE, D], f"{up}.weight": [FE, D], f"{down}.weight": [D, FE]}
    return {k: s for i in range(E) for k, s in nest(f"{path}.{i}", one).items()}


def sparse(
    shared: str = "mlp.shared_experts", bias: str = "mlp.gate.e_score_correction_bias"
) -> Shapes:
    made = {"mlp.gate.weight": [E, D], **experts(), **(mlp(shared, FE) if shared else {})}
    return made | ({bias: [E]} if bias else {})


def latent(path: str = "self_attn", q_rank: int = 24, rank: int = 32) -> Shapes:
    """Keys of 16 values and 8 with RoPE, values of 12."""
    q = matrices(q_proj=[H * 24, D])
    if q_rank:
        q = matrices(q_a_proj=[q_rank, D], q_a_layernorm=[q_rank], q_b_proj=[H * 24, q_rank])
    return nest(path, q | matrices(
        kv_a_proj_with_mqa=[rank + 8, D], kv_a_layernorm=[rank], kv_b_proj=[H * 28, rank],
        o_proj=[D, H * 12]))  # fmt: skip


def layers(path: str, *each: Mapping[str, Any], start: int = 0) -> Shapes:
    return {k: s for i, one in enumerate(each) for k, s in nest(f"{path}.{start + i}", one).items()}


PRE = norms("input_layernorm", "post_attention_layernorm")
DRAFT = {**norms("enorm", "hnorm", "shared_head.norm"), "eh_proj.weight": [D, 2 * D],
         "embed_tokens.weight": [V, D], "shared_head.head.weight": [V, D]}  # fmt: skip
LATENT = {"q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
          "v_head_dim": 12, "num_key_value_heads": H}  # fmt: skip
ROUTED = {"n_routed_experts": E, "n_shared_experts": 1, "num_experts_per_tok": 2,
          "moe_intermediate_size": FE, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5,
          "norm_topk_prob": True, "scoring_func": "sigmoid"}  # fmt: skip
INDEX = {"index_n_heads": 2, "index_head_dim": 16, "index_topk": 64}
INDEXER = nest(
    "self_attn.indexer",
    {**matrices(wq_b=[32, 24], wk=[16, D], weights_proj=[2, D], k_norm=[16]), "k_norm.bias": [16]},
)
HEADS = norms("self_attn.q_norm", "self_attn.k_norm", n=S)
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256, "beta_fast": 32,
        "beta_slow": 1, "mscale": 0.7, "mscale_all_dim": 0.7}  # fmt: skip


def model(kind: str, config: dict[str, Any], shapes: Shapes) -> Checkpoint:
    """Return a checkpoint; None as a value removes a key."""
    made = {"architectures": [kind], "model_type": "as_its_authors_store_it", **SIZES, **config}
    return {k: v for k, v in made.items() if v is not None}, shapes


def build(*each: Mapping[str, Any], **outside: Any) -> Shapes:
    return {**outer(**outside), **layers("model.layers", *({**PRE, **one} for one in each))}
