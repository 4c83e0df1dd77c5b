"""Wrong fields end in 400 with their name, and errors have no folders of the server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from llama_py_server.models.state import ModelState
from llama_py_server.schema import chat as chat_schema
from llama_py_server.wire.body import MOST_NESTED
from llama_py_server.wire.errors import without_folders
from tests.server.served import ASK

LEAST: dict[str, dict[str, Any]] = {
    "/completion": {"prompt": "a", "n_predict": 1},
    "/v1/chat/completions": {"messages": ASK, "max_tokens": 1},
}
HUGE = 10**400


def nested(n: int) -> Any:
    found: Any = []
    for _ in range(n - 1):
        found = [found]
    return found


WRONG = {
    "huge": HUGE,
    "minus": -HUGE,
    "in a list": [HUGE, [5, HUGE], {"id": 0, "scale": HUGE}],
    "infinite": float("inf"),
    "nested": nested(900),
    "object": {"a": {"b": None}},
}


@pytest.mark.parametrize("path", LEAST)
@pytest.mark.parametrize("kind", WRONG)
def test_no_value_of_a_field_is_an_internal_error(client: TestClient, path: str, kind: str) -> None:
    for name in sorted({"prompt", *chat_schema.FIELDS}):
        text = json.dumps({**LEAST[path], name: WRONG[kind]})
        found = client.post(path, content=text)
        assert found.status_code in (200, 400), (name, found.text[:200])
        if kind == "nested":
            assert found.json()["error"]["message"].startswith(f"Field '{name}'"), name


@pytest.mark.parametrize("name", ["temperature", "min_p", "repeat_penalty", "mirostat_tau"])
def test_numbers_that_no_double_has(client: TestClient, name: str) -> None:
    for text in ("1" + 400 * "0", "1e999", "NaN"):
        found = client.post("/completion", content=f'{{"prompt": "a", "{name}": {text}}}')
        assert found.status_code == 400 and f"'{name}'" in found.json()["error"]["message"]


def test_calls_and_tools_of_wrong_types(client: TestClient) -> None:
    path = "/chat/completions/input_tokens"
    for calls in ("x", 3, {"a": 1}, [1], [[None]], [{"function": None}], [{"function": 3}]):
        for role in ("system", "user", "assistant", "tool"):
            message = {"role": role, "content": "a", "tool_calls": calls}
            found = client.post(path, json={"messages": [message]})
            assert found.status_code == 400 and "call" in found.json()["error"]["message"], message
    for function in (None, 3, {}, {"name": 3}):
        tool = {"type": "function", "function": function}
        found = client.post(path, json={"messages": ASK, "tools": [tool]})
        assert found.status_code == 400 and "a tool needs" in found.json()["error"]["message"]


def test_nesting_up_to_the_limit(client: TestClient) -> None:
    for n, status in ((MOST_NESTED, 200), (MOST_NESTED + 1, 400)):
        body = {"prompt": "a", "n_predict": 1, "unknown": nested(n)}
        assert client.post("/completion", json=body).status_code == status


def test_variables_of_templates(client: TestClient) -> None:
    """A name that an argument of the renderer has is refused, any other one is a variable."""
    taken = chat_schema._arguments()
    assert {"self", "template", "messages", "tools", "add_generation_prompt"} <= taken
    for name in (*sorted(taken), "extra", "variables", "environment", "context"):
        body = {**LEAST["/v1/chat/completions"], "chat_template_kwargs": {name: "x"}}
        found = client.post("/v1/chat/completions", json=body)
        assert found.status_code == (400 if name in taken else 200), (name, found.text)
        assert name not in taken or "'chat_template_kwargs'" in found.json()["error"]["message"]


@pytest.mark.parametrize("action", ["save", "restore"])
@pytest.mark.parametrize("name", [255 * "a", 251 * "a" + ".bin", "folder", "none.bin", "link.bin"])
def test_names_of_slot_files(client: TestClient, state: ModelState, name: str, action: str) -> None:
    folder = Path(state.params.slot_save_path)
    (folder / "folder").mkdir(exist_ok=True)
    link, target = folder / "link.bin", folder.parent / "elsewhere.bin"
    if not link.is_symlink():
        link.symlink_to(target)
    found = client.post(f"/slots/0?action={action}", json={"filename": name})
    if (name, action) == ("none.bin", "save"):
        assert found.status_code == 200
        (folder / name).unlink()
        return
    assert found.status_code == 400 and "'filename'" in found.json()["error"]["message"]
    assert str(folder) not in found.text and not target.exists()


def test_damaged_slot_files(client: TestClient, state: ModelState) -> None:
    folder = Path(state.params.slot_save_path)
    (folder / "damaged.bin").write_bytes(b"no state")
    found = client.post("/slots/0?action=restore", json={"filename": "damaged.bin"})
    message = found.json()["error"]["message"]
    assert found.status_code == 400 and message.startswith("damaged.bin: ")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("/srv/a b/c/x.gguf: damaged", "x.gguf: damaged"),
        ("'/a/b' and /c/d.gguf", "'b' and d.gguf"),
        (r"C:\Users\me\x.gguf: damaged", "x.gguf: damaged"),
        (r"\\host\share\x.gguf: damaged", "x.gguf: damaged"),
        ("n_ctx=/a/b", "n_ctx=b"),
        ("no https://me:word@host/a.gguf?key=1 here", "no https://host/a.gguf here"),
        ("rope/yarn, 1 / 2, /slots, </think>, https://a/b/c", None),
    ],
)
def test_paths_become_names(text: str, wanted: str | None) -> None:
    assert without_folders(text) == (text if wanted is None else wanted)
