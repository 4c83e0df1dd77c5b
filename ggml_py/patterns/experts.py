"""The weighted sum of a token's experts: MUL by the weights, then one ADD an expert."""

from __future__ import annotations

from ggml_py.pattern import Match, Pattern
from ggml_py.tensor import Tensor


def one_add_an_expert(m: Match) -> str:
    """x [n, n_used, T] times weights [1, n_used, T], then expert after expert added."""
    product, weights = m["product"], m["weights"]
    n, n_used, n_tokens, n_batches = product.ne
    if weights.ne != (1, *product.ne[1:]) or n_batches != 1:
        return f"needs a weight for each expert of each token; got {weights}"
    sums = m.all("sum")
    if len(sums) != n_used - 1:
        return f"needs all of {n_used} experts added; got {len(sums) + 1}"
    experts = [sums[0].src[0], *(t.src[1] for t in sums)]
    for e, t in enumerate(experts):
        if t is None or not _is_expert(t, product, e):
            return f"needs expert {e} as addend {e}; got {t}"
    return "" if sums[0].ne == (n, n_tokens, 1, 1) else f"needs sums of a token; got {sums[0]}"


def _is_expert(t: Tensor, product: Tensor, e: int) -> bool:
    """Whether t is a look at the e-th expert's column of every token."""
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
