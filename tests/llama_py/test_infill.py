"""Prompts that ask for the middle of a text, as llama-server makes them."""

from __future__ import annotations

import pytest

from ggml_py.errors import TokenizerError
from llama_py.text.infill import infill_ids
from llama_py.tokenizer import Tokenizer, TokenType
from tests.support.text_vocab import bpe

THREE = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
ALL = (*THREE, "<|repo_name|>", "<|file_sep|>")


def tokenizer(*texts: str, **keys: object) -> Tokenizer:
    return bpe(special=dict.fromkeys(texts, TokenType.CONTROL), eos_token_id=0, **keys)


def shown(t: Tokenizer, ids: list[int]) -> str:
    return t.detokenize(ids, special=True)


def test_order_of_the_parts() -> None:
    t = tokenizer(*THREE, add_bos_token=True, bos_token_id=ord("B"))
    bos = t.token_bytes(ord("B")).decode()
    pre, suf, mid = THREE
    assert shown(t, infill_ids(t, "a", "b", prompt="c")) == f"{bos}{pre}ac{suf}b{mid}"
    assert shown(t, infill_ids(t, "a", "b", prompt="c", spm=True)) == f"{bos}{suf}b{pre}ac{mid}"
    assert shown(t, infill_ids(t, "", suf))[-len(suf + mid) :] == suf + mid
    assert len(infill_ids(t, "", suf)) == 4 + len(suf)  # texts are no special tokens


def test_what_does_not_fit_a_batch_is_left_out() -> None:
    t = tokenizer(*THREE)
    pre, suf, mid = THREE
    found = shown(t, infill_ids(t, "abcdefghijkl", "uvwxyz", n_batch=12, prompt=""))
    assert found == f"{pre}defghijkl{suf}u{mid}"


def test_other_texts() -> None:
    t, extra = tokenizer(*ALL), [{"text": "x", "filename": "f.py"}, {"text": "y"}]
    pre, suf, mid, repo, sep = ALL
    gap = f"{pre}a{suf}b{mid}"
    around = f"{repo}myproject\n{sep}f.py\nx{sep}tmp\ny{sep}filename\n"
    assert shown(t, infill_ids(t, "a", "b", extra=extra, n_ctx=9999)) == around + gap
    assert shown(t, infill_ids(t, "a", "b", extra=extra, n_ctx=2048)) == gap
    some = infill_ids(t, "a", "b", extra=extra, n_ctx=2048 + 14, n_predict=2)
    assert shown(t, some) == f"{sep}filename\n{gap}"
    plain = tokenizer(*THREE)
    found = shown(plain, infill_ids(plain, "a", "b", extra=extra[1:], n_ctx=9999))
    assert found == f"\n\n--- snippet ---\n\ny{gap}"


def test_a_model_that_cannot() -> None:
    with pytest.raises(TokenizerError, match="no suffix, middle token"):
        infill_ids(tokenizer(THREE[0]), "a", "b")
