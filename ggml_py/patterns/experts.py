"""Patterns of the router's choice of experts, and of their weighted sum: MUL by the weights, then
one ADD per expert."""

from __future__ import annotations

from ggml_py.fusion.pattern import Match, Pattern
from ggml_py.tensor import Tensor

DESCENDING = 1  # ggml.h:GGML_SORT_ORDER_DESC


def one_add_an_expert(m: Match) -> str:
    """Check that x [n, n_used, T] is multiplied by weights [1, n_used, T] and summed expert by
    expert."""
    product, weights = m["product"], m["weights"]
    n, n_used, n_tokens, n_batches = product.ne
    if weights.ne != (1, *product.ne[1:]) or n_batches != 1:
        return f"needs a weight for each expert of each token; got {weights}"
    sums = m.all_nodes("sum")
    if len(sums) != n_used - 1:
        return f"needs all of {n_used} experts added; got {len(sums) + 1}"
    experts = [sums[0].src[0], *(t.src[1] for t in sums)]
    for e, t in enumerate(experts):
        if t is None or not _is_expert(t, product, e):
            return f"needs expert {e} as addend {e}; got {t}"
    return "" if sums[0].ne == (n, n_tokens, 1, 1) else f"needs sums of a token; got {sums[0]}"


def _is_expert(t: Tensor, product: Tensor, e: int) -> bool:
    """Return True if t views the e-th expert's column of every token."""
    n, _, n_tokens, _ = product.ne
    place = (t.view_offs, t.nb[0], t.nb[1])
    return t.ne == (n, n_tokens, 1, 1) and place == (
        e * product.nb[1],
        product.nb[0],
        product.nb[2],
    )


EXPERT_SUM = Pattern(
    """
    product = MUL(x, weights)
    sum = ADD(~product, ~product)
    sum* = ADD(sum, ~product)
    """,
    one_add_an_expert,
)


def best_are_chosen(m: Match) -> str:
    """Check that the first experts in descending order are chosen, with exactly their weights."""
    probs, order, weights = m["probs"], m["sorted"], m["weights"]
    n_expert, n_tokens, *batches = order.ne
    _, n_used, *_ = weights.ne
    looked, ids = weights.source(0), weights.source(1)
    if order.param("order") != DESCENDING or batches != [1, 1]:
        return f"needs the largest first; got {order}"
    if looked.ne != (1, n_expert, n_tokens, 1) or not looked.is_contiguous():
        return f"needs all probabilities; got {looked}"
    first = (ids.ne, ids.nb[:2], ids.view_offs) == ((n_used, n_tokens, 1, 1), order.nb[:2], 0)
    if not first or probs.ne != order.ne:
        return f"needs the first {n_used} sorted experts; got {ids}"
    columns = [s for name in ("sum", "y") if name in m.found for s in m[name].src[:1]]
    other = [s for s in columns if s is None or s.ne != ids.ne or not s.is_contiguous()]
    return f"needs weights in columns; got {other[0]}" if other else ""


def router(gating: str, biased: bool, normed: bool) -> Pattern:
    """Return the pattern of a router: probabilities of logits, choice after an optional bias,
    weights of the chosen experts, optionally divided by their sum."""
    sources = "logits, _" if gating == "SOFT_MAX" else "logits"
    bias = "by = ADD(probs, bias)" if biased else ""
    norm = "sum = SUM_ROWS(~weights)\nclamped = CLAMP(sum)\ny = DIV(~weights, clamped)"
    lines = (
        f"probs = {gating}({sources})",
        bias,
        f"sorted! = ARGSORT({'by' if biased else 'probs'})",
        "weights = GET_ROWS(~probs, ~sorted)",
        norm if normed else "",
    )
    return Pattern("\n".join(line for line in lines if line), best_are_chosen)
