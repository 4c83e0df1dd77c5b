"""Images in requests of all kinds, and what of them is refused."""

from __future__ import annotations

import base64
import http.server
import io
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from anyio.to_thread import current_default_thread_limiter
from starlette.testclient import TestClient

from llama_py import Model
from llama_py.vision import Image, ImageEncoder, messages, prompt
from llama_py_server.models.state import ModelState
from llama_py_server.schema.fetch import MOST, is_public
from llama_py_server.wire.work import Work
from tests.server.served import events, served, until
from tests.server.test_chat import post
from tests.server.test_several import client_of, made
from tests.support.eyes import files_of, picture
from tests.support.limits import SECONDS

pytest.importorskip("PIL.Image")

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
NAME = "pixtral"
N = 6


def png(seed: int = 0, size: tuple[int, int] = (50, 40)) -> bytes:
    from PIL import Image as Pillow

    found = io.BytesIO()
    Pillow.fromarray(picture(seed, size).pixels).save(found, "PNG")
    return found.getvalue()


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def url(seed: int = 0, size: tuple[int, int] = (50, 40)) -> str:
    return f"data:image/png;base64,{base64_of(png(seed, size))}"


def asked(where: str, text: str = "what is this?") -> list[dict[str, Any]]:
    image = {"type": "image_url", "image_url": {"url": where}}
    return [{"role": "user", "content": [image, {"type": "text", "text": text}]}]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return files_of(NAME, tmp_path_factory.mktemp("eyes"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    inside = tmp_path_factory.mktemp("media")
    (inside / "a.png").write_bytes(png(3))
    (inside.parent / "out.png").write_bytes(png(3))
    return inside


@pytest.fixture(scope="module")
def seeing(files: tuple[Path, Path], folder: Path) -> Iterator[tuple[TestClient, ModelState]]:
    flags = ("-m", str(files[0]), "--mmproj", str(files[1]), "--media-path", str(folder))
    with served(*flags, "--media-urls", "any") as found:
        yield found


@pytest.fixture(scope="module")
def alone(files: tuple[Path, Path]) -> Iterator[Callable[..., str]]:
    """What `Model.chat` says."""
    with Model(str(files[0])) as model:
        model.load_vision(files[1])

        def chat(*seeds: int, text: str = "what is this?") -> str:
            images = [png(seed) for seed in seeds]
            return model.chat(text, images=images, max_tokens=N, temp=0.0)

        yield chat


def said(answer: Any) -> str:
    return str(answer["choices"][0]["message"]["content"])


def test_all_say_what_the_model_says(
    seeing: tuple[TestClient, ModelState], alone: Callable[..., str]
) -> None:
    client, state = seeing
    expected = alone(1)
    assert expected != alone(2)
    chat = post(client, CHAT, messages=asked(url(1)), max_tokens=N)
    assert said(chat) == expected
    raw = base64_of(png(1)).rstrip("=")
    assert said(post(client, CHAT, messages=asked(raw), max_tokens=N)) == expected

    text = {"type": "text", "text": "what is this?"}
    source = {"type": "base64", "media_type": "image/png", "data": base64_of(png(1))}
    turn = {"role": "user", "content": [{"type": "image", "source": source}, text]}
    message = post(client, MESSAGES, messages=[turn], max_tokens=N)
    assert message["content"][0]["text"] == expected

    parts = [
        {"type": "input_image", "image_url": url(1)},
        {"type": "input_text", "text": "what is this?"},
    ]
    response = post(
        client, RESPONSES, input=[{"role": "user", "content": parts}], max_output_tokens=N
    )
    assert response["output"][0]["content"][0]["text"] == expected

    streamed = client.post(
        CHAT, json={"messages": asked(url(1)), "max_tokens": N, "stream": True}
    ).text
    deltas = [d["choices"][0]["delta"] for _, d in events(streamed) if d != "[DONE]"]
    assert "".join(d.get("content") or "" for d in deltas) == expected

    ollama = {"role": "user", "content": "what is this?", "images": [base64_of(png(1))]}
    options = {"stream": False, "options": {"num_predict": N}}
    found = post(client, "/api/chat", messages=[ollama], **options)
    assert found["message"]["content"] == expected
    given = {"prompt": "what is this?", "images": ollama["images"], **options}
    assert post(client, "/api/generate", **given)["response"] == expected
    wrong = {"messages": [{**ollama, "images": ["aGVsbG8="]}], **options}
    assert client.post("/api/chat", json=wrong).status_code == 400

    prompt = post(client, "/apply-template", messages=asked(url(1)))["prompt"]
    assert prompt.count("<__media__>") == 1
    bos = state.template.bos
    prompt = prompt.removeprefix(bos)
    given = {"prompt_string": prompt, "multimodal_data": [base64_of(png(1))]}
    for path in ("/completion", "/v1/completions"):
        found = post(client, path, prompt=given, max_tokens=N)
        text = found["content"] if path == "/completion" else found["choices"][0]["text"]
        assert text == expected
    assert post(client, "/completion", prompt=given, max_tokens=N)["prompt"].count("__media__") == 1

    counts = post(client, f"{CHAT}/input_tokens", messages=asked(url(1)))["input_tokens"]
    assert counts == chat["usage"]["prompt_tokens"] > 40
    assert post(client, "/v1/messages/count_tokens", messages=[turn])["input_tokens"] == counts


def test_pictures_hold_up_no_texts(
    seeing: tuple[TestClient, ModelState], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = seeing
    read, go_on, n = prompt.read_image, threading.Event(), 8
    decoding: list[str] = []

    def slow(image: Any) -> Image:
        decoding.append(threading.current_thread().name)
        assert go_on.wait(SECONDS)
        return read(image)

    monkeypatch.setattr(prompt, "read_image", slow)

    def ask(seed: int) -> Any:
        given = {"prompt_string": "<__media__>", "multimodal_data": [base64_of(png(seed))]}
        if seed % 2:
            return post(client, "/completion", prompt=given, max_tokens=1)
        return post(client, CHAT, messages=asked(url(seed)), max_tokens=1)

    with client, ThreadPoolExecutor(n) as threads:
        client.portal.call(few_threads, n)  # of Starlette, as many as pictures
        answers = [threads.submit(ask, seed) for seed in range(n)]
        try:
            until(lambda: len(decoding) >= 2)
            for _ in range(n):
                assert post(client, "/tokenize", content="a")["tokens"]
            assert len(decoding) == 2
        finally:
            go_on.set()
        assert all(one.result() for one in answers)
    assert len(set(decoding)) == 2 and len(decoding) == n


async def few_threads(n: int) -> None:
    current_default_thread_limiter().total_tokens = n


def test_clients_at_once(seeing: tuple[TestClient, ModelState], alone: Callable[..., str]) -> None:
    client, _ = seeing
    seeds = [1, 2, 1, 4]

    def ask(seed: int) -> str:
        return said(post(client, CHAT, messages=asked(url(seed)), max_tokens=N))

    with ThreadPoolExecutor(len(seeds)) as threads:
        found = list(threads.map(ask, seeds))
    assert found == [alone(seed) for seed in seeds]


def test_texts_do_not_wait_for_pictures(
    seeing: tuple[TestClient, ModelState], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are being decoded."""
    client, _ = seeing
    read, began, go_on = messages.read_image, threading.Semaphore(0), threading.Event()

    def slow(image: Any) -> Image:
        began.release()
        assert go_on.wait(SECONDS)
        return read(image)

    monkeypatch.setattr(messages, "read_image", slow)
    monkeypatch.setattr(prompt, "read_image", slow)

    def ask(seed: int) -> str:
        return said(post(client, CHAT, messages=asked(url(seed)), max_tokens=1))

    with ThreadPoolExecutor(44) as threads:
        found = [threads.submit(ask, seed) for seed in range(100, 144)]
        try:
            for _ in range(Work.DECODE.n_threads):
                assert began.acquire(timeout=SECONDS)
            assert post(client, "/tokenize", content="a")["tokens"]
            assert post(client, "/completion", prompt="a", n_predict=2)["tokens_predicted"] == 2
            assert not any(one.done() for one in found)
        finally:
            go_on.set()
        assert all(isinstance(one.result(SECONDS), str) for one in found)


def test_the_second_turn_neither_encodes_nor_reads_the_picture(
    seeing: tuple[TestClient, ModelState], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = seeing
    first = post(client, CHAT, messages=asked(url(8)), max_tokens=N)
    n_computed: list[int] = []
    computing = ImageEncoder.computing
    monkeypatch.setattr(
        ImageEncoder, "computing", lambda self, part: n_computed.append(1) or computing(self, part)
    )
    turns = [
        *asked(url(8)),
        {"role": "assistant", "content": said(first)},
        {"role": "user", "content": "and?"},
    ]
    second = post(client, CHAT, messages=turns, max_tokens=N)
    details = second["usage"]["prompt_tokens_details"]
    assert details["cached_tokens"] >= first["usage"]["prompt_tokens"] - 1 and not n_computed
    third = post(client, CHAT, messages=asked(url(9)), max_tokens=N)
    assert third["usage"]["prompt_tokens_details"]["cached_tokens"] < 20 and n_computed


def test_what_it_is_said_to_see(seeing: tuple[TestClient, ModelState]) -> None:
    client, _ = seeing
    props = client.get("/props").json()
    assert props["modalities"] == {"vision": True, "video": False, "audio": False}
    assert props["media_marker"] == "<__media__>"
    models = client.get("/v1/models").json()["models"]
    assert models[0]["capabilities"] == ["completion", "multimodal"]


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("data:image/png;base64,aGVsbG8=", "is not a readable image"),
        ("data:text/html;base64,aGVsbG8=", "Invalid uri format: data:text/html;base64"),
        ("data:image/png,hello", "uri must be base64 encoded"),
        ("data:image/png;base64", "Invalid uri-encoded base64 value"),
        ("data:image/png;base64,%%%", "Invalid base64 value"),
        ("!", "Invalid base64 value"),
        ("", "Invalid base64 value"),
        ("malformed", "Invalid base64 value"),
        ("file://../out.png", "file path is not allowed"),
        ("file:///etc/passwd", "does not exist"),
        ("file://none.png", "file does not exist"),
        ("http://127.0.0.1:1/a.png", "Failed to download image"),
        ("http://a b/", "Failed to download image"),
        ("http://u:p@127.0.0.1/", "Failed to download image"),
        ("https://[", "Failed to download image"),
    ],
)
def test_images_that_cannot_be_had(
    seeing: tuple[TestClient, ModelState], where: str, why: str
) -> None:
    response = seeing[0].post(CHAT, json={"messages": asked(where)})
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (400, "invalid_request_error")
    assert why in error["message"]


def test_other_requests_that_are_refused(seeing: tuple[TestClient, ModelState]) -> None:
    client, state = seeing

    def refused(path: str, code: int = 400, **body: Any) -> str:
        response = client.post(path, json=body)
        assert response.status_code == code, response.text
        return str(response.json()["error"]["message"])

    one = base64_of(png())
    for text, data in (("a", [one]), ("<__media__>a", []), ("<__media__>a", [one, one])):
        given = {"prompt_string": text, "multimodal_data": data}
        assert "image markers" in refused("/completion", prompt=given)
    for data in ([""], ["malformed"], [3], [None], "x", {}):
        given = {"prompt_string": "<__media__>a", "multimodal_data": data}
        refused("/completion", prompt=given)
    given = {"prompt_string": "<__media__>a", "multimodal_data": [base64_of(b"none")]}
    assert "is not a readable image" in refused("/completion", prompt=given)
    parts = [{"type": "input_audio", "input_audio": {"data": one}}]
    turn = {"role": "user", "content": parts}
    assert "audio input is not supported" in refused(CHAT, 500, messages=[turn])
    wide = url(1, (400, 300))
    turn = {"role": "user", "content": asked(wide)[0]["content"] * 60}
    response = client.post(CHAT, json={"messages": [turn]})
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (400, "exceed_context_size_error")
    assert error["n_prompt_tokens"] > error["n_ctx"] == state.engine.n_ctx


def test_files_of_the_folder(
    seeing: tuple[TestClient, ModelState], alone: Callable[..., str]
) -> None:
    answer = post(seeing[0], CHAT, messages=asked("file://a.png"), max_tokens=N)
    assert said(answer) == alone(3)


class Pictures(http.server.BaseHTTPRequestHandler):
    """A page of images, some of them bad."""

    def do_GET(self) -> None:
        where = {"/again": "/a.png", "/circle": "/circle", "/out": "file:///etc/passwd"}
        if self.path in where:
            self.send_response(302)
            self.send_header("Location", where[self.path])
            self.end_headers()
            return
        body = {"/a.png": png(3), "/large": bytes(MOST + 1)}.get(self.path, b"")
        self.send_response(200 if body else 404)
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True  # it was too much for the client

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pictures) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()
        thread.join()


def test_images_are_fetched(
    seeing: tuple[TestClient, ModelState], alone: Callable[..., str], page: str
) -> None:
    for name in ("a.png", "again"):
        answer = post(seeing[0], CHAT, messages=asked(f"{page}/{name}"), max_tokens=N)
        assert said(answer) == alone(3)
    for name, why in (
        ("none", "404"),
        ("circle", "too many redirects"),
        ("out", "expected http"),
        ("large", "more than 10 MiB"),
    ):
        response = seeing[0].post(CHAT, json={"messages": asked(f"{page}/{name}")})
        assert response.status_code == 400 and why in response.json()["error"]["message"]


def test_nothing_of_the_own_network_is_fetched(files: tuple[Path, Path], page: str) -> None:
    flags = ("-m", str(files[0]), "--mmproj", str(files[1]))
    for where, why in (("public", "has a private address"), ("none", "does not download")):
        with served(*flags, "--media-urls", where) as (client, _):
            for host in (page, page.replace("127.0.0.1", "localhost")):
                response = client.post(CHAT, json={"messages": asked(f"{host}/a.png")})
                assert response.status_code == 400
                assert why in response.json()["error"]["message"]
            response = client.post(CHAT, json={"messages": asked("file://a.png")})
            assert "unless --media-path" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "192.168.1.1",
        "172.16.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "::1",
        "fe80::1%eth0",
        "fd00::1",
        "::ffff:127.0.0.1",
        "::",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2001:0:4136:e378:8000:63bf:80ff:fffe",
        "::127.0.0.1",
        "::10.0.0.1",
        "::ffff:0:10.0.0.1",
        "64:ff9b::10.0.0.1",
        "64:ff9b:1::127.0.0.1",
        "64:ff9b:1:7f00:0:100::",
        "2002:a00:1::",
        "fec0::1",
    ],
)
def test_addresses_that_are_not_of_the_internet(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("form", ["{}", "::{}", "::ffff:{}", "64:ff9b::{}", "64:ff9b:1::{}"])
def test_addresses_count_as_what_they_stand_for(form: str) -> None:
    assert is_public(form.format("8.8.8.8")) and not is_public(form.format("192.168.1.1"))
    assert is_public("2606:4700::1111") and is_public("2002:808:808::")


def test_a_model_without_sight_says_so(client: TestClient) -> None:
    response = client.post(CHAT, json={"messages": asked(url())})
    assert response.status_code == 500
    assert response.json()["error"]["message"].startswith("image input is not supported")
    given = {"prompt_string": "<__media__>a", "multimodal_data": [base64_of(png())]}
    response = client.post("/completion", json={"prompt": given})
    assert response.status_code == 400
    assert "does not support multimodal requests" in response.json()["error"]["message"]
    assert client.get("/props").json()["modalities"]["vision"] is False
    assert client.get("/v1/models").json()["models"][0]["capabilities"] == ["completion"]


def test_embeddings_of_images_are_refused(files: tuple[Path, Path]) -> None:
    with served("-m", str(files[0]), "--mmproj", str(files[1]), "--embeddings") as (client, _):
        given = {"prompt_string": "<__media__>a", "multimodal_data": [base64_of(png())]}
        response = client.post("/embeddings", json={"content": [given]})
        assert response.status_code == 501
        assert "embeddings of images" in response.json()["error"]["message"]
        response = client.post("/v1/embeddings", json={"input": asked(url())})
        assert response.status_code == 400


def test_several_models_and_one_that_sees(
    files: tuple[Path, Path], tmp_path: Path, alone: Callable[..., str]
) -> None:
    model, eyes = files
    preset = tmp_path / "models.ini"
    preset.write_text(f"[seeing]\nmodel = {model}\nmmproj = {eyes}\n[blind]\nmodel = {model}\n")
    inside = tmp_path / "models" / "pair"
    inside.mkdir(parents=True)
    for path in files:
        (inside / path.name).symlink_to(path)
    other = inside.parent / "other"  # beside which there is an encoder that is not known
    other.mkdir()
    for name in ("model.gguf", "mmproj.gguf"):
        (other / name).symlink_to(model)
    flags = ("--models-preset", str(preset), "--models-dir", str(inside.parent))
    pool = made(*flags)
    try:
        client = client_of(pool)
        shown = {
            one["id"]: one["architecture"]["input_modalities"]
            for one in client.get("/v1/models").json()["data"]
        }
        sees = ["text", "image"]
        assert shown == {"seeing": sees, "blind": ["text"], "pair": sees, "other": ["text"]}
        for name in ("seeing", "pair"):
            answer = post(client, CHAT, model=name, messages=asked(url(1)), max_tokens=N)
            assert said(answer) == alone(1)
        response = client.post(CHAT, json={"model": "blind", "messages": asked(url(1))})
        assert response.status_code == 500
    finally:
        pool.close()


def test_images_are_read_once_for_each_request(
    seeing: tuple[TestClient, ModelState], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many answers there are."""
    reads: list[int] = []
    read = Image.read.__func__
    monkeypatch.setattr(
        Image, "read", classmethod(lambda cls, *a, **k: reads.append(1) or read(cls, *a, **k))
    )
    answer = post(seeing[0], CHAT, messages=asked(url(1)), max_tokens=2, n=2)
    assert len(answer["choices"]) == 2 and len(reads) == 1
