"""Reference of ggml_py/ops/indexer.py."""

from __future__ import annotations

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.ops._shapes import tile
from ggml_ref.table import table
from ggml_ref.values import Values


@table.op("LIGHTNING_INDEXER")
def lightning_indexer(node: Tensor, q: Values, k: Values, weights: Values, mask: Values) -> Values:
    n_seqs, n_tokens, n_head, d = q.shape
    products = q.reshape(n_seqs, n_tokens * n_head, d) @ k[:, :, 0].swapaxes(1, 2)
    scores = np.maximum(products, 0).reshape(n_seqs, n_tokens, n_head, -1)
    total = (weights[:, 0, :, None] @ scores)[:, :, 0]
    return total + tile(mask[:, 0], total.shape)
