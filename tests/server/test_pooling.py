"""vLLM's /pooling: texts and conversations, encodings, tasks, and the fields of errors."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from starlette.testclient import TestClient

from llama_py_server.models.state import ModelState
from tests.server.served import ASK, served
from tests.support.golden_models import path_of

Served = tuple[TestClient, ModelState]
TEXTS = ["one text", "another", "the third"]
BEGUN = [*ASK, {"role": "assistant", "content": "I am"}]
RANKS = ("-m", str(path_of("bert-rank")), "--rerank", "-c", "128", "-b", "128", "-ub", "128")


@pytest.fixture(scope="module")
def embedding() -> Iterator[Served]:
    with served("--embeddings", "-b", "64", "-ub", "64") as found:
        yield found


def post(client: TestClient, body: Any, path: str = "/pooling") -> Any:
    found = client.post(path, json=body)
    assert found.status_code == 200, found.text
    return found.json()


def data(client: TestClient, **body: Any) -> npt.NDArray[np.float32]:
    """The values of the only item."""
    (one,) = post(client, body)["data"]
    return np.array(one["data"], np.float32)


def rendered(client: TestClient, messages: Any, begins: bool = False) -> str:
    body = {"messages": messages, "add_generation_prompt": begins}
    return str(post(client, body, "/apply-template")["prompt"])


def test_texts(embedding: Served) -> None:
    client, state = embedding
    wanted = state.model.embed(TEXTS)
    found = post(client, {"input": TEXTS})
    assert np.allclose([one["data"] for one in found["data"]], wanted, atol=1e-5)
    n = sum(len(state.tokenizer.tokenize(text)) for text in TEXTS)
    assert found["usage"]["prompt_tokens"] == n and found["data"][1]["object"] == "pooling"
    tokens = data(client, input=TEXTS[0], task="token_embed")
    assert len(tokens) == len(state.tokenizer.tokenize(TEXTS[0]))


def test_messages_are_the_text_of_the_template(embedding: Served) -> None:
    client, state = embedding
    for begins in (False, True):
        text = rendered(client, ASK, begins)
        body = {"messages": ASK, "add_generation_prompt": begins}
        found = post(client, body)
        plain = data(client, input=text, add_special_tokens=False)
        assert found["usage"]["prompt_tokens"] == len(state.tokenizer.tokenize(text, False))
        assert np.allclose(found["data"][0]["data"], plain, atol=1e-6)
        special = data(client, **body, add_special_tokens=True)
        assert np.allclose(special, data(client, input=text), atol=1e-6)
    assert not np.allclose(plain, data(client, messages=ASK), atol=1e-3)
    tokens = data(client, messages=ASK, task="token_embed")
    assert len(tokens) == len(state.tokenizer.tokenize(rendered(client, ASK), False))


def test_special_tokens() -> None:
    """Texts have them by default, conversations do not."""
    flags = ("--embeddings", "--override-kv", "tokenizer.ggml.add_eos_token=bool:true")
    with served(*flags) as (client, state):
        text = rendered(client, ASK)
        plain, special = (len(state.tokenizer.tokenize(text, one)) for one in (False, True))
        assert plain < special
        for chat in ({"messages": ASK}, {"input": text, "add_special_tokens": False}):
            assert post(client, chat)["usage"]["prompt_tokens"] == plain
        for chat in ({"input": text}, {"messages": ASK, "add_special_tokens": True}):
            assert post(client, chat)["usage"]["prompt_tokens"] == special


def test_a_message_that_continues(embedding: Served) -> None:
    """By default the last message is complete, also of the assistant."""
    client, state = embedding
    text = state.template.render(BEGUN, add_generation_prompt=False)
    open_text = text[: text.rindex("I am") + len("I am")]
    assert text != open_text
    for continues, wanted in ((False, text), (True, open_text)):
        found = data(client, messages=BEGUN, continue_final_message=continues)
        plain = data(client, input=wanted, add_special_tokens=False)
        assert np.allclose(found, plain, atol=1e-6)


def test_truncated_messages(embedding: Served) -> None:
    client, state = embedding
    ids = state.tokenizer.tokenize(rendered(client, ASK), False)
    assert ids[:2] != ids[-2:]
    for side, kept in (("right", ids[:2]), ("left", ids[-2:])):
        body = {"messages": ASK, "truncate_prompt_tokens": 2, "truncation_side": side}
        assert post(client, body)["usage"]["prompt_tokens"] == 2
        assert np.allclose(data(client, **body), data(client, input=kept), atol=1e-6)
    long = [{"role": "user", "content": "word " * 80}]
    refused = client.post("/pooling", json={"messages": long})
    assert refused.status_code == 400
    assert refused.json()["error"]["type"] == "exceed_context_size_error"
    assert post(client, {"messages": long, "truncate_prompt_tokens": -1})


def decode(raw: bytes, dtype: str = "float32", order: str = "<") -> npt.NDArray[np.float32]:
    if dtype == "bfloat16":
        halves = np.frombuffer(raw, f"{order}u2").astype(np.uint32) << 16
        return halves.view(np.float32)
    return np.frombuffer(raw, f"{order}{'f4' if dtype == 'float32' else 'f2'}").astype(np.float32)


@pytest.mark.parametrize(
    ("dtype", "bound"), [("float32", 1e-6), ("float16", 1e-3), ("bfloat16", 1e-2)]
)
@pytest.mark.parametrize(("endianness", "order"), [("native", "="), ("little", "<"), ("big", ">")])
def test_encodings(
    embedding: Served, dtype: str, bound: float, endianness: str, order: str
) -> None:
    client, _ = embedding
    wanted = [data(client, input=text) for text in TEXTS]
    body = {"input": TEXTS, "embed_dtype": dtype, "endianness": endianness}
    coded = post(client, {**body, "encoding_format": "base64"})["data"]
    raw = [base64.b64decode(one["data"]) for one in coded]
    found = [decode(one, dtype, order) for one in raw]
    assert np.allclose(found, wanted, atol=bound)
    whole = client.post("/pooling", json={**body, "encoding_format": "bytes"})
    assert whole.headers["content-type"] == "application/octet-stream"
    assert whole.content == b"".join(raw)
    facts = json.loads(whole.headers["metadata"])
    assert facts["usage"]["prompt_tokens"] > 0 and facts["model"] == "demo"
    for i, one in enumerate(facts["data"]):
        assert whole.content[one["start"] : one["end"]] == raw[i]
        assert (one["index"], one["shape"]) == (i, [len(wanted[0])])
        assert (one["embed_dtype"], one["endianness"]) == (dtype, endianness)
    bare = client.post("/pooling", json={**body, "encoding_format": "bytes_only"})
    assert bare.content == whole.content and "metadata" not in bare.headers


def test_bytes_of_tokens(embedding: Served) -> None:
    client, _ = embedding
    body = {"messages": ASK, "task": "token_embed"}
    rows = data(client, **body)
    found = client.post("/pooling", json={**body, "encoding_format": "bytes"})
    (item,) = json.loads(found.headers["metadata"])["data"]
    assert item["shape"] == [*rows.shape]
    assert np.allclose(decode(found.content).reshape(rows.shape), rows, atol=1e-6)


def test_classes_of_texts_and_messages() -> None:
    with served(*RANKS, "--chat-template", "chatml") as (client, _):
        for body in ({"input": "tok_1"}, {"messages": ASK}, {"messages": ASK, "task": "classify"}):
            classes = data(client, **body)
            assert len(classes) == 3 and sum(classes) == pytest.approx(1, abs=1e-5)
        raw = data(client, messages=ASK, use_activation=False)
        assert np.allclose(np.exp(raw) / np.exp(raw).sum(), classes, atol=1e-4)
        refuse(client, {"input": "a", "task": "embed"}, "task", "must be in classify, score")


def test_a_model_without_a_template() -> None:
    with served(*RANKS) as (client, _):
        refuse(client, {"messages": ASK}, "messages", "the model has no chat template")


def refuse(client: TestClient, body: Any, field: str, why: str = "") -> None:
    found = client.post("/pooling", json=body)
    assert found.status_code == 400, found.text
    error = found.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith(f"Field '{field}': ") and why in error["message"]


IMAGE = {"type": "image_url", "image_url": {"url": "http://localhost/a.png"}}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "input"),
    ({"input": None, "messages": None}, "input"),
    ({"input": 5}, "input"),
    ({"input": []}, "input"),
    ({"input": ""}, "input"),
    ({"input": "a", "messages": ASK}, "messages"),
    ({"messages": 5}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": [5]}, "messages"),
    ({"messages": [{"content": "a"}]}, "messages"),
    ({"messages": [{"role": "user"}]}, "messages"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages"),
    ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages"),
    ({"messages": ASK, "continue_final_message": True}, "continue_final_message"),
    (
        {"messages": BEGUN, "continue_final_message": True, "add_generation_prompt": True},
        "continue_final_message",
    ),
    ({"messages": ASK, "add_generation_prompt": "yes"}, "add_generation_prompt"),
    ({"messages": ASK, "chat_template": "{{ messages }}"}, "chat_template"),
    ({"messages": ASK, "chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
    ({"input": "a", "task": "classify"}, "task"),
    ({"input": "a", "task": "token_classify"}, "task"),
    ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
    ({"input": ["a"] * 257, "encoding_format": "bytes"}, "encoding_format"),
    ({"input": "a", "embed_dtype": "fp8_e4m3"}, "embed_dtype"),
    ({"input": "a", "endianness": "middle"}, "endianness"),
    ({"input": "a", "dimensions": 0}, "dimensions"),
    ({"input": "a", "dimensions": 1 << 20}, "dimensions"),
    ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
    ({"input": "a", "truncation_side": "top"}, "truncation_side"),
    ({"input": "a", "padding": "max_length"}, "padding"),
    ({"input": "a", "normalize": False}, "normalize"),
    ({"data": {"a": 1}}, "data"),
]


@pytest.mark.parametrize(("body", "field"), WRONG, ids=lambda v: json.dumps(v)[:60])
def test_errors_name_their_field(embedding: Served, body: dict[str, Any], field: str) -> None:
    refuse(embedding[0], body, field)
