"""Ollama's API for responses and embeddings, with the demo model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from ggml_py.errors import ModelError
from llama_py_server.app import app
from llama_py_server.models.state import ModelState
from llama_py_server.params import ListenParams
from llama_py_server.schema import from_ollama
from llama_py_server.stream.replies import running
from llama_py_server.wire.addresses import list_addresses
from llama_py_server.wire.errors import HTTPError
from llama_py_server.wire.exposure import is_public
from tests.server.served import ASK, LOCAL, TOOL, holding, leave, served, until
from tests.serving.engines import held

FEW = {"num_predict": 8, "temperature": 0}
DURATIONS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")


def ask(client: TestClient, path: str = "chat", **body: Any) -> Any:
    """Post a request that is not a stream, and return its record."""
    found = client.post(f"/api/{path}", json={"model": "any", "stream": False, **body})
    assert found.status_code == 200, found.text
    return found.json()


def lines(client: TestClient, path: str = "chat", **body: Any) -> list[Any]:
    found = client.post(f"/api/{path}", json={"model": "any", **body})
    assert found.status_code == 200
    assert found.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in found.text.splitlines()]


def refuse(client: TestClient, path: str = "chat", **body: Any) -> tuple[int, str]:
    found = client.post(f"/api/{path}", json={"model": "any", "messages": ASK, **body})
    assert set(found.json()) == {"error"} and isinstance(found.json()["error"], str)
    return found.status_code, found.json()["error"]


def openai(client: TestClient, messages: Any, **more: Any) -> str:
    body = {"messages": messages, "max_tokens": 8, "temperature": 0, **more}
    found = client.post("/v1/chat/completions", json=body).json()
    return str(found["choices"][0]["message"]["content"])


def test_a_chat_has_the_text_of_the_other_apis(client: TestClient) -> None:
    found = ask(client, messages=ASK, options=FEW)
    assert found["message"] == {"role": "assistant", "content": openai(client, ASK)}
    assert (found["model"], found["done"], found["done_reason"]) == ("any", True, "length")
    assert found["eval_count"] == 8 and found["prompt_eval_count"] > 0
    assert all(type(found[name]) is int and found[name] > 0 for name in DURATIONS)
    assert found["total_duration"] >= found["eval_duration"]
    assert found["created_at"].endswith("Z")


def test_a_stream_has_the_records_of_the_whole_response(client: TestClient) -> None:
    whole = ask(client, messages=ASK, options=FEW)
    *parts, last = lines(client, messages=ASK, options=FEW)
    assert "".join(one["message"]["content"] for one in parts) == whole["message"]["content"]
    assert not any(one["done"] for one in parts) and not set(parts[0]) & set(DURATIONS)
    assert last["message"]["content"] == "" and last.keys() == whole.keys()
    assert (last["done"], last["eval_count"]) == (True, 8)


def test_a_prompt(client: TestClient) -> None:
    whole = ask(client, "generate", prompt="To be", system="Be brief.", options=FEW)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "To be"}]
    assert whole["response"] == openai(client, messages)
    parts = lines(client, "generate", prompt="To be", system="Be brief.", options=FEW)
    assert "".join(one["response"] for one in parts) == whole["response"]
    assert parts[-1]["context"] == whole["context"]
    n_before = len(whole["context"])
    assert n_before == whole["prompt_eval_count"] + whole["eval_count"]
    again = ask(client, "generate", prompt="Or not", context=whole["context"], options=FEW)
    assert again["context"][:n_before] == whole["context"]
    assert again["prompt_eval_count"] > n_before


def test_raw_prompts(client: TestClient) -> None:
    found = ask(client, "generate", prompt="To be", raw=True, options=FEW)
    body = {"prompt": "To be", "n_predict": 8, "temperature": 0}
    assert found["response"] == client.post("/completion", json=body).json()["content"]
    assert "context" not in found
    for name, value in (("system", "x"), ("template", "x"), ("context", [1])):
        assert refuse(client, "generate", prompt="x", raw=True, **{name: value})[0] == 400


def test_options(client: TestClient) -> None:
    text = ask(client, "generate", prompt="To be", raw=True, options=FEW)["response"]
    stop = text[len(text) // 2 :][:3]
    found = ask(client, "generate", prompt="To be", raw=True, options={**FEW, "stop": [stop]})
    assert found["response"] == text[: text.index(stop)] and found["done_reason"] == "stop"
    sampled = {"num_predict": 8, "temperature": 3.0, "seed": 7}
    first, second = (ask(client, messages=ASK, options=sampled)["message"] for _ in range(2))
    assert first == second
    assert first != ask(client, messages=ASK, options={**sampled, "seed": 8})["message"]
    assert ask(client, messages=ASK, options={**FEW, "num_gpu": 9, "unknown": 1})["eval_count"] == 8
    for name, value in (("temperature", "hot"), ("num_predict", "many"), ("num_ctx", "long")):
        code, error = refuse(client, options={name: value})
        assert code == 400 and (name in error or name == "num_predict")


def test_options_have_ollamas_meanings() -> None:
    given = {"num_predict": -2, "repeat_last_n": -1, "seed": 2**40 + 5, "num_keep": 3, "tfs_z": 1}
    expected = {"n_predict": -1, "repeat_last_n": 512, "seed": 5, "n_keep": 3}
    assert from_ollama.options(given, 512) == expected


def test_formats(client: TestClient) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"enum": ["Ann", "Bob"]}},
        "required": ["name"],
        "additionalProperties": False,
    }
    found = ask(client, messages=ASK, format=schema, options={"num_predict": 60})
    assert json.loads(found["message"]["content"])["name"] in ("Ann", "Bob")
    assert ask(client, messages=ASK, format="", options=FEW)["message"]["content"]
    text = ask(client, messages=ASK, format="json", options=FEW)["message"]["content"]
    assert text.lstrip().startswith("{")
    assert refuse(client, format="xml")[0] == refuse(client, format=3)[0] == 400


@pytest.mark.parametrize("path, more", [("chat", {"messages": ASK}), ("generate", {"prompt": "a"})])
def test_logprobs(client: TestClient, path: str, more: Any) -> None:
    body = {**more, "logprobs": True, "top_logprobs": 2, "options": FEW}
    whole = ask(client, path, **body)["logprobs"]
    assert len(whole) == 8 and {len(one["top_logprobs"]) for one in whole} == {2}
    assert all(one["logprob"] <= 0 and one["bytes"] for one in whole)
    parts = lines(client, path, **body)
    assert [one for part in parts for one in part.get("logprobs", [])] == whole
    alone = ask(client, path, **more, logprobs=True, options=FEW)["logprobs"]
    assert alone[0]["top_logprobs"] == []
    assert refuse(client, path, **body | {"top_logprobs": 21})[0] == 400


def test_tool_calls_are_objects(calling: TestClient) -> None:
    body = {"messages": ASK, "tools": [TOOL], "tool_choice": "required"}
    body["options"] = {"num_predict": 120, "temperature": 0}
    [call] = ask(calling, **body)["message"]["tool_calls"]
    assert call["function"]["name"] == "weather" and call["function"]["index"] == 0
    assert call["function"]["arguments"]["place"] in ("here", "there")
    *parts, last = lines(calling, **body)
    [streamed] = [one for part in parts for one in part["message"].get("tool_calls", [])]
    assert streamed["function"] == call["function"] and last["done"]
    said = {"role": "assistant", "content": "", "tool_calls": [call]}
    result = {"role": "tool", "tool_name": "weather", "content": "sun"}
    again = {"messages": [*ASK, said, result], "tools": [TOOL], "options": FEW}
    assert ask(calling, **again)["prompt_eval_count"] > 0


def test_reasoning(calling: TestClient, client: TestClient) -> None:
    found = ask(calling, messages=ASK, think=True, options=FEW)["message"]
    assert found["role"] == "assistant"
    assert ask(calling, messages=ASK, think="low", options=FEW)["done"]
    assert refuse(client, think=True) == (400, '"any" does not support thinking')
    assert ask(client, messages=ASK, think=False, options=FEW)["done"]
    assert refuse(client, think="a lot")[0] == 400


def test_thinking_is_separate() -> None:
    """The template begins the reasoning, so the model's text is reasoning until the tag's end."""
    begins = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n"
        "{% if enable_thinking is defined and enable_thinking is false %}\n</think>\n\n{% endif %}"
        "{% endif %}"
    )
    with served("--chat-template", begins) as (client, _):
        found = ask(client, messages=ASK, think=True, options=FEW)["message"]
        assert found["thinking"] and found["content"] == ""
        parts = lines(client, messages=ASK, think=True, options=FEW)
        thoughts = "".join(one["message"].get("thinking", "") for one in parts)
        assert thoughts == found["thinking"]
        alone = ask(client, "generate", prompt=ASK[0]["content"], think=True, options=FEW)
        assert (alone["thinking"], alone["response"]) == (found["thinking"], "")
        without = ask(client, messages=ASK, think=False, options=FEW)["message"]
        assert without["content"] and "thinking" not in without


def test_images_need_a_vision_encoder(client: TestClient) -> None:
    messages = [{"role": "user", "content": "What?", "images": ["aGVsbG8="]}]
    assert refuse(client, messages=messages) == (400, '"any" does not support vision')
    messages[0]["images"] = "aGVsbG8="
    assert refuse(client, messages=messages)[0] == 400


def test_an_image_is_never_a_url() -> None:
    message = {"role": "user", "content": "x", "images": ["http://127.0.0.1/secret"]}
    [part, _] = from_ollama.chat_body({"messages": [message]}, 64)["messages"][0]["content"]
    assert part["image_url"]["url"].startswith("data:image/")


def test_the_oldest_messages_leave_a_context_that_is_too_short(client: TestClient) -> None:
    old = [{"role": "user", "content": "To be " * 40}, {"role": "assistant", "content": "Ay."}]
    system, last = {"role": "system", "content": "Be brief."}, ASK[0]
    options = {**FEW, "num_ctx": 120, "num_predict": 4}
    found = ask(client, messages=[system, *old, *old, last], options=options)
    kept = ask(client, messages=[system, last], options=options)
    assert found["prompt_eval_count"] == kept["prompt_eval_count"] < 120
    assert found["message"] == kept["message"]
    long = [{"role": "user", "content": "To be " * 200}]
    assert ask(client, messages=long, options=options)["prompt_eval_count"] == 119
    too_long = [{"role": "user", "content": "To be " * 4000}]
    assert refuse(client, messages=too_long, truncate=False)[0] == 400
    raw = {"prompt": "To be " * 4000, "raw": True, "options": FEW}
    assert ask(client, "generate", **raw)["prompt_eval_count"] > 500


def test_wrong_requests(client: TestClient) -> None:
    for body in (
        {"messages": "hi"},
        {"messages": [3]},
        {"messages": [{"content": "x"}]},
        {"messages": [{"role": "user", "content": 3}]},
        {"messages": ASK, "keep_alive": "soon"},
        {"messages": ASK, "logprobs": 1},
        {"messages": ASK, "tools": 3},
    ):
        assert refuse(client, **body)[0] == 400, body
    for body in ({"prompt": 3}, {"prompt": "a", "context": "b"}, {"prompt": "a", "template": "x"}):
        assert refuse(client, "generate", **body)[0] == 400, body
    assert refuse(client, "generate", prompt="a", context=[-5])[0] == 400
    assert refuse(client, "generate", prompt="a", suffix="b")[0] == 400
    wrong = client.post("/api/chat", content=b"{")
    assert wrong.status_code == 400 and isinstance(wrong.json()["error"], str)
    assert client.get("/api/chat").json()["error"].startswith("method GET")


def test_models_are_loaded_without_a_prompt(client: TestClient) -> None:
    found = ask(client, messages=[])
    assert found["message"] == {"role": "assistant", "content": ""}
    assert (found["done"], found["done_reason"]) == (True, "load")
    assert ask(client, "generate")["done_reason"] == "load"


@pytest.mark.parametrize(
    "given, seconds",
    [
        (None, None),
        (0, 0.0),
        (-1, -1.0),
        (2.5, 2.5),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("-1m", -1.0),
        ("250ms", 0.25),
        ("10", 10.0),
    ],
)
def test_times(given: Any, seconds: float | None) -> None:
    assert from_ollama.keep_alive({"keep_alive": given}) == seconds


@pytest.mark.parametrize("given", ["", "m", "5 m", "5x", "1e3", [], True, float("inf"), "9" * 500])
def test_wrong_times(given: Any) -> None:
    with pytest.raises(HTTPError, match="keep_alive"):
        from_ollama.keep_alive({"keep_alive": given})


def test_unknown_pages_do_not_unload_models(client: TestClient) -> None:
    body = {"model": "any", "keep_alive": 0, "prompt": ""}
    found = client.post("/api/generate", json=body, headers={"origin": "http://example.com"})
    assert found.status_code == 403 and "pages of" in found.json()["error"]


@pytest.fixture(scope="module")
def embedding() -> Iterator[TestClient]:
    with served("--embeddings") as (client, _):
        yield client


def test_embeddings(embedding: TestClient, client: TestClient) -> None:
    found = ask(embedding, "embed", input=["To be", "or not to be"])
    first, second = found["embeddings"]
    assert len(first) == len(second) and abs(sum(x * x for x in first) - 1) < 1e-4
    assert found["prompt_eval_count"] > 4 and found["total_duration"] > 0
    assert ask(embedding, "embed", input="To be")["embeddings"] == [first]
    assert ask(embedding, "embeddings", prompt="To be") == {"embedding": first}
    assert ask(embedding, "embed", input=[])["embeddings"] == []
    assert ask(embedding, "embeddings", prompt="") == {"embedding": []}
    [short] = ask(embedding, "embed", input="To be", dimensions=4)["embeddings"]
    assert len(short) == 4 and abs(sum(x * x for x in short) - 1) < 1e-4
    long = "To be " * 4000
    assert len(ask(embedding, "embed", input=long)["embeddings"]) == 1
    assert refuse(embedding, "embed", input=long, truncate=False)[0] == 400
    for wrong in (3, [3], {"a": 1}):
        assert refuse(embedding, "embed", input=wrong) == (400, "invalid input type")
    assert refuse(client, "embed", input="a")[0] == 501


def make_client(state: ModelState, **options: Any) -> TestClient:
    found = app(holding(state), ListenParams(**options))
    return TestClient(found, base_url=LOCAL, raise_server_exceptions=False)


def test_errors_have_ollamas_form(state: ModelState) -> None:
    client = make_client(state, api_key=("secret",), max_body=1)
    assert client.get("/api/version").json() == {"error": "Invalid API Key"}
    right = {"x-api-key": "secret"}
    large = client.post("/api/chat", content=b" " * (1 << 21), headers=right)
    assert large.status_code == 413 and isinstance(large.json()["error"], str)
    other = client.get("/api/tags", headers={**right, "host": "example.com"})
    assert other.status_code == 403 and isinstance(other.json()["error"], str)
    assert client.get("/api/nothing", headers=right).json() == {"error": "File Not Found"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_response(state: ModelState, stream: bool) -> None:
    body = {"messages": ASK, "stream": stream, "options": {"num_predict": 400}}

    def has_begun(sent: list[Any]) -> bool:
        return any(a.tokens for a in running(state).values()) and (bool(sent) or not stream)

    before = state.engine.metrics().total.ended["cancelled"]
    with held(state.engine, 9):
        asyncio.run(
            leave(make_client(state).app, "/api/chat", json.dumps(body).encode(), has_begun)
        )
    until(lambda: state.engine.metrics().total.ended["cancelled"] == before + 1)
    assert not running(state)


@pytest.mark.parametrize(
    "given, host, port",
    [
        ("", "127.0.0.1", 11434),
        ("0.0.0.0", "0.0.0.0", 11434),
        ("1.2.3.4:5", "1.2.3.4", 5),
        (":99", "127.0.0.1", 99),
        ("http://box", "box", 80),
        ("https://box/path", "box", 443),
        ("[::1]:7", "::1", 7),
        ("::1", "::1", 11434),
        ('"box:1"', "box", 1),
    ],
)
def test_addresses(monkeypatch: pytest.MonkeyPatch, given: str, host: str, port: int) -> None:
    monkeypatch.setenv("OLLAMA_HOST", given)
    listen = ListenParams(ollama=True)
    assert list_addresses(listen) == [("127.0.0.1", 8080), (host, port)]
    assert is_public(listen) is (host not in ("127.0.0.1", "::1"))
    assert list_addresses(ListenParams()) == [("127.0.0.1", 8080)]


def test_a_wrong_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "box:none")
    with pytest.raises(ModelError, match="OLLAMA_HOST=box:none"):
        list_addresses(ListenParams(ollama=True))


def test_the_root_greets_at_ollamas_address(state: ModelState) -> None:
    for options, text in (({"ollama": True}, "Ollama is running"), ({}, "<!doctype html>")):
        found = app(holding(state), ListenParams(**options))
        client = TestClient(found, base_url="http://127.0.0.1:11434")
        assert client.get("/").text.startswith(text)
        assert client.head("/").status_code == 200
    at_page = make_client(state, ollama=True).get("/").text
    assert at_page.startswith("<!doctype html>")
    assert make_client(state, ollama=True, ui=False).get("/").status_code == 404
