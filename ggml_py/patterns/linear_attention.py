"""Pattern of linear attention that stores its states in a cache."""

from __future__ import annotations

from ggml_py.fusion.pattern import Match, Pattern
from ggml_py.patterns.states import States, go_to_cache


def states(m: Match) -> States:
    k, n_seqs, n_earlier = m["k"], m["state"].ne[1], int(m["net"].param("n_earlier"))
    size, n_head, n_tokens, _ = k.ne
    n_written = max(1, min(n_tokens // n_seqs, 1 + n_earlier))
    return States(k.n_elements, size * size * n_head, n_seqs, n_written)


def _to_cache(net: str) -> Pattern:
    return Pattern(f"net! = {net}\nkept = CPY(~net, _)", go_to_cache(states))


WKV6_TO_CACHE = _to_cache("RWKV_WKV6(k, v, r, tf, td, state)")
WKV7_TO_CACHE = _to_cache("RWKV_WKV7(r, w, k, v, a, b, state)")
GATED_TO_CACHE = _to_cache("GATED_LINEAR_ATTN(k, v, q, g, state)")
