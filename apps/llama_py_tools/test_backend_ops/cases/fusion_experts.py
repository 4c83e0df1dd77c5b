"""Small graphs of a feed-forward layer and its experts that a backend may run as one kernel."""

from __future__ import annotations

import numpy as np

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F32, I32, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case, integers, uniform
from llama_py_tools.test_backend_ops.cases.reduce import distinct
from llama_py_tools.test_backend_ops.cases.rows import row_numbers

Shape = tuple[int, ...]
WEIGHTS = [BY_NAME[n] for n in ("f32", "f16", "q8_0", "q4_0", "q4_1", "q4_K", "mxfp4")]


@case("FFN_SWIGLU", fused=True, max_nmse=5e-4, type_a=[BY_NAME[n] for n in ("f16", "q8_0", "q4_K")],
      m=[32, 33], n=[1, 5], k=[256])
def ffn_swiglu(new: Leaves, type_a: GGMLType, m: int, n: int, k: int) -> Tensor:
    x = new((k, n))
    gate, up = (ops.mul_mat(new.weight((k, m), type_a), x) for _ in range(2))
    return ops.swiglu_split(gate, up)


GLU = {"swiglu": ops.swiglu_split, "geglu": ops.geglu_split}


REPACKED = [BY_NAME[n] for n in ("q8_0", "q4_0", "q5_1", "q4_K", "q6_K", "iq4_xs")]


@case("FFN_GLU", fused=True, max_nmse=5e-4, type_a=REPACKED, glu=[*GLU], m=[16, 100],
      n=[2, 9, 33, 70], k=[256, 1024], again=[False])
@case("FFN_GLU", fused=True, max_nmse=5e-4, type_a=REPACKED[:2], glu=[*GLU], m=[700], n=[3, 130],
      k=[2048], again=[False, True])
def ffn_glu(
    new: Leaves, type_a: GGMLType, glu: str, m: int, n: int, k: int, again: bool
) -> Tensor:
    """Build a gated feed-forward layer; again: the gated value is used twice."""
    x = new((k, n))
    up, gate = (ops.mul_mat(new.weight((k, m), type_a), x) for _ in range(2))
    y = GLU[glu](gate, up)
    return ops.add(y, up) if again else y


@case("FFN_GLU", fused=True, max_nmse=5e-4, type_a=REPACKED, n_mats=[5], n_used=[2], glu=[*GLU],
      m=[16, 100], n=[2, 9, 40, 130], k=[256], some=[False])
@case("FFN_GLU", fused=True, max_nmse=5e-4, type_a=REPACKED[:4:3], n_mats=[3], n_used=[4],
      glu=["swiglu"], m=[33], n=[5, 40], k=[512], some=[True])
def experts_glu(
    new: Leaves, type_a: GGMLType, n_mats: int, n_used: int, glu: str, m: int, n: int, k: int,
    some: bool,
) -> Tensor:
    """Build gated experts; some: the device has only matrices 2 and up of eight."""
    of, first = (8, 2) if some else (0, 0)
    ids = new((of or n_mats, n), I32, row_numbers(of or n_mats))
    ids, x = ops.view_2d(ids, n_used, n, ids.nb[1], 0), new((k, 1, n))
    up, gate = (
        ops.mul_mat_id(new.weight((k, m, n_mats), type_a), x, ids, first=first, of=of)
        for _ in range(2)
    )
    return GLU[glu](gate, up)


def _glu(name: str, gate: Tensor, up: Tensor) -> Tensor:
    return ops.swiglu_clamp(gate, up, 10.0) if name == "clamp" else GLU[name](gate, up)


@case("MUL_MAT_VEC_FUSION", fused=True, max_nmse=5e-3, type=WEIGHTS,
      glu=["swiglu", "geglu", "clamp", ""], m=[1, 2, 8], bias=[False, True],
      batch=[(1, 1), (4, 2)])
def mul_mat_vec_fusion(
    new: Leaves, type: GGMLType, glu: str, m: int, bias: bool, batch: tuple[int, int]
) -> Tensor:
    """Build up and gate for a few tokens, or up only, with bias and another sum."""
    n, k = 32, 256
    x = new((k, m, *batch))

    def lane() -> Tensor:
        y = ops.mul_mat(new((k, n, *batch), type), x)
        return ops.add(y, new((n, 1, *batch))) if bias else y

    up = lane()
    out = _glu(glu, lane(), up) if glu else up
    return ops.add(out, new((n, 1, *batch)))


@case("MUL_MAT_VEC_FUSION", fused=True, max_nmse=5e-3, type=WEIGHTS,
      glu=["swiglu", "geglu", "clamp", ""], m=[1, 4], bias=[False, True],
      one_row=[False, True])
def mul_mat_id_vec_fusion(
    new: Leaves, type: GGMLType, glu: str, m: int, bias: bool, one_row: bool
) -> Tensor:
    """Build up and gate of chosen, weighted experts. one_row: all read the token's one row."""
    n, k, n_mats, n_used = 32, 256, 16, 8
    ids = new((n_mats, m), I32, row_numbers(n_mats))
    ids = ops.view_2d(ids, n_used, m, ids.nb[1], 0)
    x = new((k, 1 if one_row else n_used, m))

    def lane() -> Tensor:
        y = ops.mul_mat_id(new((k, n, n_mats), type), x, ids)
        return ops.add_id(y, new((n, n_mats)), ids) if bias else y

    up = lane()
    out = _glu(glu, lane(), up) if glu else up
    return ops.mul(out, new((1, n_used, m)))


@case("MUL_MAT_ID_FUSION", fused=True, max_nmse=5e-4, type_a=WEIGHTS, n_mats=[16], n_used=[8],
      m=[33], n=[1, 4, 33], k=[256], outs=[1, 3])
def mul_mat_id_fusion(
    new: Leaves, type_a: GGMLType, n_mats: int, n_used: int, m: int, n: int, k: int, outs: int
) -> Tensor:
    """Build several matmuls of the same rows and experts, weighted and summed."""
    ids, x = new((n_used, n), I32, integers(0, n_mats)), new((k, n_used, n))
    products = [ops.mul_mat_id(new((k, m, n_mats), type_a), x, ids) for _ in range(outs)]
    total = products[0]
    for y in products[1:]:
        total = ops.add(total, y)
    return ops.mul(total, new((1, n_used, n)))


ROUTERS = ["softmax", "sigmoid", "softmax_weight", "sqrt_softplus"]


@case("TOPK_MOE", fused=True, n_expert=[8, 33], n_used=[1, 4], n_tokens=[1, 3, 17],
      with_norm=[False, True])
@case("TOPK_MOE", fused=True, n_expert=[31, 128], n_used=[8], n_tokens=[22],
      with_norm=[False, True], biased=[False, True], gating=ROUTERS, scale=[0.0, 2.0])
@case("TOPK_MOE", fused=True, n_expert=[129, 160], n_used=[128], n_tokens=[1, 4],
      with_norm=[True], biased=[True], gating=ROUTERS, scale=[2.0])
@case("TOPK_MOE", fused=True, n_expert=[256, 288], n_used=[6], n_tokens=[9], with_norm=[True],
      biased=[False, True], gating=ROUTERS)
def topk_moe(
    new: Leaves, n_expert: int, n_used: int, n_tokens: int, with_norm: bool, biased: bool = False,
    gating: str = "softmax", scale: float = 0.0,
) -> Tensor:
    """Build the router: probabilities of the experts, and weights of the chosen experts."""
    logits = new((n_expert, n_tokens), F32, uniform(-3, 3))
    if gating == "softmax":
        probs = ops.soft_max(logits)
    elif gating == "sigmoid":
        probs = ops.sigmoid(logits)
    else:
        probs = ops.sqrt(ops.softplus(logits)) if gating == "sqrt_softplus" else logits
    chosen_by = ops.add(probs, new((n_expert,))) if biased else probs
    chosen = ops.argsort_top_k(chosen_by, n_used)
    weights = ops.get_rows(ops.reshape(probs, 1, n_expert, n_tokens), chosen)
    if gating == "softmax_weight":
        weights = ops.soft_max(ops.reshape(weights, n_used, n_tokens))
    if with_norm:
        weights = ops.reshape(weights, n_used, n_tokens)
        sums = ops.clamp(ops.sum_rows(weights), 6.103515625e-5, float("inf"))
        weights = ops.div(weights, sums)
    return ops.scale(weights, scale) if scale else weights


@case("TOPK_QSA", fused=True, max_nmse=0, compare=lambda ids: np.sort(ids, axis=-1),
      n_blocks=[64, 512], n_kv=[2048], n_tokens=[1, 4], n_seqs=[1, 2],
      width=[200, 1500])
def topk_qsa(
    new: Leaves, n_blocks: int, n_kv: int, n_tokens: int, n_seqs: int, width: int
) -> Tensor:
    """Build the choice of cells with the largest scores of their blocks and mask."""
    score = new((n_blocks, n_tokens, n_seqs), F32, uniform(0, 0.5))
    block = new((n_kv, n_seqs), I32, integers(0, n_blocks))
    mask = new((n_kv, n_tokens, n_seqs), BY_NAME["f16"], distinct)
    by_block = ops.cont(ops.permute(score, 1, 0, 2, 3))
    by_cell = ops.cont(ops.permute(ops.get_rows(by_block, block), 1, 0, 2, 3))
    return ops.top_k(ops.add(by_cell, ops.cast(mask, F32)), width)


@case("MOE_REDUCE", fused=True, n_embd=[17, 64], n_used=[1, 2, 5, 8], n_tokens=[1, 3])
@case("MOE_REDUCE", fused=True, n_embd=[63, 2048], n_used=[8, 12, 15, 16], n_tokens=[17],
      scaled=[False, True], shifted=[False, True])
def moe_reduce(
    new: Leaves, n_embd: int, n_used: int, n_tokens: int, scaled: bool = False,
    shifted: bool = False,
) -> Tensor:
    """Build weighted outputs of the chosen experts, summed one view after another.

    scaled: by a factor of each expert before. shifted: they begin in the middle of a vector.
    """
    ne = (n_embd, n_used, n_tokens)
    if shifted:
        whole = new((n_embd * n_used * n_tokens + 1,))
        experts = ops.view_3d(whole, *ne, 4 * n_embd, 4 * n_embd * n_used, 4)
    else:
        experts = new(ne)
    if scaled:
        experts = ops.mul(experts, new((1, n_used, n_tokens)))
    experts = ops.mul(experts, new((1, n_used, n_tokens)))

    def one(i: int) -> Tensor:
        return ops.view_2d(experts, n_embd, n_tokens, experts.nb[2], i * experts.nb[1])

    total = one(0)
    for i in range(1, n_used):
        total = ops.add(total, one(i))
    return ops.cont(total) if n_used == 1 else total
