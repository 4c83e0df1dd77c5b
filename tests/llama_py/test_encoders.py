"""Models that read a text as a whole: encoder-decoders, and those that keep nothing."""

from __future__ import annotations

import numpy as np
import pytest

import llama_py
from ggml_py.errors import ContextError
from tests.support.golden_models import case, path_of

T5 = "t5-dense"


def test_an_answer_is_what_the_decoder_says_of_the_encoded_text() -> None:
    ids = case(T5).tokens(20)
    with llama_py.load(str(path_of(T5))) as model:
        ctx = model.context(64)
        ctx.encode(ids)
        expected = [model.architecture.start_token]
        for _ in range(5):
            expected.append(int(np.argmax(ctx.decode(expected[-1:])[0])))
        for _ in range(2):  # the second time, nothing of the first is left
            pieces = list(model.stream(ids, max_tokens=5, temp=0.0))
            assert [piece.token for piece in pieces] == expected[1:]


def test_a_decoder_needs_a_text() -> None:
    with llama_py.load(str(path_of(T5))) as model, pytest.raises(ContextError, match="encode"):
        model.context(64).decode([0])


def test_an_encoder_embeds_texts_of_several_lengths() -> None:
    texts = [case(T5).tokens(n, n) for n in (5, 17, 9)]
    with llama_py.load(str(path_of(T5))) as model:
        rows = model.embed(texts)
        assert rows.shape == (3, model.hparams.n_embd)
        for text, row in zip(texts, rows, strict=True):
            assert np.allclose(model.embed([text])[0], row, atol=1e-5)


@pytest.mark.parametrize("name", ["bert-dense", "t5encoder-gated", "llama-dense"])
def test_encode_returns_a_row_for_each_token(name: str) -> None:
    tokens = [1, 2, 3, 4]
    with llama_py.load(str(path_of(name))) as model:
        ctx = model.context(64)
        rows = ctx.encode(tokens)
        assert rows.shape == (4, model.hparams.n_embd)
        if not model.has_encoder:
            embedding = model.context(64, embeddings=True, pooling="none")
            embedding.decode(tokens, "all")
            assert np.array_equal(rows, embedding.embd)
        assert ctx.cparams == model.context(64).cparams


@pytest.mark.parametrize("name", ["bert-dense", "llada-dense"])
def test_models_that_keep_nothing_do_not_continue_a_text(name: str) -> None:
    with llama_py.load(str(path_of(name))) as model:
        with pytest.raises(ContextError, match="no KV cache or state"):
            model.generate([1, 2, 3])
        assert np.isfinite(model.embed([[1, 2, 3]])).all()


def test_every_token_sees_every_other() -> None:
    ids = case("llada-dense").tokens(12)
    with llama_py.load(str(path_of("llada-dense"))) as model:
        ctx = model.context(64)
        whole = ctx.decode(ids, "all")
        other = ctx.decode([*ids[:-1], (ids[-1] + 1) % 64], "all")
        assert np.abs(whole[0] - other[0]).max() > 1e-3
        assert np.allclose(ctx.decode(ids), whole[-1:], atol=1e-5)  # nothing of before is kept
