"""dev.clients: its template, its page, and the lines of its scripts. The clients do not run."""

from __future__ import annotations

import json
import re

from dev.clients import run_clients as tool
from tests.server.served import served

QUESTION = {"role": "user", "content": "How is the weather here?"}
PLACE = {"type": "string", "enum": ["here", "there"]}
PARAMETERS = {"type": "object", "properties": {"place": PLACE}, "required": ["place"]}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}


def test_the_template_calls_a_tool_once() -> None:
    with served(*tool.FLAGS) as (client, _):

        def ask(*messages: object) -> dict[str, object]:
            body = {"messages": messages, "tools": [TOOL]}
            found = client.post("/v1/chat/completions", json=body).json()
            message: dict[str, object] = found["choices"][0]["message"]
            return message

        first = ask(QUESTION)
        (call,) = first["tool_calls"]  # type: ignore[misc]
        assert json.loads(call["function"]["arguments"])["place"] in PLACE["enum"]
        last = ask(QUESTION, first, {"role": "tool", "tool_call_id": call["id"], "content": "Sun"})
        assert last["content"] and not last.get("tool_calls")
        said = ask({"role": "user", "content": "Good morrow, Juliet."})
        assert said["content"] and not said.get("tool_calls")


def test_the_page_has_the_clients_that_ran() -> None:
    results = tool.read_results()
    assert results and tool.page(results) == tool.PAGE.read_text(encoding="utf-8")
    for name, result in results.items():
        client = tool.CLIENTS[name]
        assert (tool.SCRIPTS / client["script"]).is_file()
        pinned = re.split("==|@", client["packages"][0])[-1]
        assert result["version"] == pinned, f"python -m dev.clients.run_clients {name}"


def test_every_script_has_a_name() -> None:
    named = {client["script"] for client in tool.CLIENTS.values()}
    assert named == {path.name for path in tool.SCRIPTS.glob("use_*")}


def test_lines_of_a_script() -> None:
    def line(feature: str, ok: bool | None) -> str:
        return json.dumps(
            {"client": "a", "version": "1", "feature": feature, "ok": ok, "said": "x"}
        )

    whole = [line(name, name != "tools" or None) for name in tool.FEATURES]
    assert tool.read_lines(["noise", *whole], "")["failures"] == {}
    assert tool.cell(tool.read_lines(whole, ""))("tools") == "-"
    broken = tool.read_lines([*whole[:-1], line("logprobs", False)], "")
    assert broken["failures"] == {"logprobs": "x"} and tool.cell(broken)("logprobs") == "**fails**"
    ended = tool.read_lines(whole[:1], "Traceback\nValueError: y")
    assert ended["works"] == ["chat"] and set(ended["failures"].values()) == {"ValueError: y"}
