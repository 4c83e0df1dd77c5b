"""/v1/systemone with images: they count wherever the request has them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from llama_py.batch.prompts import MARKER
from llama_py.chat import ChatTemplate
from llama_py.text.decide import Decider, Question
from llama_py_server.models.state import ModelState
from llama_py_server.schema.questions import parse_questions
from tests.server.served import served
from tests.server.test_images import png, url
from tests.support.eyes import files_of

pytest.importorskip("PIL.Image")

QUESTIONS = {"q": {"type": "noul", "instructions": "Is it a cat?"}}
Seeing = tuple[TestClient, ModelState]


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeing]:
    model, eyes = files_of("pixtral", tmp_path_factory.mktemp("eyes"))
    with served("-m", str(model), "--mmproj", str(eyes), "-ctk", "f32", "-ctv", "f32") as found:
        yield found


def ask(client: TestClient, state: Any = "s", **more: Any) -> Any:
    return client.post("/v1/systemone", json={"state": state, "questions": QUESTIONS, **more})


def share(client: TestClient, *args: Any, **more: Any) -> float:
    found = ask(client, *args, **more)
    assert found.status_code == 200, found.text
    answer: float = found.json()["answers"]["q"]["noul"]
    return answer


def test_images_change_the_answer(seeing: Seeing) -> None:
    client, state = seeing
    one, other, none = (share(client, images=x) for x in ([url(1)], [url(2)], []))
    assert len({one, other, none}) == 3
    decider, asked = state.decider, question(state)
    text = decider.render("s", asked, n_images=1)
    prompt: Any = state.see(text, [png(1)])
    row = prompt.read(state.model.context(type_k="f32", type_v="f32"), 0)[0].astype(float)
    logits = np.array([row[id] for ((id,),) in decider.labels(asked, text)])
    shares = np.exp(logits - np.logaddexp.reduce(logits))
    assert one == pytest.approx(shares[0], abs=1e-4)


def question(state: ModelState) -> Question:
    return parse_questions({"state": "s", "questions": QUESTIONS}, state.decider, True).questions[0]


def test_places_of_images(seeing: Seeing) -> None:
    client, _ = seeing
    part = {"type": "image_url", "image_url": {"url": url(1)}}
    text = {"type": "text", "text": "s"}
    messages = [{"role": "user", "content": [part, text]}]
    without = [{"role": "user", "content": [text]}]
    expected = share(client, without, images=[url(1)])
    assert share(client, messages) == pytest.approx(expected, abs=1e-5)
    assert share(client, without, files=[url(1)]) == pytest.approx(expected, abs=1e-5)
    assert share(client, {"messages": messages}) != pytest.approx(expected, abs=1e-6)
    several = ask(client, images=[url(1), url(2)]).json()["usage"]["input_tokens"]
    assert several > ask(client, images=[url(1)]).json()["usage"]["input_tokens"] + 4


def test_the_text_has_no_marker(seeing: Seeing) -> None:
    client, state = seeing
    found, expected = (share(client, text, images=[url(1)]) for text in (f"a{MARKER}b", "a b"))
    assert found == pytest.approx(expected, abs=1e-5)
    template = ChatTemplate("{{ images | join('+') }}{{ state }}")
    decider = Decider(state.model)
    decider.__dict__["_template"] = template
    found = decider.render({"a": [MARKER]}, question(state), n_images=2)
    assert found == f"{MARKER}+{MARKER}{{'a': [' ']}}"


@pytest.mark.parametrize(
    ("images", "why"),
    [
        (["http://localhost/a.png"], "images must be data URLs"),
        ([url(1)] * 9, "too many images, the maximum is 8"),
        (["data:text/plain;base64,AAAA"], "Invalid uri format"),
        ([f"data:image/png;base64,{base64.b64encode(b'no image').decode()}"], "image"),
    ],
)
def test_refused_images(seeing: Seeing, images: list[str], why: str) -> None:
    found = ask(seeing[0], images=images)
    assert found.status_code == 400 and why in found.json()["error"]["message"]


def test_audio_is_refused(seeing: Seeing) -> None:
    part = {"type": "input_audio", "input_audio": {"data": "AAAA"}}
    found = ask(seeing[0], [{"role": "user", "content": [part]}])
    assert found.status_code == 400 and "audio is not supported" in found.text
