"""Models in Ollama's API: their list, files and times in memory, and created ones; its client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from llama_py_server import command
from llama_py_server.app import app
from llama_py_server.command import build_model_pool, parser
from llama_py_server.models.model_pool import ModelPool
from llama_py_server.models.names import find_name
from llama_py_server.params import ListenParams
from llama_py_tools.models import created, listing
from tests.server.chat_page import on_a_socket
from tests.server.served import ASK, LOCAL, SMALL, until
from tests.support.commands import DEMO

FEW = {"num_predict": 4, "temperature": 0}


def make_pool() -> ModelPool:
    flags = ["--models-cached", "--ollama", *SMALL]
    args = parser().parse_args(flags)
    args.given = flags
    return build_model_pool(args)


def make_client(pool: ModelPool, **options: Any) -> TestClient:
    found = app(pool, ListenParams(ollama=True, **options))
    return TestClient(found, base_url=LOCAL, raise_server_exceptions=False, client=("127.0.0.1", 1))


@contextmanager
def use_models(folder: Path, *names: str) -> Iterator[Path]:
    """Use a folder with the demo model by these names, and empty caches."""
    for name in names:
        (folder / name).symlink_to(DEMO)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLAMA_PY_MODELS", str(folder))
        patch.setenv("LLAMA_CACHE", str(folder / "cache"))
        patch.setenv("HF_HUB_CACHE", str(folder / "hub"))
        yield folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the models sea-q8_0 and plain."""
    with use_models(tmp_path_factory.mktemp("models"), "sea-q8_0.gguf", "plain.gguf") as found:
        yield found


@pytest.fixture(scope="module")
def pool(folder: Path) -> Iterator[ModelPool]:
    found = make_pool()
    yield found
    found.close()


@pytest.fixture
def client(pool: ModelPool) -> Iterator[TestClient]:
    yield make_client(pool)
    created.write_created({})
    pool.reload()


def tags(client: TestClient) -> list[str]:
    return [one["name"] for one in client.get("/api/tags").json()["models"]]


def list_loaded(client: TestClient) -> list[str]:
    return [one["name"] for one in client.get("/api/ps").json()["models"]]


def chat(client: TestClient, model: str, **more: Any) -> Any:
    body = {"model": model, "messages": ASK, "stream": False, "options": FEW, **more}
    found = client.post("/api/chat", json=body)
    assert found.status_code == 200, found.text
    return found.json()


def test_the_list(client: TestClient) -> None:
    assert tags(client) == ["plain:latest", "sea-q8_0:latest"]
    first, second = client.get("/api/tags").json()["models"]
    assert first["size"] == DEMO.stat().st_size and datetime.fromisoformat(
        first["modified_at"][:19]
    )
    assert len(first["digest"]) == 64 and first["digest"] != second["digest"]
    details = first["details"]
    assert (details["format"], details["quantization_level"]) == ("gguf", "Q8_0")
    assert details["family"] == "qwen35moe" and details["parameter_size"] == "6.90M"


def test_names(client: TestClient) -> None:
    for name in ("sea-q8_0", "sea-q8_0:latest", "sea:q8_0", "sea:Q8_0", "sea", "hf.co/plain"):
        assert chat(client, name)["model"] == name
    for name, path in (("sea:q4_0", "chat"), ("se", "generate"), ("", "show"), ("x", "show")):
        found = client.post(f"/api/{path}", json={"model": name, "prompt": "a", "messages": ASK})
        assert found.status_code == (404 if name else 400)
        assert name in found.json()["error"]


def test_a_name_without_a_type_is_the_usual_one() -> None:
    known = ["a-q8_0", "a-q4_k_m", "u/M-GGUF:Q8_0", "b-q2_k", "b-q3_k"]
    assert find_name("a", known) == "a-q4_k_m"
    assert find_name("A:latest", known) == "a-q4_k_m"
    assert find_name("hf.co/u/M-GGUF:q8_0", known) == "u/M-GGUF:Q8_0"
    assert find_name("u/m-gguf", known) == "u/M-GGUF:Q8_0"
    assert find_name("b", known) is find_name("c", known) is None


def test_facts_of_a_file(client: TestClient) -> None:
    found = client.post("/api/show", json={"model": "sea"}).json()
    info = found["model_info"]
    assert info["general.architecture"] == "qwen35moe"
    assert info["general.parameter_count"] > 0 and info["tokenizer.ggml.tokens"] is None
    assert found["modelfile"].startswith("FROM sea-q8_0:latest\n")
    assert "completion" in found["capabilities"] and "tensors" not in found
    whole = client.post("/api/show", json={"name": "sea", "verbose": True}).json()
    assert len(whole["model_info"]["tokenizer.ggml.tokens"]) > 0
    assert {"name", "type", "shape"} == whole["tensors"][0].keys()


def test_times_in_memory(client: TestClient, pool: ModelPool) -> None:
    chat(client, "plain", keep_alive="1h")
    [one] = [m for m in client.get("/api/ps").json()["models"] if m["name"] == "plain:latest"]
    left = datetime.fromisoformat(one["expires_at"].replace("Z", "+00:00"))
    assert 3500 < (left - datetime.now(left.tzinfo)).total_seconds() <= 3600
    assert one["context_length"] > 0 and one["size"] > 0
    pool.tick()
    assert "plain:latest" in list_loaded(client)
    chat(client, "plain", keep_alive=1e-3)
    until(lambda: (pool.tick(), "plain:latest" not in list_loaded(client))[1])
    assert chat(client, "plain")["load_duration"] > 0
    body = {"model": "plain", "keep_alive": 0}
    assert client.post("/api/generate", json=body).json()["done_reason"] == "unload"
    until(lambda: "plain:latest" not in list_loaded(client))
    assert client.post("/api/chat", json=body).json()["done_reason"] == "unload"


def create(client: TestClient, name: str, **body: Any) -> Any:
    return client.post("/api/create", json={"model": name, "stream": False, **body})


def test_a_created_model(client: TestClient, pool: ModelPool, capsys: Any) -> None:
    template = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    recipe = {
        "from": "sea",
        "system": "Be brief.",
        "template": template,
        "parameters": {"num_predict": 3, "num_ctx": 256, "temperature": 0, "stop": ["zzz"]},
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}],
    }
    assert create(client, "brief", **recipe).json() == {"status": "success"}
    assert "brief:latest" in tags(client)
    found = client.post("/api/chat", json={"model": "brief", "messages": ASK, "stream": False})
    assert found.json()["eval_count"] == 3
    with pool.models.use("brief") as served:
        state = served.state
        assert served.state.engine.n_ctx == 256 and state.template.source == template
        texts = ("[system] Be brief.", "[user] Hi", "[assistant] Ho", f"[user] {ASK[0]['content']}")
        prompt = "".join(f"{text}\n" for text in texts)
        assert found.json()["prompt_eval_count"] == len(state.tokenizer.tokenize(prompt))
    shown = client.post("/api/show", json={"model": "brief"}).json()
    assert shown["system"] == "Be brief." and shown["details"]["parent_model"] == "sea-q8_0:latest"
    assert "PARAMETER num_ctx" in shown["modelfile"] and '"zzz"' in shown["parameters"]
    again = make_pool()  # another server
    assert again.entries["brief"].recipe == pool.entries["brief"].recipe
    again.close()
    assert listing.main([]) == 0
    assert "from sea-q8_0" in capsys.readouterr().out
    body = {"from": "brief", "system": "Be long.", "parameters": {"num_predict": 5}}
    assert create(client, "long:v1", **body).status_code == 200
    merged = pool.entries["long:v1"].recipe
    assert merged["from"] == "sea-q8_0" and merged["system"] == "Be long."
    assert merged["settings"]["max_tokens"] == 5 and merged["settings"]["n_ctx"] == 256


def test_a_go_template(client: TestClient, pool: ModelPool) -> None:
    template = "{{ range .Messages }}[{{ .Role }}] {{ .Content }}\n{{ end }}"
    recipe = {"from": "sea", "template": template, "system": "Be brief."}
    assert create(client, "go", **recipe).status_code == 200
    chatted = chat(client, "go")
    with pool.models.use("go") as served:
        tokens = served.state.tokenizer.tokenize(
            f"[system] Be brief.\n[user] {ASK[0]['content']}\n"
        )
    assert chatted["prompt_eval_count"] == len(tokens)
    body = {"model": "go", "prompt": ASK[0]["content"], "stream": False, "options": FEW}
    generated = client.post("/api/generate", json=body).json()
    assert generated["response"] == chatted["message"]["content"]
    shown = client.post("/api/show", json={"model": "go"}).json()
    assert shown["template"] == template and f'TEMPLATE """{template}"""' in shown["modelfile"]
    assert shown["capabilities"] == ["completion"]
    bad = create(client, "bad", **{"from": "sea", "template": "a\n{{ if .System }}"})
    assert bad.status_code == 400
    assert bad.json()["error"].startswith("Go template, line 2: unexpected end of the template")


def test_a_go_template_for_infill(client: TestClient, pool: ModelPool) -> None:
    template = "{{ if .Suffix }}<P>{{ .Prompt }}<S>{{ .Suffix }}<M>{{ else }}{{ .Prompt }}{{ end }}"
    assert create(client, "hole", **{"from": "sea", "template": template}).status_code == 200
    assert client.post("/api/show", json={"model": "hole"}).json()["capabilities"] == [
        "completion",
        "insert",
    ]
    body = {"model": "hole", "prompt": "to", "suffix": "be", "stream": False, "options": FEW}
    found = client.post("/api/generate", json=body).json()
    with pool.models.use("hole") as served:
        tokens = served.state.tokenizer.tokenize("<P>to<S>be<M>")
    assert found["prompt_eval_count"] == len(tokens)


def test_a_changed_recipe_is_used(client: TestClient) -> None:
    for n in (2, 3):
        create(client, "short", **{"from": "sea", "parameters": {"num_predict": n}})
        assert chat(client, "short", options={"temperature": 0})["eval_count"] == n


def test_copies_and_removal(client: TestClient) -> None:
    assert client.post("/api/copy", json={"source": "sea", "destination": "b"}).status_code == 200
    assert chat(client, "b")["message"] == chat(client, "sea")["message"]
    assert client.request("DELETE", "/api/delete", json={"model": "b"}).status_code == 200
    assert tags(client) == ["plain:latest", "sea-q8_0:latest"]
    for name, code in (("b", 404), ("sea", 400), ("", 400)):
        assert client.request("DELETE", "/api/delete", json={"model": name}).status_code == code
    for source, name, code in (("x", "b", 404), ("sea", "plain", 400), ("sea", "", 400)):
        body = {"source": source, "destination": name}
        assert client.post("/api/copy", json=body).status_code == code


def test_wrong_recipes(client: TestClient) -> None:
    for body in (
        {},
        {"from": "sea", "files": {"a": "b"}},
        {"from": "sea", "template": "{{ .Prompt"},
        {"from": "sea", "template": "{% for"},
        {"from": "sea", "parameters": {"top_k": "x"}},
        {"from": "sea", "parameters": {"num_ctx": -4}},
        {"from": "sea", "messages": [{"content": 3}]},
        {"from": "sea", "license": [3]},
        {"from": "sea", "system": 3},
    ):
        assert create(client, "x", **body).status_code == 400, body
    for name in ("a b", "../x", "a" * 300, "/etc/x", ""):
        assert create(client, name, **{"from": "sea"}).status_code == 400, name
    assert create(client, "x", **{"from": "nothing"}).status_code == 404
    assert created.read_created() == {}


def test_only_permitted_clients_change_models(pool: ModelPool) -> None:
    other = TestClient(app(pool, ListenParams()), base_url=LOCAL, client=("192.168.1.9", 5))
    for method, path, body in (
        ("POST", "create", {"model": "x", "from": "sea"}),
        ("POST", "copy", {"source": "sea", "destination": "x"}),
        ("POST", "pull", {"model": "a/b"}),
        ("DELETE", "delete", {"model": "sea"}),
    ):
        found = other.request(method, f"/api/{path}", json=body)
        assert found.status_code == 403 and "only clients of this machine" in found.json()["error"]


def test_a_created_model_without_its_base_is_omitted(pool: ModelPool, client: TestClient) -> None:
    created.write_created({"x": {"from": "gone"}, "y": {}})
    pool.reload()
    assert tags(client) == ["plain:latest", "sea-q8_0:latest"]


def test_without_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LLAMA_PY_MODELS", "LLAMA_CACHE", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    empty = make_pool()
    found = make_client(empty).post("/api/chat", json={"model": "x", "messages": ASK})
    assert found.status_code == 404
    assert found.json()["error"].startswith(
        "model 'x' not found; the server has no models: download one, such as: llama-py pull "
    )
    assert (
        "llama-py pull" in command._count_models(0) and command._count_models(1) == "ready: 1 model"
    )
    empty.close()


def test_pulls_of_unknown_models(client: TestClient) -> None:
    assert client.post("/api/pull", json={"model": "sea"}).text.splitlines()[-1] == (
        '{"status":"success"}'
    )
    found = client.post("/api/pull", json={"model": "llama3"})
    assert found.status_code == 404 and "USER/MODEL:TYPE" in found.json()["error"]


def test_ollamas_client(client: TestClient) -> None:
    ollama = pytest.importorskip("ollama")
    with on_a_socket(client) as address, ollama.Client(address) as c:
        assert [one.model for one in c.list().models] == ["plain:latest", "sea-q8_0:latest"]
        said = c.chat("sea", ASK, options=FEW)
        parts = c.chat("sea", ASK, options=FEW, stream=True)
        assert "".join(part.message.content for part in parts) == said.message.content
        assert c.generate("sea", "To be", options=FEW, logprobs=True).logprobs[0].logprob <= 0
        assert len(c.embed("sea", ["a", "b"]).embeddings) == 2
        assert c.show("sea").modelinfo["general.architecture"] == "qwen35moe"
        assert c.ps().models[0].size_vram == 0
        steps = [one.status for one in c.create("new", from_="sea", system="x", stream=True)]
        assert steps[0].startswith("creating new layer sha256:")
        assert steps[1:] == ["writing manifest", "success"]
        assert c.copy("new", "newer").status == c.delete("new").status == "success"
        with pytest.raises(ollama.ResponseError, match="not found") as error:
            c.chat("new", ASK)
        assert error.value.status_code == 404

        async def ask() -> str:
            async with ollama.AsyncClient(address) as asking:
                found = await asking.chat("sea", ASK, options=FEW)
            return str(found.message.content)

        assert asyncio.run(ask()) == said.message.content


def test_the_file_of_created_models_is_json(folder: Path) -> None:
    created.write_created({"x": {"from": "sea"}})
    assert json.loads(created.created_file().read_text()) == {"x": {"from": "sea"}}
    created.write_created({})
