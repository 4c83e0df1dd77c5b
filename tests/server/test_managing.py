"""Models of the hub that clients have fetched and removed, with a hub on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from dev.compare.load.servers import running
from llama_py_server.app import app
from llama_py_server.command import build_model_pool, parser
from llama_py_server.params import ListenParams
from llama_py_server.routes import hub as hub_routes
from llama_py_server.wire.access import is_manager
from llama_py_server.wire.errors import HTTPError
from tests.cli.hub_server import hub
from tests.server.served import LOCAL, SMALL, WAIT, until
from tests.support.commands import DEMO, SCRIPTS

SMALL_Q8, SMALL_Q4, SLOW = "alice/Small-GGUF:Q8_0", "alice/Small-GGUF:Q4_K_M", "alice/Slow:F16"
MODEL = DEMO.read_bytes()
REPOS = {
    "alice/Small-GGUF": {
        "Small-Q8_0.gguf": MODEL,
        "Small-Q4_K_M.gguf": MODEL + b"\0",
        "README.md": b"small",
    },
    "alice/Slow": {"Slow-F16.gguf": MODEL},
    "alice/Plain": {"plain.gguf": MODEL},
}


class Router:
    """A server of the models in a hub's cache."""

    def __init__(self, url: str, cache: Path) -> None:
        self.client, self.cache = httpx.Client(base_url=url, timeout=WAIT), cache
        self.events: list[dict[str, Any]] = []

    def post(self, path: str, model: str, **headers: str) -> httpx.Response:
        return self.client.post(path, json={"model": model}, headers=headers)

    def delete(self, model: str) -> httpx.Response:
        return self.client.delete("/models", params={"model": model})

    def statuses(self) -> dict[str, str]:
        data = self.client.get("/v1/models").json()["data"]
        return {model["id"]: model["status"]["value"] for model in data}

    def saw(self, event: str, model: str) -> bool:
        return any((e["event"], e["model"]) == (event, model) for e in self.events)

    def listen(self, ready: threading.Event) -> None:
        with self.client.stream("GET", "/models/sse") as answer:
            for line in answer.iter_lines():
                ready.set()
                if line.startswith("data: "):
                    self.events.append(json.loads(line[6:]))


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    folder = tmp_path_factory.mktemp("hub")
    with hub(REPOS, slow="alice/Slow") as (url, _), environment(url, folder):
        flags = ["--models-cached", "--offline", *SMALL]
        with running([str(SCRIPTS / "llama-py-server"), *flags], folder / "log") as at:
            found, ready = Router(at, folder / "cache"), threading.Event()
            listening = threading.Thread(target=found.listen, args=(ready,))
            listening.start()
            assert ready.wait(WAIT)
            yield found
        listening.join(WAIT)  # the stream ends with the server, at once
        assert not listening.is_alive()


@contextmanager
def environment(url: str, folder: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("HF_ENDPOINT", url),
            ("HF_HUB_CACHE", str(folder / "cache")),
            ("LLAMA_PY_MODELS", ""),
            ("HF_HUB_DISABLE_XET", "1"),
            ("LLAMA_CACHE", str(folder)),
            ("NO_PROXY", "127.0.0.1"),
        ):
            patch.setenv(name, value)
        patch.delenv("HF_HUB_OFFLINE", raising=False)
        yield


def test_a_model_is_fetched_answers_and_is_removed(router: Router) -> None:
    assert router.statuses() == {}
    for name in (SMALL_Q8, SMALL_Q4):
        assert router.post("/models", name).json() == {"success": True}
        until(lambda name=name: router.saw("download_finished", name))
        assert router.saw("download_progress", name)
        assert router.post("/models", name).status_code == 400  # it is there
    assert router.statuses() == {SMALL_Q8: "unloaded", SMALL_Q4: "unloaded"}
    body = {"model": SMALL_Q8, "prompt": "ROMEO:", "max_tokens": 2}
    assert router.client.post("/v1/completions", json=body).status_code == 200
    until(lambda: router.saw("model_status", SMALL_Q8))
    found = router.client.get("/v1/models").json()["data"]
    assert {model["id"]: model["can_remove"] for model in found} == {SMALL_Q8: True, SMALL_Q4: True}

    assert router.delete(SMALL_Q8).json() == {"success": True}  # it was in memory
    until(lambda: router.saw("model_remove", SMALL_Q8))
    assert router.statuses() == {SMALL_Q4: "unloaded"}
    assert [p.name for p in router.cache.rglob("*.gguf")] == ["Small-Q4_K_M.gguf"]
    assert router.delete(SMALL_Q8).status_code == 400
    body["model"] = SMALL_Q4
    assert router.client.post("/v1/completions", json=body).status_code == 200
    assert router.delete(SMALL_Q4).status_code == 200
    assert not [p for p in router.cache.rglob("*") if p.is_file() and p.stat().st_size > 2**20]


def test_a_file_that_stays_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_routes.hub, "cached_names", lambda: {SMALL_Q8: Path("a.gguf")})
    for removed, says in ((lambda name: True, "still cached"), (refuse, "read-only")):
        monkeypatch.setattr(hub_routes.hub, "remove_model", removed)
        with pytest.raises(HTTPError, match=f"{SMALL_Q8}' could not be removed: .*{says}"):
            hub_routes._remove(SMALL_Q8)


def refuse(name: str) -> bool:
    raise OSError(30, "read-only file system")


def test_a_model_whose_file_tells_no_type(router: Router) -> None:
    assert router.post("/models", "alice/Plain").status_code == 200
    until(lambda: router.saw("download_finished", "alice/Plain"))
    assert router.statuses() == {"alice/Plain": "unloaded"}
    assert router.delete("alice/Plain").status_code == 200
    assert router.statuses() == {}


def test_one_that_is_not_wanted_any_more_does_not_come(router: Router) -> None:
    for ask in (lambda: router.post("/models/unload", SLOW), lambda: router.delete(SLOW)):
        router.events.clear()
        assert router.post("/models", SLOW).status_code == 200
        assert router.statuses()[SLOW] == "downloading"
        until(lambda: router.saw("download_progress", SLOW))
        assert router.post("/models", SLOW).status_code == 400
        assert ask().status_code == 200
        assert SLOW not in router.statuses()
        until(lambda: router.saw("download_failed", SLOW))


def pull(router: Router, model: str) -> list[dict[str, Any]]:
    """Pull a model like a client of Ollama, and return all records."""
    found = router.post("/api/pull", model)
    assert found.status_code == 200, found.text
    return [json.loads(line) for line in found.text.splitlines()]


def test_ollamas_pulls_and_removals(router: Router) -> None:
    for name in (f"hf.co/{SMALL_Q8}", SMALL_Q8):  # the second time it is there
        first, *steps, last = pull(router, name)
        assert (first, last) == ({"status": "pulling manifest"}, {"status": "success"})
        for one in [one for one in steps if "digest" in one]:
            assert one["total"] == len(MODEL) and 0 <= one["completed"] <= len(MODEL)
    asked = {"model": SMALL_Q8, "messages": [{"role": "user", "content": "Hi"}], "stream": False}
    answer = router.client.post("/api/chat", json={**asked, "options": {"num_predict": 2}})
    assert answer.status_code == 200 and answer.json()["eval_count"] == 2
    whole = router.client.post("/api/pull", json={"model": SMALL_Q4, "stream": False})
    assert whole.json() == {"status": "success"}
    for name in (SMALL_Q8, SMALL_Q4):
        assert router.client.request("DELETE", "/api/delete", json={"model": name}).is_success
    assert router.client.get("/api/tags").json() == {"models": []}
    assert router.post("/api/pull", "alice/none").status_code == 400


def test_the_end_of_its_client_ends_a_pull(router: Router) -> None:
    router.events.clear()
    body = {"model": SLOW}
    with router.client.stream("POST", "/api/pull", json=body) as answer:
        steps = (json.loads(line) for line in answer.iter_lines())
        assert any("digest" in one for one in steps)
        assert router.statuses()[SLOW] == "downloading"
    until(lambda: router.saw("download_failed", SLOW))
    assert SLOW not in router.statuses()


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("", "must be a non-empty string"),
        ("alice", "expected USER/MODEL"),
        ("alice/none", "alice/none"),
        ("alice/Small-GGUF:Q2_K", "no GGUF file of type Q2_K"),
    ],
)
def test_what_cannot_be_fetched_is_told_at_once(router: Router, model: str, says: str) -> None:
    answer = router.post("/models", model)
    assert answer.status_code == 400 and says in answer.json()["error"]["message"]


def test_pages_of_others_change_nothing(router: Router) -> None:
    answer = router.post("/models", SMALL_Q8, Origin="https://elsewhere.example")
    assert answer.status_code == 403 and "elsewhere" in answer.json()["error"]["message"]
    assert router.statuses() == {}


@pytest.mark.parametrize(
    ("flags", "client", "key", "status"),
    [
        ((), ("127.0.0.1", 1), "", 400),
        ((), ("::1", 1), "", 400),
        ((), ("10.0.0.1", 1), "", 403),
        ((), ("10.0.0.1", 1), "secret", 400),
        (("--models-manage", "all"), ("10.0.0.1", 1), "", 400),
        (("--models-manage", "none"), ("127.0.0.1", 1), "", 403),
    ],
)
def test_who_may(
    flags: tuple[str, ...], client: tuple[str, int], key: str, status: int, tmp_path: Path
) -> None:
    """Whoever may is told that the name is missing."""
    (tmp_path / "a.gguf").symlink_to(DEMO)
    args = parser().parse_args([*SMALL, "--models-dir", str(tmp_path), "--models-cached", *flags])
    args.given = [*SMALL]
    pool = build_model_pool(args)
    made = TestClient(app(pool, ListenParams(api_key=(key,) if key else ())), LOCAL, client=client)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    assert made.post("/models", json={}, headers=headers).status_code == status
    removed = made.delete("/models", params={"model": "a"}, headers=headers)
    assert removed.status_code == status  # a file of a folder is not the hub's
    pool.close()


def test_a_server_of_one_model_has_none_of_this(client: TestClient) -> None:
    assert client.post("/models", json={"model": SMALL_Q8}).status_code == 404
    assert client.delete("/models", params={"model": "demo"}).status_code == 404
    assert client.get("/models/sse").status_code == 404


@pytest.mark.parametrize(
    ("address", "here"),
    [(None, True), (("127.3.0.1", 1), True), (("192.168.0.1", 1), False), (("", 0), True)],
)
def test_clients_of_this_machine(address: tuple[str, int] | None, here: bool) -> None:
    client = None if address is None else SimpleNamespace(host=address[0])
    request: Any = SimpleNamespace(client=client, headers={}, state=SimpleNamespace())
    assert is_manager(request) == here
    request.headers = {"x-forwarded-for": "10.0.0.1"}
    assert not is_manager(request)
