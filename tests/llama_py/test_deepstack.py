"""Embeddings in place of tokens may have parts for later layers (granite.cpp)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from llama_py.batch import Batch
from llama_py.context import Context
from tests.support.live_models import EXACT, PROMPT, changed, model_of, nmse

SCALE = 1.5  # the model's, of a token's embedding


def test_parts_are_added_before_their_layers() -> None:
    """A batch of the tokens' rows is what the tokens are, but for what its parts add."""
    metadata, arrays = changed("granite-parts")
    metadata["granite.embedding_scale"] = SCALE
    table = arrays["token_embd.weight"][0, 0]
    rows = np.zeros((len(PROMPT), 3 * table.shape[1]), np.float32)
    rows[:, : table.shape[1]] = SCALE * table[PROMPT]
    parts = np.split(rows, 3, axis=1)

    def logits(batch: Batch) -> NDArray[np.float32]:
        return Context(model_of(metadata, arrays), **EXACT).decode(batch)

    expected = logits(Batch(PROMPT))
    assert nmse(expected, logits(Batch(embd=rows))) < 1e-12
    found = []
    for part in parts[1:]:
        part += 1
        found.append(logits(Batch(embd=rows)))
        part -= 1
    assert nmse(expected, found[0]) > 1e-4 and nmse(expected, found[1]) > 1e-4
    assert nmse(found[0], found[1]) > 1e-4
