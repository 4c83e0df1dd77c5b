"""Fused kernels of a token's experts: their choice, and their weighted sum."""

from __future__ import annotations

from ggml_opencl.table import Launch, defines, fuse, items
from ggml_py.fusion import f32_rows
from ggml_py.fusion.pattern import Match
from ggml_py.patterns.experts import EXPERT_SUM, router


@fuse(EXPERT_SUM, when=f32_rows("x", "weights"))
def weighted_sum(m: Match) -> list[Launch]:
    tensors = (m["x"], m["weights"], m["sum"])
    return [Launch("fused/experts", "weighted_sum", tensors, items(m["sum"].n_elements))]


MOST = 1024  # maximum number of experts, whose probabilities a work group stores


def why_not_routed(m: Match) -> str:
    """Return why the kernel cannot choose these experts: not f32, or too many, or ""."""
    logits, y = m["logits"], m.result
    if logits.ne[0] > MOST or logits.type.name != "f32" or not y.is_contiguous():
        return f"needs at most {MOST} experts, of f32; got {logits}"
    bias = m["bias"] if "bias" in m.found else None
    plain = bias is None or (bias.type.name == "f32" and bias.ne == (logits.ne[0], 1, 1, 1))
    return "" if plain else f"needs one bias for each expert; got {bias}"


def _router(gating: str, biased: bool, normed: bool) -> None:
    @fuse(router(gating, biased, normed), when=why_not_routed)
    def route(m: Match) -> list[Launch]:
        logits, order, n_used = m["logits"], m["sorted"], m["weights"].ne[1]
        n_expert, n_tokens, *_ = order.ne
        softmax = gating == "SOFT_MAX"
        scale = float(m["probs"].param("scale")) if softmax else 1.0
        low, high = (float(m["clamped"].param(p)) if normed else 0.0 for p in ("min", "max"))
        given = defines(
            ROUTER=1, N=n_expert, SOFTMAX=int(softmax), BIASED=int(biased), NORMED=int(normed)
        )
        tensors = (logits, order, m.result, *((m["bias"],) if biased else ()))
        scalars = (n_used, scale, low, high)
        return [Launch("fused/experts", "route", tensors, (n_tokens, 1, 1), scalars, given)]


for _gating in ("SOFT_MAX", "SIGMOID"):
    for _biased in (False, True):
        for _normed in (False, True):
            _router(_gating, _biased, _normed)
