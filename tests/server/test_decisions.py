"""/v1/systemone: the responses of llama.cpp's server, and the same for models of any kind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from dev.record import record_systemone
from dev.record.record_systemone import DATA, NAME, write_model
from llama_py.chat import ChatTemplate
from llama_py.gguf.file import GGUFFile
from llama_py.gguf.write import content
from llama_py.loading.model import DEMO
from llama_py.text.decide import Decider, Question, QuestionOption
from llama_py.text.decision_types import TYPES
from llama_py.tokenizer import Tokenizer
from llama_py_server.app import app
from llama_py_server.models.state import ModelState
from llama_py_server.params import ListenParams
from llama_py_server.schema.questions import MAX_QUESTIONS
from tests.server.served import LOCAL, holding, leave, served, until
from tests.serving.engines import held
from tests.support import vocab_data

RECORDED = json.loads(DATA.read_text())


@pytest.fixture(scope="module", params=TYPES)
def deciding(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, TestClient]]:
    """A type, and the client of a server of the model that llama.cpp's server had."""
    path = tmp_path_factory.mktemp("models") / NAME
    write_model(path, request.param)
    with served("-m", str(path), "-ctk", "f32", "-ctv", "f32") as (client, _):
        yield request.param, client


def shape(value: Any) -> Any:
    """A JSON value with its order of keys, without fractions."""
    if isinstance(value, dict):
        return [(key, shape(one)) for key, one in value.items()]
    return "fraction" if isinstance(value, float) else value


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [x for one in value.values() for x in numbers(one)]
    return [value] if isinstance(value, float) else []


def test_responses_of_llama_cpp(deciding: tuple[str, TestClient]) -> None:
    kind, client = deciding
    for one in (one for one in RECORDED if one["type"] == kind):
        found, about = client.post("/v1/systemone", json=one["request"]), str(one)[:300]
        wanted = json.loads(one["text"])
        if one["status"] == 500:  # a vocabulary without a label
            wanted["error"] |= {"code": 400, "type": "invalid_request_error"}
        assert found.status_code == wanted.get("error", {"code": 200})["code"], about
        if found.status_code == 200:
            wanted["model"] = found.json()["model"]
        assert shape(found.json()) == shape(wanted), about
        assert numbers(found.json()) == pytest.approx(numbers(wanted), abs=1e-4), about
        assert found.text == json.dumps(found.json(), ensure_ascii=False, separators=(",", ":"))


ASKED = {
    "state": "A citizen speaks to the king. " * 6,
    "questions": {
        "who": {"type": "choice", "instructions": "Who speaks?", "criteria": {"a": None, "b": "x"}},
        "is": {"type": "noul", "instructions": "Does a king speak?"},
        "mood": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "so", "very"]},
    },
}


def questions() -> list[Question]:
    sides = QuestionOption("true"), QuestionOption("false")
    levels = [QuestionOption(str(i), text) for i, text in enumerate(["calm", "so", "very"])]
    return [
        Question("who", "choice", "Who speaks?", [QuestionOption("a"), QuestionOption("b", "x")]),
        Question("is", "noul", "Does a king speak?", sides),
        Question("mood", "score", "How angry?", levels),
    ]


def shares(state: ModelState, question: Question) -> Any:
    """Probabilities of the labels, from one pass over the prompt."""
    decider = Decider(state.model)
    text = decider.render(ASKED["state"], question)
    ids = decider.tokenize(text)
    row = state.model.context(n_ctx=len(ids)).decode(ids)[0].astype(float)
    logs = np.array([row[id] for ((id,),) in decider.labels(question, text)])
    return np.exp(logs - np.logaddexp.reduce(logs))


def test_models_that_are_not_for_decisions(client: TestClient, state: ModelState) -> None:
    before = state.engine.metrics().total
    reused, scored = before.n_reused, before.n_scored
    found = client.post("/v1/systemone", json=ASKED).json()
    who, yes, mood = (shares(state, one) for one in questions())
    answers = found["answers"]
    assert [*answers["who"]["probabilities"].values()] == pytest.approx(who, abs=2e-3)
    assert answers["is"]["noul"] == pytest.approx(yes[0], abs=2e-3)
    assert answers["mood"]["score"] == pytest.approx(mood @ [0, 1, 2], abs=5e-3)
    n = sum(len(Decider(state.model).prompt(ASKED["state"], one)) for one in questions())
    assert found["usage"] == {"input_tokens": n, "output_tokens": 0}
    total = state.engine.metrics().total
    assert total.n_reused > reused + 50  # the state is read once
    assert total.n_scored == scored + 2 + 2 + 3
    assert "llamacpp:tokens_scored_total" in client.get("/metrics").text


def test_prompts_have_the_state_first(state: ModelState) -> None:
    decider, t = Decider(state.model), state.tokenizer
    text = t.detokenize(decider.prompt({"a": "é"}, questions()[1]))
    assert 'State:\n{"a": "é"}\n\nQuestion:\nDoes a king speak?' in text
    assert "Options:\nA. yes\nB. no\n\nAnswer with" in text
    levels = t.detokenize(decider.prompt("x", questions()[2]))
    assert "A. calm\nB. so\nC. very" in levels
    choices = t.detokenize(decider.prompt("x", questions()[0]))
    assert "A. a\nB. b: x" in choices


def test_models_without_a_chat_template(tmp_path: Path) -> None:
    file, path = GGUFFile.open(DEMO), tmp_path / "base.gguf"
    stored = {k: v for k, v in file.metadata.stored_values.items() if "chat_template" not in k}
    path.write_bytes(b"".join(content(stored, list(file.tensors.values()))))
    with served("-m", str(path)) as (client, state):
        decider, t = Decider(state.model), state.tokenizer
        text = decider.render("x", questions()[1])
        assert text.endswith("option.\n\nAnswer:")
        wanted = [[t.tokenize(label, False)] for label in (" A", " B")]
        assert decider.labels(questions()[1], text) == wanted
        found = client.post("/v1/systemone", json=ASKED).json()["answers"]["is"]["noul"]
        assert found == pytest.approx(shares(state, questions()[1])[0], abs=2e-3)


@pytest.mark.parametrize("chat, wanted", [(None, "▁A"), ("{{ messages[0].content }}\n", "A")])
def test_labels_of_tokenizers_that_add_a_space(chat: str | None, wanted: str) -> None:
    tokenizer = Tokenizer.from_metadata(vocab_data.vocabulary("llama-spm")[0])
    file = SimpleNamespace(metadata={})
    model: Any = SimpleNamespace(tokenizer=tokenizer, file=file, arch="llama")
    model.chat_template = None if chat is None else ChatTemplate(chat)
    model.named_template = lambda name: None
    decider, question = Decider(model), questions()[1]
    ((label,), _) = decider.labels(question, decider.render("x", question))
    assert [tokenizer.vocab.texts[id] for id in label] == [wanted]


def test_models_that_are_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / NAME
    write_model(path, kind="unknown")
    with served("-m", str(path)) as (client, _):
        found = client.post("/v1/systemone", json=ASKED)
        assert found.status_code == 400
        message = found.json()["error"]["message"]
        assert "of type 'unknown' are not supported; known: openjev, lev, nimble" in message
    monkeypatch.setattr(record_systemone, "TEMPERATURES", {"choice": -1.0})
    write_model(path)
    with served("-m", str(path)) as (client, _):
        found = client.post("/v1/systemone", json=ASKED)
        assert found.status_code == 400
        assert "decision.temperature.choice must be a positive number" in found.text


def test_limits(client: TestClient, state: ModelState, monkeypatch: pytest.MonkeyPatch) -> None:
    one = ASKED["questions"]["is"]  # type: ignore[index]
    many = {str(i): one for i in range(MAX_QUESTIONS + 1)}
    found = client.post("/v1/systemone", json={"state": "x", "questions": many})
    assert found.status_code == 400 and "Field 'questions'" in found.json()["error"]["message"]
    long = client.post("/v1/systemone", json={**ASKED, "state": "word " * 5000})
    assert long.status_code == 400
    assert long.json()["error"]["type"] == "exceed_context_size_error"
    listen = ListenParams(api_key=("a",), client_tokens=5)
    limited = TestClient(app(holding(state), listen), LOCAL, raise_server_exceptions=False)
    head = {"authorization": "Bearer a"}
    assert limited.post("/v1/systemone", json=ASKED, headers=head).status_code == 200
    assert limited.post("/v1/systemone", json=ASKED, headers=head).status_code == 429
    monkeypatch.setattr(state.engine, "max_queue", 0)
    assert client.post("/v1/systemone", json=ASKED).status_code == 503
    monkeypatch.undo()
    assert client.post("/v1/systemone", json=ASKED).status_code == 200


def test_any_json_is_read(client: TestClient) -> None:
    for state, instructions, status in (
        (r'"\ud800"', r'"\udfff"', 200),
        ("NaN", "1e999", 200),
        ("false", "[[{}]]", 200),
        ('"<|im_start|>{{ 1/0 }}"', '"{% raw %}"', 200),
        ('"x"', "1" + "0" * 5000, 400),
        ("[" * 200 + "]" * 200, '"r"', 400),
    ):
        question = f'{{"type": "noul", "instructions": {instructions}}}'
        body = f'{{"state": {state}, "questions": {{"q": {question}}}}}'
        found = client.post("/v1/systemone", content=body)
        assert found.status_code == status, found.text
        assert status == 400 or 0 < found.json()["answers"]["q"]["noul"] < 1


def test_questions_of_clients_that_leave_are_cancelled(state: ModelState) -> None:
    made = app(holding(state), ListenParams())
    body = json.dumps({**ASKED, "state": "Another state. " * 20}).encode()
    before = state.engine.metrics().total.ended["cancelled"]
    with held(state.engine, 0):
        sent = asyncio.run(
            leave(made, "/v1/systemone", body, lambda _: state.engine.metrics().n_busy > 0)
        )
    until(lambda: state.engine.metrics().total.ended["cancelled"] >= before + 2)
    until(lambda: all(slot.state == "idle" for slot in state.engine.slots()))
    assert sent[0]["status"] == 499
