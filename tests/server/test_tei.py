"""Routes of text-embeddings-inference, and of vLLM for texts that are not completed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from llama_py.text.rerank import pair
from llama_py_server.models.state import ModelState
from llama_py_server.routes import tei
from tests.server.served import ASK, served
from tests.support.golden_models import path_of

Served = tuple[TestClient, ModelState]
TEXTS = ["one text", "another", "the third"]


@pytest.fixture(scope="module")
def embedding() -> Iterator[Served]:
    with served("--embeddings", "-b", "64", "-ub", "64") as found:
        yield found


@pytest.fixture(scope="module")
def ranking() -> Iterator[Served]:
    """Of a model with three classes."""
    flags = ("-m", str(path_of("bert-rank")), "--rerank", "-c", "64", "-b", "64", "-ub", "64")
    with served(*flags) as found:
        yield found


def post(client: TestClient, path: str, body: Any, status: int = 200) -> Any:
    found = client.post(path, json=body)
    assert found.status_code == status, found.text
    return found.json()


def refused(client: TestClient, path: str, body: Any, status: int, kind: str) -> str:
    found = post(client, path, body, status)
    assert found.keys() == {"error", "error_type"} and found["error_type"] == kind
    return str(found["error"])


def test_embed(embedding: Served) -> None:
    client, state = embedding
    wanted = state.model.embed(TEXTS)
    for path in ("/embed", "/"):
        found = post(client, path, {"inputs": TEXTS})
        assert np.allclose(found, wanted, atol=1e-5)
        assert np.allclose(post(client, path, {"inputs": TEXTS[1]}), wanted[1:2], atol=1e-5)
    ids = state.tokenizer.tokenize(TEXTS[1])
    assert np.allclose(post(client, "/embed", {"inputs": ids}), wanted[1:2], atol=1e-5)
    raw = np.array(post(client, "/embed", {"inputs": TEXTS, "normalize": False}))
    assert not np.allclose(np.linalg.norm(raw, axis=1), 1, atol=1e-2)
    assert np.allclose(raw / np.linalg.norm(raw, axis=1, keepdims=True), wanted, atol=1e-5)
    short = np.array(post(client, "/embed", {"inputs": TEXTS, "dimensions": 8}))
    assert short.shape == (3, 8) and np.allclose(np.linalg.norm(short, axis=1), 1, atol=1e-5)
    assert np.allclose(short / short[:, :1], wanted[:, :8] / wanted[:, :1], rtol=1e-3)


def test_embed_all(embedding: Served) -> None:
    client, state = embedding
    rows = post(client, "/embed_all", {"inputs": TEXTS})
    assert [len(r) for r in rows] == [len(state.tokenizer.tokenize(t)) for t in TEXTS]
    means = np.stack([np.mean(r, axis=0) for r in rows])
    wanted = post(client, "/embed", {"inputs": TEXTS, "normalize": False})
    assert np.allclose(means, wanted, atol=1e-3)


def test_similarity(embedding: Served) -> None:
    client, state = embedding
    body = {"inputs": {"source_sentence": TEXTS[0], "sentences": TEXTS}, "parameters": {}}
    units = state.model.embed(TEXTS)
    for path in ("/similarity", "/"):
        assert np.allclose(post(client, path, body), units @ units[0], atol=1e-5)
    assert "source_sentence" in refused(client, "/", {"inputs": {}}, 422, "Validation")


@pytest.mark.parametrize(
    "more, name",
    [
        ({"prompt_name": "query"}, "prompt_name"),
        ({"normalize": 1}, "normalize"),
        ({"truncate": "x"}, "truncate"),
        ({"truncation_direction": "up"}, "truncation_direction"),
        ({"dimensions": 10**6}, "dimensions"),
        ({"inputs": []}, "inputs"),
        ({"inputs": None}, "prompt"),
        ({"inputs": "x " * 70}, "65"),
    ],
)
def test_wrong_fields(embedding: Served, more: dict[str, Any], name: str) -> None:
    body = {"inputs": "a", **more}
    message = refused(embedding[0], "/embed", body, 422, "Validation")
    assert name in message or "tokens" in message


def test_long_texts_are_cut(embedding: Served) -> None:
    client, state = embedding
    long = " ".join(f"word {i}" for i in range(80))
    ids = state.tokenizer.tokenize(long)
    assert len(ids) > state.engine.n_text == 64
    first = post(client, "/embed", {"inputs": long, "truncate": True})
    last = post(
        client, "/embed", {"inputs": long, "truncate": True, "truncation_direction": "Left"}
    )
    begin = len(ids) - len(state.tokenizer.tokenize(long, False))
    assert np.allclose(first, post(client, "/embed", {"inputs": ids[:64]}), atol=1e-5)
    kept = [*ids[:begin], *ids[begin - 64 :]]
    assert np.allclose(last, post(client, "/embed", {"inputs": kept}), atol=1e-5)
    assert not np.allclose(first, last, atol=1e-3)


def test_special_tokens_at_both_ends_are_kept() -> None:
    def tokenize(text: str, special: bool = True) -> list[int]:
        ids = [*map(ord, text)]
        return [1, *ids, 2] if special else ids

    state: Any = SimpleNamespace(tokenizer=SimpleNamespace(tokenize=tokenize))
    ids = tokenize("abcdefgh")
    for direction, text in (("Right", "abc"), ("left", "fgh")):
        given = {"truncate": True, "truncation_direction": direction}
        assert tei.cut(state, ids, given, 5) == tokenize(text)
        assert tei.cut(state, ids, {**given, "truncate": False}, 5) == ids


def scores_of(state: ModelState, query: str, texts: list[str]) -> np.ndarray[Any, Any]:
    prompts = [pair(state.model, [query, text]) for text in texts]
    return np.stack(state.engine.embed(prompts, "rank", False).result())


def softmax(rows: Any) -> Any:
    found = np.exp(rows - rows.max(axis=-1, keepdims=True))
    return found / found.sum(axis=-1, keepdims=True)


RANKED = ["tok_3 tok_4", "tok_5", "tok_6 tok_7 tok_8"]


def test_rerank(ranking: Served) -> None:
    client, state = ranking
    raw = scores_of(state, "tok_1 tok_2", RANKED)
    body = {"query": "tok_1 tok_2", "texts": RANKED}
    for path in ("/rerank", "/"):
        found = post(client, path, {**body, "raw_scores": True, "return_text": True})
        assert [one["index"] for one in found] == np.argsort(-raw[:, 0]).tolist()
        for one in found:
            assert one["text"] == RANKED[one["index"]]
            assert one["score"] == pytest.approx(float(raw[one["index"], 0]), abs=1e-4)
    found = post(client, "/rerank", body)
    assert {one["index"]: one["score"] for one in found} == pytest.approx(
        dict(enumerate(softmax(raw)[:, 0].tolist())), abs=1e-4
    )
    assert all(one.keys() == {"index", "score"} for one in found)
    jina = post(client, "/rerank", {"query": "tok_1 tok_2", "documents": RANKED})
    assert {one["index"]: one["relevance_score"] for one in jina["results"]} == pytest.approx(
        dict(enumerate(raw[:, 0].tolist())), abs=1e-4
    )
    assert "texts" in refused(client, "/rerank", {"query": "a", "texts": []}, 422, "Validation")
    long = {"query": "tok_1", "texts": ["tok_2 " * 80]}
    assert "tokens" in refused(client, "/rerank", long, 422, "Validation")
    assert len(post(client, "/rerank", {**long, "truncate": True})) == 1


def test_predict(ranking: Served) -> None:
    client, state = ranking
    rows = softmax(scores_of(state, "tok_1 tok_2", RANKED[:1]))[0]
    for path in ("/predict", "/"):
        found = post(client, path, {"inputs": ["tok_1 tok_2", RANKED[0]]})
        assert [one["label"] for one in found] == [
            ["no", "yes", "perhaps"][i] for i in np.argsort(-rows)
        ]
        assert [one["score"] for one in found] == pytest.approx(sorted(rows)[::-1], abs=1e-4)
    several = post(client, "/predict", {"inputs": [["tok_1 tok_2", RANKED[0]], ["tok_1"]]})
    alone = post(client, "/predict", {"inputs": "tok_1"})
    for one, wanted in zip(several, (found, alone), strict=True):
        assert [each["label"] for each in one] == [each["label"] for each in wanted]
        scores = [each["score"] for each in wanted]
        assert [each["score"] for each in one] == pytest.approx(scores, abs=1e-5)
    for wrong in (None, [], ["a", "b", "c"], [["a", "b", "c"]], [[1]], 5):
        assert "inputs" in refused(client, "/predict", {"inputs": wrong}, 422, "Validation")
    info = client.get("/info").json()
    assert info["model_type"]["classifier"]["id2label"] == {"0": "no", "1": "yes", "2": "perhaps"}


def test_one_class_is_a_probability() -> None:
    architecture = SimpleNamespace(classifier=None)
    state: Any = SimpleNamespace(model=SimpleNamespace(architecture=architecture))
    assert tei.scale(state, np.float32([0.5]), False) == pytest.approx([1 / (1 + math.exp(-0.5))])
    assert tei.scale(state, np.float32([-1e9]), False) == [pytest.approx(0)]
    assert tei.scale(state, np.float32([0.5]), True) == [0.5]


def test_disabled(client: TestClient) -> None:
    for path in ("/embed", "/embed_all", "/similarity", "/predict", "/rerank"):
        body = {"inputs": "a", "query": "a", "texts": ["a"]}
        assert "--" in refused(client, path, body, 424, "Backend")
    for path in ("/score", "/pooling"):
        assert client.post(path, json={}).status_code == 501


def test_info(embedding: Served) -> None:
    found = embedding[0].get("/info").json()
    assert found["model_type"] == {"embedding": {"pooling": "mean"}}
    assert (found["max_input_length"], found["model_id"]) == (64, "demo")


def test_score_by_embeddings(embedding: Served) -> None:
    client, state = embedding
    units = state.model.embed(TEXTS)
    wanted = units @ units[0]
    for path in ("/score", "/v1/score"):
        found = post(client, path, {"model": "m", "text_1": TEXTS[0], "text_2": TEXTS})
        assert [one["score"] for one in found["data"]] == pytest.approx(wanted.tolist(), abs=1e-5)
    assert (found["model"], found["object"], found["data"][2]["index"]) == ("m", "list", 2)
    each = post(client, "/score", {"queries": TEXTS, "documents": TEXTS})
    assert [one["score"] for one in each["data"]] == pytest.approx([1, 1, 1], abs=1e-5)
    for wrong in ({}, {"text_1": TEXTS[:2], "text_2": TEXTS}, {"text_1": [], "text_2": "a"}):
        error = post(client, "/score", wrong, 400)["error"]
        assert error["type"] == "invalid_request_error"
    long = {"text_1": "a", "text_2": "word " * 80}
    assert post(client, "/score", long, 400)["error"]["type"] == "exceed_context_size_error"
    assert post(client, "/score", {**long, "truncate_prompt_tokens": -1})["usage"]


def test_score_by_a_classifier(ranking: Served) -> None:
    client, state = ranking
    raw = scores_of(state, "tok_1 tok_2", RANKED)
    body = {"text_1": "tok_1 tok_2", "text_2": RANKED}
    found = [one["score"] for one in post(client, "/score", body)["data"]]
    assert found == pytest.approx(softmax(raw)[:, 0].tolist(), abs=1e-4)
    plain = post(client, "/score", {**body, "use_activation": False})["data"]
    assert [one["score"] for one in plain] == pytest.approx(raw[:, 0].tolist(), abs=1e-4)


def test_tokens_in_the_form_of_vllm(client: TestClient, state: ModelState) -> None:
    ids = state.tokenizer.tokenize("To be")
    found = post(client, "/tokenize", {"model": "demo", "prompt": "To be"})
    wanted = {"count": len(ids), "max_model_len": 1024, "tokens": ids, "token_strs": None}
    assert found == {**wanted, "max_model_len": state.engine.n_ctx}
    body = {"prompt": "To be", "add_special_tokens": False, "return_token_strs": True}
    plain = post(client, "/tokenize", body)
    assert plain["tokens"] == state.tokenizer.tokenize("To be", False)
    assert "".join(plain["token_strs"]).strip() == "To be"
    chat = post(client, "/tokenize", {"messages": ASK})
    counted = post(client, "/v1/chat/completions/input_tokens", {"messages": ASK})
    assert chat["count"] == len(chat["tokens"]) == counted["input_tokens"]
    shorter = post(client, "/tokenize", {"messages": ASK, "add_generation_prompt": False})
    assert shorter["count"] <= chat["count"]
    assert post(client, "/tokenize", {"prompt": 5}, 400)["error"]["code"] == 400
