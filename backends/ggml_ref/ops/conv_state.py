"""Reference of ggml_py/ops/conv_state.py."""

from __future__ import annotations

import itertools

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.table import table
from ggml_ref.values import elements, load


@table.step("SSM_CONV_SEQ")
def ssm_conv_seq(node: Tensor) -> None:
    s, x, w, sq = load(node.src[0])[0], *(load(t)[0, 0] for t in node.src[1:4])
    blocks = np.pad(s, [(0, 0), (0, 0), (1, 0)])  # [n_seqs, C, d_conv]
    outputs, kept = np.zeros(x.shape), []
    for t, (first, *others) in enumerate(sq):
        blocks[first] = np.column_stack([blocks[first][:, 1:], x[t]])
        for other in itertools.takewhile(lambda i: 0 <= i < len(blocks), others):
            blocks[other] = blocks[first]
        outputs[t] = (blocks[first] * w).sum(axis=1)
        kept.append(blocks[first][:, 1:].copy())
    elements(node).reshape(-1)[:] = np.concatenate([outputs.reshape(-1), blocks.reshape(-1)])
    if len(node.src) > 4:
        saved = np.array(kept).reshape(-1)
        elements(node.src[4]).reshape(-1)[: saved.size] = saved
