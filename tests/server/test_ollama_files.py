"""Models of uploaded files in Ollama's API: blobs, shards, adapters, quantization, and pushes."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from dev.record.whole_checkpoints import PRE, write_whole
from llama_py.checkpoint import vocabulary
from llama_py.gguf.file import GGUFFile
from llama_py_server.models import quantize_job
from llama_py_server.models.model_pool import ModelPool
from llama_py_server.wire.errors import HTTPError
from llama_py_server.wire.limits import BodyLimit
from llama_py_tools.gguf.main import main as gguf_command
from llama_py_tools.models import blobs, created, listing
from tests.server.chat_page import on_a_socket
from tests.server.served import ASK
from tests.server.test_ollama_models import (
    FEW,
    chat,
    create,
    make_client,
    make_pool,
    tags,
    use_models,
)
from tests.support.adapters import write_adapter
from tests.support.commands import DEMO

MODEL = DEMO.read_bytes()
OUTPUT = "output.weight"


def hash_bytes(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def upload(client: TestClient, data: bytes) -> str:
    digest = hash_bytes(data)
    assert client.post(f"/api/blobs/{digest}", content=data).status_code in (200, 201)
    return digest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with use_models(tmp_path_factory.mktemp("models"), "sea.gguf") as found:
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


@pytest.fixture(scope="module")
def f16_model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The demo model in F16."""
    out = tmp_path_factory.mktemp("half") / "f16.gguf"
    assert gguf_command(["quantize", "--allow-requantize", str(DEMO), str(out), "F16", "1"]) == 0
    return out.read_bytes()


def steps(client: TestClient, name: str, **body: Any) -> list[dict[str, Any]]:
    found = client.post("/api/create", json={"model": name, **body})
    assert found.status_code == 200, found.text
    return [json.loads(line) for line in found.text.splitlines()]


def refuse(client: TestClient, **body: Any) -> str:
    found = create(client, "x", **body)
    assert found.status_code == 400, found.text
    return str(found.json()["error"])


def test_blobs(client: TestClient) -> None:
    data = b"some bytes" * 300_000
    path = f"/api/blobs/{hash_bytes(data)}"
    assert client.head(path).status_code == 404
    assert client.post(path, content=data).status_code == 201
    assert client.head(path).status_code == 200
    assert client.post(path, content=b"other").status_code == 200  # already there
    assert blobs.blob_path(hash_bytes(data)).read_bytes() == data
    wrong = client.post(f"/api/blobs/{hash_bytes(b'x')}", content=b"y")
    assert wrong.status_code == 400
    assert f"expected '{hash_bytes(b'x')}', got '{hash_bytes(b'y')}'" in wrong.json()["error"]
    for digest in ("sha256:1", "x", "sha256:" + "G" * 64, "sha256:../../x"):
        assert client.head(f"/api/blobs/{digest}").status_code in (400, 404)
        assert client.post(f"/api/blobs/{digest}", content=b"").status_code in (400, 404)
    assert not [*blobs.blob_folder().glob("*.part")]


def test_a_full_disk(client: TestClient) -> None:
    size = {"content-length": str(10**18)}
    found = client.post(f"/api/blobs/{hash_bytes(b'full')}", content=b"full", headers=size)
    assert found.status_code == 503 and "free bytes" in found.json()["error"]


def test_a_model_from_a_file(client: TestClient, pool: ModelPool, capsys: Any) -> None:
    digest = upload(client, MODEL)
    found = steps(client, "own", files={"some/My model.gguf": digest}, system="Be brief.")
    texts = [one["status"] for one in found]
    assert texts[:2] == ["parsing GGUF", f"using existing layer {digest}"]
    assert texts[2].startswith("creating new layer sha256:")
    assert texts[3:] == ["writing manifest", "success"]
    assert tags(client) == ["own:latest", "sea:latest"]
    system = {"role": "system", "content": "Be brief."}
    assert chat(client, "own")["message"] == chat(client, "sea", messages=[system, *ASK])["message"]
    assert (
        client.post("/api/show", json={"model": "own"}).json()["details"]["family"] == "qwen35moe"
    )
    again = make_pool()  # another server
    assert again.entries["own"].path == pool.entries["own"].path
    again.close()
    assert listing.main([]) == 0
    assert "from uploaded files" in capsys.readouterr().out
    assert create(client, "second", **{"from": "own", "parameters": FEW}).status_code == 200
    assert chat(client, "second")["message"] == chat(client, "own")["message"]
    for name in ("own", "second"):
        assert blobs.blob_path(digest).exists()
        assert client.request("DELETE", "/api/delete", json={"model": name}).status_code == 200
    assert not [*blobs.blob_folder().glob("files-*")] and not blobs.blob_path(digest).exists()


def test_a_model_from_shards(client: TestClient, tmp_path: Path) -> None:
    command = ["split", "--split-max-tensors", "40", str(DEMO), str(tmp_path / "part")]
    assert gguf_command(command) == 0
    parts = {path.name: upload(client, path.read_bytes()) for path in tmp_path.glob("*.gguf")}
    assert len(parts) > 1
    steps(client, "parts", files=parts)
    assert chat(client, "parts")["message"] == chat(client, "sea")["message"]
    del parts[max(parts)]
    assert "parts are missing" in refuse(client, files=parts)


def test_a_model_from_a_checkpoint(
    client: TestClient, pool: ModelPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vocabulary, "pre_tokenizer", lambda *given: PRE)  # of a tiny tokenizer
    at = write_whole("llama-bpe", tmp_path)
    files = {f"x/{one.name}": upload(client, one.read_bytes()) for one in at.iterdir()}
    assert steps(client, "tiny", files=files)[-1] == {"status": "success"}
    path = Path(pool.entries["tiny"].path)
    assert path.is_dir() and {one.name for one in path.iterdir()} == {n[2:] for n in files}
    shown = client.post("/api/show", json={"model": "tiny"}).json()
    assert shown["details"]["family"] == "llama"
    monkeypatch.setattr(quantize_job.os, "nice", lambda n: None)
    assert quantize_job.quantize_file(str(path), str(tmp_path / "out.gguf"), "Q8_0") == 0
    del files["x/tokenizer.json"]
    assert "tokenizer.json: no such file" in refuse(client, files=files)


def test_wrong_files(client: TestClient, tmp_path: Path) -> None:
    model, text = upload(client, MODEL), upload(client, b"no model")
    adapter = upload(client, make_adapter(tmp_path, "qwen35moe"))
    other = upload(client, make_adapter(tmp_path, "llama"))
    for files, why in (
        ({"m.gguf": "sha256:1"}, "invalid digest"),
        ({"m.gguf": hash_bytes(b"missing")}, "POST /api/blobs/sha256:"),
        ({"m.bin": text}, "llama-py-gguf convert FOLDER"),
        ({"m.safetensors": text}, "one folder with config.json"),
        ({"m.safetensors": text, "config.json": text}, "config.json"),
        ({"m.safetensors": text, "a b": text}, "letters"),
        ({"m.gguf": adapter}, "'adapters'"),
        ({"a.gguf": model, "b.gguf": model}, "two files for model.gguf"),
        ({"../m.gguf": model}, "must be relative"),
        ({"/m.gguf": model}, "must be relative"),
        ({"m.gguf": 3}, "object of digests"),
        ([model], "object of digests"),
    ):
        assert why in refuse(client, files=files)
    for adapters, why in (
        ({"a.gguf": model}, "not a LoRA adapter"),
        ({"a.gguf": other}, "an adapter for llama, but the model is qwen35moe"),
        ({"a.safetensors": text}, "llama-py-gguf convert FOLDER"),
    ):
        assert why in refuse(client, **{"from": "sea"}, adapters=adapters)
    assert "either 'from' or 'files'" in refuse(client, **{"from": "sea"}, files={"m.gguf": model})
    assert "neither 'from' or 'files'" in refuse(client, files={})
    assert "'renderer' is not supported" in refuse(client, **{"from": "sea"}, renderer="x")


def make_adapter(folder: Path, arch: str) -> bytes:
    """An adapter of a matrix of the demo model."""
    with GGUFFile.open(DEMO) as file:
        name = OUTPUT if OUTPUT in file.tensors else "blk.0.ffn_gate_inp.weight"
        n_in, n_out, *_ = file.tensors[name].ne
    rng = np.random.default_rng(3)
    pair = {
        f"{name}.lora_a": rng.standard_normal((2, n_in)).astype(np.float32),
        f"{name}.lora_b": rng.standard_normal((n_out, 2)).astype(np.float32),
    }
    return write_adapter(folder / f"{arch}.gguf", arch, pair).read_bytes()


def test_adapters(client: TestClient, tmp_path: Path) -> None:
    adapter = upload(client, make_adapter(tmp_path, "qwen35moe"))
    assert create(client, "tuned", **{"from": "sea"}, adapters={"a.gguf": adapter}).json() == {
        "status": "success"
    }
    assert chat(client, "tuned")["message"] != chat(client, "sea")["message"]
    shown = client.post("/api/show", json={"model": "tuned"}).json()
    assert f"ADAPTER {adapter}\n" in shown["modelfile"]


def test_quantization(
    client: TestClient, f16_model: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantize_job, "LOOK", 0.01)
    digest = upload(client, f16_model)
    found = steps(client, "small", files={"f16.gguf": digest}, quantize="q4_0")
    assert found[-1] == {"status": "success"}
    work = [one for one in found if one["status"] == "quantizing model to Q4_0"]
    assert work[-1]["completed"] == work[-1]["total"] == len(f16_model)
    made = work[-1]["digest"]
    assert f"using existing layer {made}" in [one["status"] for one in found]
    shown = client.post("/api/show", json={"model": "small"}).json()
    assert shown["details"]["quantization_level"] == "Q4_0"
    assert chat(client, "small")["message"]["content"]
    assert blobs.blob_path(made).stat().st_size < len(f16_model) / 2
    steps(client, "whole", files={"f16.gguf": digest})
    assert steps(client, "less", **{"from": "whole"}, quantize="Q8_0")[-1] == {"status": "success"}
    assert "known: F32, F16" in refuse(client, **{"from": "whole"}, quantize="q9")
    assert "this one is Q8_0" in refuse(client, **{"from": "sea"}, quantize="q4_0")
    assert not [*blobs.blob_folder().glob("quantize-*")]


def test_quantization_that_fails(client: TestClient, f16_model: bytes) -> None:
    body = {"files": {"f16.gguf": upload(client, f16_model)}}
    with quantize_job._ONE:
        busy = create(client, "x", **body, quantize="q4_0")
        assert busy.status_code == 503 and "another model" in busy.json()["error"]
    refused = create(client, "x", **body, quantize="iq1_s")
    assert refused.status_code == 400 and refused.json()["error"].startswith("quantization to")
    last = steps(client, "x", **body, quantize="iq1_s")[-1]  # it needs an importance matrix
    assert last["error"].startswith("quantization to IQ1_S failed: ") and "imatrix" in last["error"]
    assert "x:latest" not in tags(client)


def test_old_uploads_are_removed(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    old = upload(client, b"old")
    steps(client, "own", files={"m.gguf": upload(client, MODEL)})
    assert blobs.blob_path(old).exists()
    monkeypatch.setattr(blobs, "UNUSED", -1.0)
    steps(client, "other", **{"from": "sea"})
    assert not blobs.blob_path(old).exists()
    assert chat(client, "own")["done"]


def test_a_model_whose_file_is_gone_is_omitted(client: TestClient, pool: ModelPool) -> None:
    steps(client, "own", files={"m.gguf": upload(client, MODEL)})
    Path(pool.entries["own"].path).unlink()
    pool.reload()
    assert tags(client) == ["sea:latest"]


def test_a_push_is_refused(client: TestClient) -> None:
    for stream in (True, False):
        found = client.post("/api/push", json={"model": "sea", "stream": stream})
        assert found.status_code == 403 and "not authorized to push" in found.json()["error"]
    assert client.post("/api/push", json={"model": "x"}).status_code == 404
    assert client.post("/api/push", json={}).status_code == 400


def test_only_permitted_clients_upload(pool: ModelPool) -> None:
    other = TestClient(
        make_client(pool).app, base_url="http://localhost", client=("192.168.1.9", 5)
    )
    path = f"/api/blobs/{hash_bytes(b'x')}"
    assert other.post(path, content=b"x").status_code == other.head(path).status_code == 403
    assert not blobs.blob_path(hash_bytes(b"x")).exists()


def test_an_upload_may_pause_for_a_limited_time() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass

    def receiver(*pauses: float) -> Any:
        left = list(pauses)

        async def receive() -> Any:
            await asyncio.sleep(left.pop(0))
            return {"type": "http.request", "body": bytes(3 << 20), "more_body": bool(left)}

        return receive

    async def test() -> None:
        limit = BodyLimit(app, lambda: (1 << 20, 1 << 20), 0.5, [])
        scope = {"type": "http", "method": "POST", "path": "/api/blobs/x", "headers": []}
        await limit(scope, receiver(0, 0, 0), None)  # type: ignore[arg-type]
        with pytest.raises(HTTPError, match="no part of the file"):
            await limit(scope, receiver(0, 60), None)  # type: ignore[arg-type]

    asyncio.run(test())


def test_ollamas_client(client: TestClient, tmp_path: Path) -> None:
    ollama = pytest.importorskip("ollama")
    with on_a_socket(client) as address, ollama.Client(address) as c:
        digest = c.create_blob(DEMO)
        parts = [*c.create("own", files={"m.gguf": digest}, system="Be brief.", stream=True)]
        assert parts[-1].status == "success"
        template = "{{ range .Messages }}{{ .Role }}: {{ .Content }}\n{{ end }}"
        assert c.create("go", from_="own", template=template).status == "success"
        assert c.show("go").template == template
        assert c.chat("go", ASK, options=FEW).message.content
        with pytest.raises(ollama.ResponseError, match="not authorized") as error:
            c.push("own")
        assert error.value.status_code == 403
        with pytest.raises(ollama.ResponseError, match="line 1"):
            c.create("bad", from_="own", template="{{ if }}")
