"""Pattern of a single FLASH_ATTN_EXT that may store its result over its queries."""

from __future__ import annotations

from ggml_py.fusion.pattern import Match, Pattern
from ggml_py.tensor import Tensor

ATTENTION = (
    Pattern("y = FLASH_ATTN_EXT(q, k, v, _)"),
    Pattern("y = FLASH_ATTN_EXT(q, k, v, _, _)"),
)


def over_queries(m: Match) -> Tensor | None:
    """Return the queries (an `over`) [n_embd, n_tokens, n_head] if the result may replace them.

    The result [n_embd, n_head, n_tokens] must store each head of a token in the bytes of its query.
    """
    q, y = m["q"], m["y"]
    turned = (q.ne[0], q.ne[2], q.ne[1], q.ne[3]), (q.nb[0], q.nb[2], q.nb[1], q.nb[3])
    return q if q.type is y.type and turned == (y.ne, y.nb) else None
