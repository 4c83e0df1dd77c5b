"""Several models behind one address: which a request means, and which of them are in memory."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ggml_py.errors import AllocError, ModelError
from llama_py_server.app import app
from llama_py_server.command import build_model_pool, main, parser
from llama_py_server.models.model_pool import ModelPool
from llama_py_server.models.state import ModelRecord, ModelState
from llama_py_server.params import ListenParams
from llama_py_server.stream.replies import running
from tests.server.served import LOCAL, SMALL, WAIT, events, until
from tests.serving.engines import held
from tests.support.commands import DEMO


def made(*flags: str) -> ModelPool:
    args = parser().parse_args([*SMALL, *flags])
    args.given = [*SMALL, *flags]
    return build_model_pool(args)


def client_of(pool: ModelPool) -> TestClient:
    return TestClient(app(pool, ListenParams()), base_url=LOCAL, raise_server_exceptions=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of models a and b, which are files, and c, which is a folder."""
    found = tmp_path_factory.mktemp("models")
    (found / "c").mkdir()
    for name in ("a.gguf", "b.gguf", "c/model-00001-of-00001.gguf", "mmproj-x.gguf"):
        (found / name).symlink_to(DEMO)
    return found


@pytest.fixture(scope="module")
def pool(folder: Path) -> Iterator[ModelPool]:
    found = made("--models-dir", str(folder), "--models-max", "2", "--metrics")
    yield found
    found.close()


@pytest.fixture
def client(pool: ModelPool) -> TestClient:
    return client_of(pool)


def states(client: TestClient) -> dict[str, str]:
    return {m["id"]: m["status"]["value"] for m in client.get("/v1/models").json()["data"]}


def ask(client: TestClient, model: str, **more: Any) -> Any:
    body = {"model": model, "prompt": "To be", "max_tokens": 2, **more}
    return client.post("/v1/completions", json=body)


def test_the_named_one_answers_and_the_one_not_used_for_longest_leaves(folder: Path) -> None:
    pool = made("--models-dir", str(folder), "--models-max", "2")
    client = client_of(pool)
    try:
        assert states(client) == dict.fromkeys("abc", "unloaded")
        for name in "abac":
            found = ask(client, name)
            assert found.status_code == 200 and found.json()["model"] == name
        until(lambda: states(client) == {"a": "loaded", "b": "unloaded", "c": "loaded"})
        one = client.get("/v1/models/a").json()
        assert one["meta"]["n_vocab"] > 0 and one["path"].endswith("a.gguf")
        assert client.get("/v1/models/d").status_code == 404
    finally:
        pool.close()


def test_all_share_the_limit_of_the_prefix_cache(folder: Path) -> None:
    pool = made("--models-dir", str(folder), "--models-max", "2", "--cache-ram", "1")
    client = client_of(pool)
    budgets = []
    try:
        for name in "ab":
            ask(client, name)
            with pool.models.use(name) as served:
                budgets.append(served.state.engine._cache.budget)
        for i in range(40):
            ask(client, "ab"[i % 2], prompt=f"{i} kings and queens", id_slot=0)
        until(lambda: sum(budget.size for budget in budgets) <= 2**20)
        assert all(budget.n_evicted and budget.size for budget in budgets)
    finally:
        pool.close()


def test_each_has_its_own_metrics_slots_and_settings(client: TestClient) -> None:
    for name in "ab":
        ask(client, name, max_tokens=3)
    for name in "ab":
        where = {"model": name}
        text = client.get("/metrics", params=where).text
        n = re.search(r"^llamacpp:tokens_predicted_total (\d+)$", text, re.MULTILINE)
        assert n is not None and int(n[1]) >= 3
        assert len(client.get("/slots", params=where).json()) == 2
        assert client.get("/props", params=where).json()["model_alias"] == name
    props = client.get("/props").json()
    assert props["role"] == "router" and props["max_instances"] == 2
    message = client.get("/metrics").json()["error"]["message"]
    assert message.endswith(
        'is missing from the request; set "model" to a name of /v1/models, such as: a, b, c'
    )


@pytest.mark.parametrize("flags", [("--models-dir", "alone"), ("-m", "b.gguf")])
def test_a_request_can_omit_the_name_of_the_usual_model(
    folder: Path, tmp_path: Path, flags: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only model, or the only one of -m."""
    monkeypatch.chdir(folder)
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "b.gguf").symlink_to(DEMO)
    given = (
        [flags[0], str(tmp_path / "alone")]
        if flags[1] == "alone"
        else [*flags, "--models-dir", "."]
    )
    pool = made(*given)
    found = ask(client_of(pool), "", max_tokens=1)
    assert found.status_code == 200 and found.json()["model"] == "b"
    pool.close()


def test_one_that_broke_is_shown_and_loaded_anew(
    client: TestClient, pool: ModelPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(client, "a")
    with pool.models.use("a") as loaded:
        monkeypatch.setattr(loaded.state.engine._scheduler, "step", lambda: 1 / 0)
    assert ask(client, "a").status_code == 500
    until(lambda: states(client)["a"] == "unloaded")
    status = client.get("/v1/models/a").json()["status"]
    assert status["failed"] and "division by zero" in status["error"]
    assert ask(client, "a").status_code == 200
    assert "failed" not in client.get("/v1/models/a").json()["status"]


def test_what_is_no_name_is_told(client: TestClient) -> None:
    for body in ({"prompt": "a"}, {"prompt": "a", "model": "d"}, {"prompt": "a", "model": 3}):
        found = client.post("/completion", json=body)
        assert found.status_code == 400
        assert found.json()["error"]["type"] == "invalid_request_error"
    assert "'d' not found" in ask(client, "d").json()["error"]["message"]
    assert ask(client, "d", stream=True).status_code == 400


def test_loading_and_leaving_by_hand(client: TestClient) -> None:
    def say(what: str, name: str) -> int:
        return int(client.post(f"/models/{what}", json={"model": name}).status_code)

    if states(client)["a"] == "loaded":
        assert say("load", "a") == 400
    else:
        assert say("load", "a") == 200
    until(lambda: states(client)["a"] == "loaded")
    assert say("unload", "a") == 200
    until(lambda: states(client)["a"] == "unloaded")
    assert (say("unload", "a"), say("unload", "d"), say("load", "d")) == (400, 400, 404)
    found = client.post("/completion?autoload=false", json={"model": "a", "prompt": "x"})
    assert found.status_code == 400 and states(client)["a"] == "unloaded"


def test_others_go_on_while_one_is_being_loaded(
    client: TestClient, pool: ModelPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ask(client, "b").status_code == 200
    if states(client)["c"] != "unloaded":
        client.post("/models/unload", json={"model": "c"})
        until(lambda: states(client)["c"] == "unloaded")
    begun, go, real = threading.Event(), threading.Event(), pool.entries["c"].load

    def slowly(record: ModelRecord) -> ModelState:
        begun.set()
        assert go.wait(WAIT)
        return real(record)

    monkeypatch.setattr(pool.entries["c"], "load", slowly)
    codes: list[int] = []
    waiting = [
        threading.Thread(target=lambda: codes.append(ask(client, "c").status_code))
        for _ in range(3)
    ]
    for thread in waiting:
        thread.start()
    assert begun.wait(WAIT) and states(client)["c"] == "loading"
    assert ask(client, "b").status_code == 200 and not codes
    go.set()
    for thread in waiting:
        thread.join(WAIT)
    assert codes == [200, 200, 200]


def test_one_that_cannot_be_loaded_is_told(
    client: TestClient, pool: ModelPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.post("/models/unload", json={"model": "c"})
    until(lambda: states(client)["c"] == "unloaded")
    for error, code in ((ModelError("no such tensor"), 500), (AllocError("full"), 503)):

        def fails(record: ModelRecord, error: Exception = error) -> ModelState:
            raise error

        monkeypatch.setattr(pool.entries["c"], "load", fails)
        found = ask(client, "c", stream=True)
        assert found.status_code == code and str(error) in found.json()["error"]["message"]
        shown = client.get("/v1/models/c").json()["status"]
        assert shown["failed"] and shown["value"] == "unloaded"


def test_a_preset_says_what_each_is(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "models.ini"
    first = f"version = 1\n[*]\nc = 512\n[a]\nnp = 1\nno-slots = true\n[own]\nmodel = {DEMO}\n"
    file.write_text(first + "alias = mine,ours\nLLAMA_ARG_N_PREDICT = 3\n")
    flags = ("--models-dir", str(folder), "--models-preset", str(file), "--no-models-autoload")
    args = parser().parse_args(["--no-warmup", *flags])
    args.given = ["--no-warmup", *flags]
    pool = build_model_pool(args)
    client = client_of(pool)
    try:
        assert ask(client, "a").status_code == 400 and [*states(client)] == ["a", "b", "c", "own"]
        client.post("/models/load", json={"model": "a"})
        until(lambda: states(client)["a"] == "loaded")
        props = client.get("/props", params={"model": "a"}).json()
        assert props["total_slots"] == 1 and not props["endpoint_slots"]
        assert props["default_generation_settings"]["n_ctx"] == 512
        shown = {m["id"]: m for m in client.get("/models").json()["data"]}
        assert shown["own"]["aliases"] == ["mine", "ours"] and shown["own"]["source"] == "preset"
        said = client.post("/completion?autoload=1", json={"model": "ours", "prompt": "To be"})
        assert said.json()["tokens_predicted"] == 3 and said.json()["model"] == "own"
        file.write_text(f"[b]\nc = 256\n[new]\nmodel = {DEMO}\n")
        assert [*states(client)] == ["a", "b", "c", "own"]
        client.get("/models?reload=1")
        assert sorted(states(client)) == ["a", "b", "c", "new"]
        assert ask(client, "own").status_code == 400
    finally:
        pool.close()


@pytest.mark.parametrize(
    "text, says",
    [
        ("[a]\nmodel = x\nno-such = 1\n", r"\[a\]: no-such: unknown option"),
        ("[a]\nmodel = x\nc = -5\n", "models.ini: argument -c/--ctx-size: must be"),
        ("[a]\nc = 1\n", r"preset \[a\] has no model"),
        ("[a]\nmodel = x\nmetrics = maybe\n", "metrics = maybe: "),
        ("[a\n", "models.ini"),
    ],
)
def test_wrong_presets(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "models.ini"
    file.write_text(text)
    with pytest.raises(ModelError, match=says):
        made("--models-preset", str(file))


def test_several_files_on_the_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pool = made("-m", str(folder / "a.gguf"), "-m", str(folder / "b.gguf"))
    assert pool.several and [*pool.entries] == ["a", "b"]
    pool.close()
    assert main(["-m", str(folder / "a.gguf"), "-m", str(DEMO), "-m", str(folder / "no.gguf")]) == 1
    assert "no.gguf" in capsys.readouterr().err


def test_one_that_nobody_uses_sleeps_until_it_is_asked() -> None:
    pool = made("--sleep-idle-seconds", "0", "--metrics")
    pool.ready = True
    client = client_of(pool)
    try:
        said = ask(client, "any").json()
        counted = client.get("/metrics").text
        assert client.get("/metrics").text != counted  # rates are those since the last look
        awake = client.get("/metrics").text
        pool.tick()
        until(lambda: pool.models.info()[0].state == "unloaded")
        assert client.get("/props").json()["is_sleeping"] is True
        assert client.get("/metrics").text == awake
        assert client.get("/v1/models").json()["data"][0]["id"] == "demo"
        assert pool.models.info()[0].state == "unloaded"  # none of this wakes it
        again = ask(client, "any").json()
        assert again["choices"][0]["text"] == said["choices"][0]["text"]
        assert client.get("/props").json()["is_sleeping"] is False
        assert "llamacpp:tokens_predicted_total 4\n" in client.get("/metrics").text
    finally:
        pool.close()


def test_a_stream_keeps_its_model(client: TestClient, pool: ModelPool) -> None:
    ask(client, "b")
    texts: list[str] = []
    more = {"max_tokens": 200, "ignore_eos": True, "stream": True}
    thread = threading.Thread(target=lambda: texts.append(ask(client, "b", **more).text))
    lease = pool.models.peek("b")
    assert lease is not None
    state = lease.served.state
    lease.end()
    with held(state.engine, 9) as go_on:
        thread.start()
        until(lambda: any(answer.tokens for answer in running(state).values()))
        assert pool.models.unload_when_idle("b")
        go_on.set()
    thread.join(WAIT)
    assert events(texts[0])[-1][1] == "[DONE]" and len(events(texts[0])) > 100
    until(lambda: states(client)["b"] == "unloaded")
