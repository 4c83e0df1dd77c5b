"""RWKV_WKV6 whose states go to a cache."""

from __future__ import annotations

from ggml_py.pattern import Match, Pattern
from ggml_py.patterns.states import States, go_to_cache


def states(m: Match) -> States:
    k, n_seqs, n_earlier = m["k"], m["state"].ne[1], int(m["net"].param("n_earlier"))
    size, n_head, n_tokens, _ = k.ne
    n_written = max(1, min(n_tokens // n_seqs, 1 + n_earlier))
    return States(k.n_elements, size * size * n_head, n_seqs, n_written)


STATES_TO_CACHE = Pattern(
    """
    net! = RWKV_WKV6(k, v, r, tf, td, state)
    kept = CPY(~net, _)
    """,
    go_to_cache(states),
)
