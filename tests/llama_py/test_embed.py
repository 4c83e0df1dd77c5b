"""Embeddings of texts: one row for each, whatever else is read with them."""

from __future__ import annotations

import numpy as np
import pytest

from ggml_py.errors import ContextError
from llama_py.embed import embed
from tests.live_models import live

# Three do not divide the tokens of a batch.
TEXTS = [[3, 1, 4, 1], [5, 9], [2, 6, 5]]


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_texts_together_are_texts_alone(pooling: str) -> None:
    model = live("llama-dense")
    together = embed(model, TEXTS, pooling)
    alone = [embed(model, [text], pooling)[0] for text in TEXTS]
    assert together.shape == (3, model.hparams.n_embd)
    np.testing.assert_allclose(together, alone, atol=1e-3)  # the cache is F16
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, rtol=1e-5)
    assert np.abs(together[0] - together[1]).max() > 0.01


def test_a_text_without_tokens_is_refused() -> None:
    with pytest.raises(ContextError, match="text 1 has no tokens"):
        embed(live("llama-dense"), [[1], []])
