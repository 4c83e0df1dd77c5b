"""What is around answers: tokens, slots, metrics, what is served."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.testclient import TestClient

from llama_py.text.embed import normalize_rows
from llama_py_server.command import parser
from llama_py_server.models.state import ModelState
from llama_py_server.params import ServedParams
from llama_py_server.routes.slots import is_file_name
from llama_py_tools.command.options import read
from tests.server.served import served

PROMPT = "ROMEO: what is it that you say of the night"


def test_tokens_and_back(client: TestClient) -> None:
    ids = client.post("/tokenize", json={"content": PROMPT}).json()["tokens"]
    text = client.post("/detokenize", json={"tokens": ids}).json()
    assert text == {"content": PROMPT, "prompt": PROMPT}
    pieces = client.post("/tokenize", json={"content": "é€", "with_pieces": True}).json()["tokens"]
    data = b"".join(
        bytes(p["piece"]) if isinstance(p["piece"], list) else p["piece"].encode() for p in pieces
    )
    assert data.decode() == "é€"
    assert client.post("/tokenize", json={}).json() == {"tokens": []}
    for tokens in ([10**6], ["a"], "x"):
        assert client.post("/detokenize", json={"tokens": tokens}).status_code == 400


def test_the_tokenizer_of_lm_eval(client: TestClient, state: ModelState) -> None:
    """lm_eval's `local-completions` reads the server's tokenizer."""
    t = state.tokenizer
    info = client.get("/tokenizer_info").json()
    assert info["chat_template"] == state.template.source and info["add_bos_token"] == t.add_bos
    for name, id in (("bos", t.bos), ("eos", t.eos)):
        text = info[f"{name}_token"]
        if id is None:
            assert text is None
            continue
        body = {"prompt": text, "add_special_tokens": False}
        assert client.post("/tokenize", json=body).json()["tokens"] == [id]
    assert info["model_max_length"] == state.engine.n_ctx


def test_what_is_served(client: TestClient, state: ModelState) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    for path in ("/models", "/v1/models"):
        found = client.get(path).json()
        assert [m["id"] for m in found["data"]] == ["demo"]
    assert client.get("/v1/models/demo").json()["meta"]["n_vocab"] == state.tokenizer.n_vocab
    (known,), m = client.get("/models").json()["models"], state.model
    assert known["size"] == m.n_bytes and known["details"]["families"] == [m.arch]
    assert known["details"]["parameter_size"] == f"{m.n_params / 1e6:.2f}M"
    props = client.get("/props").json()
    assert props["total_slots"] == 2 and props["default_generation_settings"]["n_ctx"] == 1024
    assert props["default_generation_settings"]["params"]["temperature"] == 0.0
    assert props["ui"] is True
    assert client.post("/props", json={}).status_code == 501
    assert client.get("/nothing").json()["error"]["type"] == "not_found_error"
    assert client.get("/completion").status_code == 404


def test_slots_are_kept_in_files(client: TestClient, state: ModelState) -> None:
    body = {"prompt": PROMPT, "id_slot": 1, "n_predict": 4}
    said = client.post("/completion", json=body).json()
    assert said["id_slot"] == 1
    saved = client.post("/slots/1?action=save", json={"filename": "one.bin"}).json()
    assert saved["n_saved"] > len(PROMPT.split()) and saved["n_written"] > 0
    erased = client.post("/slots/1?action=erase").json()
    assert erased == {"id_slot": 1, "n_erased": saved["n_saved"]}
    restored = client.post("/slots/0?action=restore", json={"filename": "one.bin"}).json()
    assert restored["n_restored"] == saved["n_saved"]
    assert restored["n_read"] == saved["n_written"]
    again = client.post("/completion", json={**body, "id_slot": 0}).json()
    assert again["content"] == said["content"] and again["timings"]["cache_n"] > 0


@pytest.mark.parametrize(
    "url, body",
    [
        ("/slots/x?action=save", {"filename": "a"}),
        ("/slots/9?action=erase", {}),
        ("/slots/0?action=eat", {}),
        ("/slots/0?action=save", {"filename": "../a"}),
        ("/slots/0?action=restore", {"filename": "none.bin"}),
        ("/slots/0?action=save", {}),
    ],
)
def test_wrong_slots(client: TestClient, url: str, body: dict[str, Any]) -> None:
    assert client.post(url, json=body).status_code == 400


def test_file_names() -> None:
    assert is_file_name("a.bin") and is_file_name("Grüße 1.bin")
    for name in ("", ".", "..", "a/b", "a\\b", "a..b", "a.", " a", "c:a", "a\0", "x" * 256):
        assert not is_file_name(name)


def test_slots_and_metrics(client: TestClient) -> None:
    slots = client.get("/slots").json()
    assert [s["id"] for s in slots] == [0, 1] and not any(s["is_processing"] for s in slots)
    before = numbers(client)
    timings = client.post("/completion", json={"prompt": PROMPT, "n_predict": 5}).json()["timings"]
    after = numbers(client)

    def more(name: str) -> float:
        return after[f"llamacpp:{name}"] - before[f"llamacpp:{name}"]

    assert more("tokens_predicted_total") == 5
    assert more("prompt_tokens_total") == timings["prompt_n"]
    assert more("prompt_tokens_cached_total") == timings["cache_n"]
    assert after["llamacpp:experts_used_total"] == after["llamacpp:experts_bytes_per_token"] == 0
    assert 0 <= after["llamacpp:state_bytes"] <= after["llamacpp:state_limit_bytes"] == 64 << 20


def numbers(client: TestClient) -> dict[str, float]:
    """Each has a type and a help line."""
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = response.text.splitlines()
    named = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert named == [line.split()[2] for line in lines if line.startswith("# HELP")]
    found = {
        name: float(value)
        for name, value in (line.split(" ") for line in lines if line[0] != "#" and "{" not in line)
    }
    assert {*found} <= {*named}
    return found


def test_nothing_of_this_without_options() -> None:
    with served("--no-slots", "--no-ui", "--api-prefix", "/ai") as (client, _):
        assert client.get("/ai/").status_code == client.get("/ai/page.js").status_code == 404
        assert client.get("/health").status_code == 404
        assert client.get("/ai/props").json()["ui"] is False
        assert client.get("/ai/health").status_code == 200
        for path in ("/slots", "/metrics"):
            assert client.get(f"/ai{path}").status_code == 501
        posts = ("/slots/0?action=save", "/embeddings", "/rerank", "/infill")
        for path in posts:
            response = client.post(f"/ai{path}", json={})
            assert response.status_code == 501
            assert response.json()["error"]["type"] == "not_supported_error"


def test_gaps_are_filled() -> None:
    ids = [
        f"tokenizer.ggml.fim_{name}_token_id=int:{n}"
        for n, name in enumerate(("pre", "suf", "mid"), 1)
    ]
    with served("--override-kv", ",".join(ids)) as (client, _):
        body = {"input_prefix": "To be", "input_suffix": "question", "prompt": " or"}
        found = client.post("/infill", json={**body, "input_extra": [{"text": "more"}]})
        assert found.json()["content"]
        for wrong in ({"input_prefix": "a"}, {**body, "input_extra": [{}]}, {**body, "prompt": 1}):
            assert client.post("/infill", json=wrong).status_code == 400
        wanted = client.post("/infill", json={**body, "prompt": ""}).json()
        between = {"prompt": "To be", "suffix": "question", "stream": False}
        filled = client.post("/api/generate", json={"model": "any", **between}).json()
        assert filled["response"] == wanted["content"]
        asked = {"prompt": ["To be"], "suffix": "question", "verbose": True}
        suffixed = client.post("/v1/completions", json=asked).json()
        assert suffixed["choices"][0]["text"] == wanted["content"]
        assert suffixed["__verbose"]["prompt"] == wanted["prompt"]
        wrong = {"prompt": [1, 2], "suffix": "question"}
        assert client.post("/v1/completions", json=wrong).status_code == 400


def test_embeddings() -> None:
    with served("--embeddings") as (client, state):
        body = {"input": ["one text", "another"], "model": "m"}
        found = client.post("/v1/embeddings", json=body).json()
        rows = [one["embedding"] for one in found["data"]]
        wanted = state.model.embed(body["input"])
        assert found["usage"]["prompt_tokens"] > 0 and found["model"] == "m"
        for row, want in zip(rows, wanted, strict=True):
            assert row == pytest.approx(want.tolist(), abs=1e-5)
        ids = client.post("/tokenize", json={"content": "another"}).json()["tokens"]
        one = client.post("/v1/embeddings", json={"input": ids, "encoding_format": "base64"})
        assert isinstance(one.json()["data"][0]["embedding"], str)
        native = client.post("/embedding", json={"content": "another"}).json()
        assert native[0]["embedding"][0] == pytest.approx(rows[1], abs=1e-5)
        for wrong in ({}, {"input": []}, {"input": ""}, {"input": "a", "encoding_format": "x"}):
            assert client.post("/v1/embeddings", json=wrong).status_code == 400


@pytest.mark.parametrize("norm", [2, 1, -1])
def test_embeddings_of_a_wanted_length(norm: int) -> None:
    with served("--embeddings", "--embd-normalize", str(norm)) as (client, state):
        n = state.model.hparams.n_embd
        for size in (1, 16, n):
            body = {"input": ["one text", "another"], "dimensions": size}
            found = client.post("/v1/embeddings", json=body).json()["data"]
            wanted = normalize_rows(state.model.embed(body["input"], normalize=-1)[:, :size], norm)
            for row, want in zip(found, wanted, strict=True):
                assert row["embedding"] == pytest.approx(want.tolist(), abs=1e-5)
        for wrong in (0, -1, n + 1, 1.5, "16", True):
            response = client.post("/v1/embeddings", json={"input": "a", "dimensions": wrong})
            assert response.status_code == 400 and "dimensions" in response.text


@pytest.mark.parametrize(
    "flags, expected",
    [
        ((), (4, True)),
        (("-np", "-1", "-kvu"), (4, True)),
        (("-no-kvu",), (4, False)),
        (("-np", "2"), (2, False)),
        (("-np", "2", "-kvu"), (2, True)),
        (("-np", "1"), (1, False)),
    ],
)
def test_slots_share_the_context_unless_their_number_is_given(
    flags: tuple[str, ...], expected: tuple[int, bool]
) -> None:
    args = parser().parse_args(list(flags))
    params = read(args, ServedParams).with_slots(args.kv_unified)
    assert (params.n_seq_max, params.kv_unified) == expected


def test_one_request_may_use_all_of_the_context_without_np() -> None:
    """Two requests that do not fit together are answered one after the other, states included."""
    with served("-np", "-1", "-c", "1024") as (client, state):
        assert not state.engine._ctx.memory.allows_unequal_lengths  # a hybrid model
        props = client.get("/props").json()
        assert props["total_slots"] == 4 and props["default_generation_settings"]["n_ctx"] == 1024
        assert [s["n_ctx"] for s in client.get("/slots").json()] == [1024] * 4
        bodies = [{"prompt": f"{who} " * 600, "n_predict": 8} for who in ("king", "queen")]

        def ask(body: dict[str, Any]) -> Any:
            return client.post("/completion", json=body).json()

        with ThreadPoolExecutor(2) as pool:
            together = list(pool.map(ask, bodies))
        for body, found in zip(bodies, together, strict=True):
            assert found["tokens_evaluated"] > 512 and found["tokens_predicted"] == 8
            assert ask({**body, "cache_prompt": False})["content"] == found["content"]
        too_long = client.post("/completion", json={"prompt": "king " * 2000})
        assert too_long.status_code == 400 and too_long.json()["error"]["n_ctx"] == 1024
        assert ask({"prompt": "king " * 600, "n_predict": -1})["stop_type"] == "limit"
