"""/completion, /v1/completions: whole and streamed, their fields, their errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from llama_py.serving import Request
from llama_py_server.models.state import ModelState
from llama_py_server.stream.replies import EACH_SLOT, running
from tests.server.served import events, served

PROMPT = "ROMEO:"


def post(client: TestClient, path: str, **body: Any) -> Any:
    response = client.post(path, json={"prompt": PROMPT, **body})
    assert response.status_code == 200, response.text
    return response.json()


def test_is_what_the_model_says(client: TestClient, state: ModelState) -> None:
    found = post(client, "/completion", n_predict=8, return_tokens=True)
    assert found["content"] == state.model.generate(PROMPT, max_tokens=8, temp=0)
    assert found["tokens"] and found["prompt"] == PROMPT
    assert (found["stop_type"], found["truncated"]) == ("limit", False)
    assert found["timings"]["predicted_n"] == found["tokens_predicted"] == 8
    assert found["generation_settings"]["temperature"] == 0.0


def test_a_stream_is_the_same(client: TestClient) -> None:
    whole = post(client, "/completion")
    *parts, last = events(client.post("/completion", json={"prompt": PROMPT, "stream": True}).text)
    assert "".join(data["content"] for _, data in parts) == whole["content"]
    assert not any(data["stop"] for _, data in parts) and all(d["tokens"] for _, d in parts)
    assert last[1]["stop"] and last[1]["content"] == ""


def test_ids_are_told_one_by_one_though_their_text_is_held_back(client: TestClient) -> None:
    whole = post(client, "/completion", return_tokens=True)
    body = {"prompt": PROMPT, "stream": True, "return_tokens": True}
    body["stop"] = [whole["content"] + "#"]  # which all of the text may begin
    *parts, _ = events(client.post("/completion", json=body).text)
    assert [data["tokens"] for _, data in parts] == [[id] for id in whole["tokens"]]


def test_openai(client: TestClient) -> None:
    whole = post(client, "/v1/completions", max_tokens=5)
    choice = whole["choices"][0]
    assert whole["object"] == "text_completion" and choice["finish_reason"] == "length"
    assert whole["usage"]["completion_tokens"] == 5
    body = {"prompt": PROMPT, "max_tokens": 5, "stream": True}
    stream = client.post("/v1/completions", json=body)
    *chunks, last, done = events(stream.text)
    assert done[1] == "[DONE]"
    assert "".join(c["choices"][0]["text"] for _, c in chunks) == choice["text"]
    assert last[1]["choices"][0]["finish_reason"] == "length" and last[1]["usage"]


def test_a_prompt_again_is_not_computed_again(client: TestClient) -> None:
    text = "A cold and narrow street it was, and nobody was there. " * 4
    first, second = (post(client, "/v1/completions", prompt=text, n_predict=1) for _ in range(2))
    n = first["usage"]["prompt_tokens"]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == n - 1
    assert second["timings"]["prompt_n"] == 1
    again = post(client, "/completion", prompt=text, n_predict=1, cache_prompt=False)
    assert again["timings"]["cache_n"] == 0


def test_several_prompts_and_answers(client: TestClient) -> None:
    ids = client.post("/tokenize", json={"content": PROMPT}).json()["tokens"]
    found = client.post("/completion", json={"prompt": [PROMPT, ids, {"prompt_string": PROMPT}]})
    texts = {one["content"] for one in found.json()}
    assert len(texts) == 1 and [one["index"] for one in found.json()] == [0, 1, 2]
    several = post(client, "/v1/completions", n=2, temperature=1.5, seed=1)["choices"]
    assert [c["index"] for c in several] == [0, 1] and several[0]["text"] != several[1]["text"]


def test_stop(client: TestClient) -> None:
    text = post(client, "/completion")["content"]
    word = text.split()[2]
    found = post(client, "/completion", stop=[word])
    assert found["content"] == text[: text.index(word)]
    assert (found["stop_type"], found["stopping_word"]) == ("word", word)


def test_an_empty_prompt_has_an_empty_answer(client: TestClient) -> None:
    for path in ("/completion", "/v1/completions"):
        assert post(client, path, prompt="")
    found = client.post("/completion", json={"prompt": ["", PROMPT], "n_predict": 3}).json()
    assert [one["tokens_predicted"] for one in found] == [0, 3] and not found[0]["content"]
    *parts, last = events(client.post("/completion", json={"prompt": "", "stream": True}).text)
    assert not parts and last[1]["stop"] and last[1]["tokens_evaluated"] == 0


@pytest.mark.parametrize(
    "given, used",
    [
        (["top_k", "wonder", "Top-P"], ["top_k", "top_p"]),
        (["wonder"], []),
        ("k?p", ["top_k", "top_p"]),
        ("?", []),
    ],
)
def test_unknown_samplers_are_skipped(client: TestClient, given: Any, used: list[str]) -> None:
    found = post(client, "/completion", n_predict=2, samplers=given)
    assert found["generation_settings"]["samplers"] == used


def test_seeds(client: TestClient) -> None:
    one, same, other = (
        post(client, "/completion", temperature=2.0, seed=seed)["content"] for seed in (1, 1, 2)
    )
    assert one == same != other


def test_probabilities(client: TestClient) -> None:
    found = post(client, "/completion", n_probs=3, n_predict=4)["completion_probabilities"]
    assert len(found) == 4
    for one in found:
        likely = [top["logprob"] for top in one["top_logprobs"]]
        assert one["logprob"] == likely[0] and likely == sorted(likely, reverse=True)
    after = post(
        client,
        "/completion",
        n_probs=3,
        temperature=1.0,
        top_k=2,
        post_sampling_probs=True,
        n_predict=2,
    )["completion_probabilities"]
    for one in after:
        assert math.isclose(sum(top["prob"] for top in one["top_probs"]), 1.0, abs_tol=1e-5)


def test_logprobs_as_openai_has_them(client: TestClient) -> None:
    body = {"max_tokens": 4, "logprobs": 2}
    choice = post(client, "/v1/completions", **body)["choices"][0]
    found, n = choice["logprobs"], len(PROMPT)
    assert "".join(found["tokens"]) == choice["text"] and found["text_offset"][0] == n
    for token, log, top, at, one in zip(
        *(found[k] for k in ("tokens", "token_logprobs", "top_logprobs", "text_offset", "content")),
        strict=True,
    ):
        assert choice["text"][at - n :].startswith(token)
        assert log == one["logprob"] == max(top.values()) and len(top) == 2
    chunks = events(
        client.post("/v1/completions", json={"prompt": PROMPT, **body, "stream": True}).text
    )[:-1]
    parts = [c["choices"][0]["logprobs"] for _, c in chunks if c["choices"][0]["logprobs"]]
    for name in found:
        assert [one for part in parts for one in part[name]] == found[name]
    none = post(client, "/v1/completions", max_tokens=2, logprobs=0)["choices"][0]["logprobs"]
    assert none["top_logprobs"] == [{}, {}] and all(v < 0 for v in none["token_logprobs"])


def test_prompts_are_echoed_with_their_logprobs(client: TestClient, state: ModelState) -> None:
    text = "ROMEO: é what light"
    ids = client.post("/tokenize", json={"content": text}).json()["tokens"]
    rows = state.model.context(n_ctx=64).decode(ids, logits="all").astype(float)
    rows -= np.log(np.exp(rows).sum(-1, keepdims=True))
    wanted = [rows[i, id] for i, id in enumerate(ids[1:])]
    body = {"echo": True, "logprobs": 1, "max_tokens": 2}
    for prompt in (text, ids, [ids, ids], [text]):
        for choice in post(client, "/v1/completions", **{**body, "prompt": prompt})["choices"]:
            found, n = choice["logprobs"], len(ids)
            assert choice["text"].startswith(text) and len(found["tokens"]) == n + 2
            assert found["token_logprobs"][0] is None is found["top_logprobs"][0]
            assert found["token_logprobs"][1:n] == pytest.approx(wanted, abs=1e-4)
            assert [max(top.values()) for top in found["top_logprobs"][1:n]] == pytest.approx(
                rows[:-1].max(-1), abs=1e-4
            )
            assert found["text_offset"][0] == 0 and found["text_offset"][n] == len(text)
            assert len(found["content"]) == 2
    chunks = events(
        client.post(
            "/v1/completions",
            json={**body, "prompt": text, "stream": True, "return_progress": True},
        ).text
    )[:-1]
    parts = [c["choices"][0] for _, c in chunks]
    assert "".join(part["text"] for part in parts) == choice["text"]
    for name, values in found.items():
        assert [v for p in parts if p["logprobs"] for v in p["logprobs"][name]] == values
    end = {str(state.tokenizer.eos): 100}
    ended = post(client, "/v1/completions", **{**body, "prompt": ids, "logit_bias": end})
    lists = ended["choices"][0]["logprobs"]  # clients count on a token more than the prompt has
    assert ended["choices"][0]["text"] == text and len(lists["token_logprobs"]) == len(ids) + 1
    assert lists["text_offset"][-1] == len(text) and lists["content"] == []
    only = post(client, "/v1/completions", echo=True, max_tokens=0)["choices"][0]
    assert only["text"] == PROMPT and only["logprobs"] is None
    refused = {"best_of": 3}, {"suffix": "x"}, {"suffix": "x", "echo": True}
    for wrong in refused:
        response = client.post("/v1/completions", json={"prompt": PROMPT, **wrong})
        assert response.status_code == 400 and next(iter(wrong)) in response.text


@pytest.mark.parametrize(
    "body, wanted",
    [
        ({"grammar": 'root ::= "yes" | "no"'}, {"yes", "no"}),
        ({"json_schema": {"const": 42}}, {"42"}),
        ({"regex": "(ab){2}"}, {"abab"}),
    ],
)
def test_constraints(client: TestClient, body: dict[str, Any], wanted: set[str]) -> None:
    found = post(client, "/completion", n_predict=32, **body)
    assert found["content"] in wanted and found["stop_type"] == "eos"


def test_a_bias_and_fields(client: TestClient) -> None:
    found = post(
        client,
        "/completion",
        logit_bias=[[" am", False]],
        response_fields=["content", "generation_settings/n_predict", "none"],
    )
    assert " am" not in found["content"]
    assert found.keys() == {"content", "generation_settings/n_predict"}


def test_progress(client: TestClient) -> None:
    body = {"prompt": "of the " * 40, "stream": True, "return_progress": True, "n_predict": 1}
    found = [
        d["prompt_progress"]
        for _, d in events(client.post("/completion", json=body).text)
        if "prompt_progress" in d
    ]
    assert found[0]["processed"] == found[0]["cache"]
    assert found[-1]["processed"] == found[-1]["total"]


@pytest.mark.parametrize(
    "body, kind, words",
    [
        ({}, "invalid_request_error", '"prompt" is required'),
        ({"prompt": []}, "invalid_request_error", "must not be empty"),
        ({"prompt": {"a": 1}}, "invalid_request_error", "elements must be"),
        ({"prompt": [1, 10**6]}, "invalid_request_error", "invalid tokens"),
        ({"prompt": "a", "temperature": "hot"}, "invalid_request_error", "Field 'temperature'"),
        ({"prompt": "a", "n_predict": -5}, "invalid_request_error", "Value must be between"),
        ({"prompt": "a", "n": 9}, "invalid_request_error", "Field 'n'"),
        ({"prompt": "a", "id_slot": 7}, "invalid_request_error", "id_slot"),
        ({"prompt": "a", "grammar": "root ::= ("}, "invalid_request_error", "grammar"),
        ({"prompt": "a", "lora": [{"id": 3}]}, "invalid_request_error", "unknown adapter 3"),
        ({"prompt": "a " * 2000}, "exceed_context_size_error", "exceeds the available context"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors(
    client: TestClient, body: dict[str, Any], kind: str, words: str, stream: bool
) -> None:
    response = client.post("/completion", json={**body, "stream": stream})
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["type"]) == (400, 400, kind)
    assert words in error["message"]


def test_no_json(client: TestClient) -> None:
    for body in (b"", b"{", b"[1]", b'{"a":' * 5000, b"\xff"):
        response = client.post("/v1/completions", content=body)
        assert response.status_code == 400 and "JSON" in response.json()["error"]["message"]


def test_many_prompts_neither_fill_the_queue_nor_are_refused() -> None:
    """More than may wait are asked for little by little, in the order of the request."""
    with served("--max-queue", "4") as (client, state):
        submit, most = state.engine.submit, list[int]()

        def counted(*args: Any) -> Any:
            now = state.engine.metrics()
            most.append(now.n_busy + now.n_waiting)
            return submit(*args)

        state.engine.submit = counted  # type: ignore[method-assign]
        body = {"prompt": [f"{i} of the" for i in range(40)], "n_predict": 2}
        found = client.post("/completion", json=body).json()
        assert [one["index"] for one in found] == [*range(40)]
        assert {one["tokens_predicted"] for one in found} == {2}
        assert len(most) == 40 and max(most) < EACH_SLOT * state.engine.n_slots

        body["prompt"] = [*body["prompt"], "a " * 2000]
        answer = client.post("/completion", json=body)
        assert answer.json()["error"]["type"] == "exceed_context_size_error"
        text = client.post("/completion", json={**body, "stream": True}).text
        assert events(text)[-1][1]["error"]["code"] == 400
        assert not running(state)  # all that was asked for is over


@pytest.mark.parametrize("at_once", [True, False])
def test_prompts_with_a_common_beginning_are_computed_once(
    client: TestClient, state: ModelState, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompts of a request, and of requests one after another."""
    start = f"{at_once} First Citizen: Before we proceed any further, hear me speak. " * 2
    prompts = [state.tokenizer.tokenize(start + end) for end in ("speak", "KING", "our people")]
    n = len(state.tokenizer.tokenize(start.strip()))
    assert n > 32 and len({tuple(ids[:n]) for ids in prompts}) == 1
    assert len({ids[n] for ids in prompts}) == 3
    submit, marks = state.engine.submit, list[Any]()

    def note(request: Request, *args: Any) -> Any:
        marks.append(request.marks)
        return submit(request, *args)

    monkeypatch.setattr(state.engine, "submit", note)
    before = state.engine.metrics().total.n_prompt
    how = {"temperature": 0, "max_tokens": 1, "logprobs": 1, "echo": True}
    sent = [prompts] if at_once else [[ids] for ids in prompts]
    replies = [client.post("/v1/completions", json={**how, "prompt": ids}).json() for ids in sent]
    choices = [choice for reply in replies for choice in reply["choices"]]
    n_computed = state.engine.metrics().total.n_prompt - before
    first, second, third = (len(ids) - n for ids in prompts)
    assert marks == [[n - 1] if at_once else None] * 3
    if at_once:
        assert n_computed == n + first + 1 + second + 1 + third
    else:  # this model has recurrent states, and the first prompt no mark
        assert n_computed <= n + first + n + second + 1 + third
    for ids, choice in zip(prompts, choices, strict=True):
        rows = state.model.context(n_ctx=256).decode(ids, logits="all").astype(float)
        rows -= np.log(np.exp(rows).sum(-1, keepdims=True))
        wanted = [rows[i, id] for i, id in enumerate(ids[1:])]
        assert choice["logprobs"]["token_logprobs"][1:-1] == pytest.approx(wanted, abs=5e-3)


def test_requests_of_lm_eval(client: TestClient, state: ModelState) -> None:
    """`local-completions` sends ids and sums the values between the prompt and the last token."""
    prompts = ["ROMEO: what light", "First Citizen: speak"]
    starts = [text.partition(":")[0] + ":" for text in prompts]
    body = {
        "model": "any", "prompt": [state.tokenizer.tokenize(text) for text in prompts],
        "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True,
    }  # fmt: skip
    choices = client.post("/v1/completions", json=body).json()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1]
    for choice, text, start in zip(choices, prompts, starts, strict=True):
        n = len(state.tokenizer.tokenize(start))
        [wanted] = state.model.score(start, [text.removeprefix(start)])
        values = choice["logprobs"]["token_logprobs"][n:-1]
        top = choice["logprobs"]["top_logprobs"][n:-1]
        assert sum(values) == pytest.approx(wanted.logprob, abs=5e-3)
        is_greedy = all(one == max(of.values()) for one, of in zip(values, top, strict=True))
        assert is_greedy == wanted.is_greedy
