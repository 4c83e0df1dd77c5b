"""Drafts change nothing but the number of steps, each request having its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import llama_py
from llama_py.params.speculative import SpeculativeParams
from llama_py.serving import Engine, Request
from tests.serving.engines import ask, ask_all, request

TEXTS = ["ROMEO:\nO, O, O, ", "JULIET:", "First Citizen:\nBefore we proceed any further", "K"]
N = 40


@pytest.fixture(scope="module")
def model() -> Iterator[llama_py.Model]:
    with llama_py.load(load_mtp=True) as model:
        yield model


@pytest.fixture(scope="module")
def expected(model: llama_py.Model) -> list[list[int | None]]:
    found = []
    for text in TEXTS:
        pieces = llama_py.stream(model.context(256), text, max_tokens=N)
        found.append([p.token for p in pieces if p.token is not None])
    return found


def asked(model: llama_py.Model, **options: object) -> list[Request]:
    how = {"ignore_eos": False, **options}
    return [request(model.tokenize(text), N, **how) for text in TEXTS]


@pytest.mark.parametrize(
    ("kind", "unified"),
    [("draft-mtp", True), ("ngram-simple,draft-mtp", False), ("ngram-map-k", True)],
)
def test_answers_with_drafts_are_those_without(
    model: llama_py.Model, expected: list[list[int | None]], kind: str, unified: bool
) -> None:
    drafts = SpeculativeParams(
        spec_type=kind,
        spec_ngram_simple_size_n=2,
        spec_ngram_simple_size_m=5,
        spec_ngram_map_k_size_n=2,
        spec_ngram_map_k_size_m=5,
    )
    how = {"n_ctx": 1024, "n_seq_max": 4, "kv_unified": unified, "n_piece": 8}
    with Engine(model, speculative=drafts, **how) as made:
        found = ask_all(made, asked(model))
        assert [one.tokens for one in found] == expected
        total = made.metrics().total
        assert 0 < total.n_accepted <= total.n_drafted
        ends = [one.end().timings for one in found]
        assert sum(t.n_accepted for t in ends) == total.n_accepted
        assert sum(t.n_drafted for t in ends) == total.n_drafted
        assert total.n_steps < 2 * N or "mtp" not in kind
        again = ask_all(made, asked(model, prompt_logprobs=0))
        assert [one.tokens for one in again] == expected
        again = ask_all(made, asked(model))  # from states that drafts have gone over
        assert [one.tokens for one in again] == expected
        none = ask_all(made, asked(model, n_drafts=0))
        assert [one.tokens for one in none] == expected
        assert [one.end().timings.n_drafted for one in none] == [0] * 4


def test_a_grammar_and_drafts_beside_others(
    model: llama_py.Model, expected: list[list[int | None]]
) -> None:
    drafts = SpeculativeParams(spec_type="draft-mtp")
    ids = model.tokenize(TEXTS[0])
    with Engine(model, speculative=drafts, n_ctx=1024, n_seq_max=4) as made:
        others = [ask(made, one) for one in asked(model)[1:]]
        one = ask(made, request(ids, 60, ignore_eos=False, regex="[A-C]{3} = [0-9]{2,4}\\."))
        cut = ask(made, request(ids, 3, ignore_eos=False, regex="[A-C]{30}"))
        assert one.end().finish_reason in ("stop", "eos")
        whole, _, number = one.text.partition(" = ")
        assert len(whole) == 3 and set(whole) <= set("ABC") and number[:-1].isdigit()
        assert cut.end().finish_reason == "length" and set(cut.text) <= set("ABC")
        for other, right in zip(others, expected[1:], strict=True):
            other.end()
            assert other.tokens == right


def test_hanging_up_in_the_midst_of_a_draft(
    model: llama_py.Model, expected: list[list[int | None]]
) -> None:
    drafts = SpeculativeParams(spec_type="draft-mtp")
    with Engine(model, speculative=drafts, n_ctx=1024, n_seq_max=4) as made:
        for n in range(2, 9):
            stream = made.stream(asked(model)[0])
            found = [e.token for _, e in zip(range(n), stream, strict=False)]
            stream.close()
            kept = [id for id in found if id is not None]
            assert kept == expected[0][: len(kept)]
        found_all = ask_all(made, asked(model))
        assert [one.tokens for one in found_all] == expected
