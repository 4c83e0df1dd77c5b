"""The perplexity of the demo model over a text, beside llama.cpp's in the same process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import llama_py
from ggml_cpu.blocks.amx_pairs import MANY
from ggml_cpu.target import AMX
from llama_py_tools.graph.peer import Peer
from llama_py_tools.measure.perplexity import Estimate, score
from tests.support.commands import DEMO

pytest.importorskip("llama_cpp", reason="needs llama-cpp-python: pip install '.[parity]'")
pytestmark = pytest.mark.parity

README = DEMO.parents[2] / "README.md"
# Of more columns, AMX rounds to bf16 what llama.cpp rounds to bytes: 2e-3 of this perplexity.
MOST = MANY - 1 if AMX else 512


def their_losses(peer: Peer, window: list[int]) -> Any:
    """-log p of the second half of a window, as llama-perplexity takes them from llama.cpp."""
    api, n, first = peer.api, len(window), len(window) // 2
    batch = api.llama_batch_init(n, 0, 1)
    batch.n_tokens = n
    for i, token in enumerate(window):
        batch.token[i], batch.pos[i], batch.logits[i] = token, i, i >= first
        batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
    api.llama_memory_clear(api.llama_get_memory(peer.ctx), True)
    assert api.llama_decode(peer.ctx, batch) == 0
    api.llama_batch_free(batch)
    shape = (n - first, peer.n_vocab)
    logits = np.ctypeslib.as_array(api.llama_get_logits(peer.ctx), shape).astype(np.float64)[:-1]
    total = np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1)) + logits.max(1)
    return total - logits[np.arange(len(logits)), window[first + 1 :]]


@pytest.mark.parametrize("n_ctx", [512, 256])
def test_perplexity_of_the_demo_model(n_ctx: int) -> None:
    model = llama_py.load(str(DEMO))
    ids = model.tokenizer.tokenize(README.read_text(), parse_special=False)
    expected = Estimate()
    with Peer(str(DEMO), n_ctx=n_ctx, n_batch=n_ctx, n_ubatch=n_ctx, n_threads=1) as peer:
        for i in range(len(ids) // n_ctx):
            expected.add(their_losses(peer, ids[i * n_ctx : (i + 1) * n_ctx]))
    for form in ("fused", "chunked", "blocks"):
        found = Estimate()
        sizes = {"n_batch": n_ctx, "n_ubatch": min(n_ctx, MOST)}
        ctx = model.context(n_ctx, **sizes, forms={"delta_net": form})
        for losses in score(ctx, ids, n_ctx, n_ctx):
            found.add(losses)
        assert found.count == expected.count
        assert found.perplexity == pytest.approx(expected.perplexity, rel=1e-3), form
        assert found.error == pytest.approx(expected.error, rel=1e-2), form
