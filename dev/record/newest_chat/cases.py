"""Requests, and the text that a model answers them with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Body = dict[str, Any]
Case = tuple[str, Body, str]  # template, request of the OpenAI API, response ("": prompt only)

USER = {"role": "user", "content": "How is the weather in Bern?"}
SYSTEM = {"role": "system", "content": "Be brief."}
PARTS = {"role": "user", "content": [{"type": "text", "text": text} for text in ("One.", "Two.")]}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "unit": {"enum": ["C", "F"]},
                "at": {"type": ["string", "integer", "null"]},
                "hours": {"type": "array", "items": {"type": "integer"}},
                "more": {"type": "object", "properties": {"wind": {"type": "boolean"}}},
            },
            "required": ["city", "days"],
        },
    },
}
NOW = {
    "type": "function",
    "function": {
        "name": "now",
        "description": "The time",
        "parameters": {"type": "object", "properties": {}},
    },
}
TOOLS = [WEATHER, NOW]
SCHEMA = {
    "type": "object",
    "properties": {"rain": {"type": "boolean"}},
    "required": ["rain"],
    "additionalProperties": False,
}
RESPONSE = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
CALL = {
    "role": "assistant",
    "content": None,
    "reasoning_content": "A tool knows.",
    "tool_calls": [
        {
            "type": "function",
            "id": "call00001",
            "function": {"name": "weather", "arguments": '{"city": "Bern", "hours": [6, 18]}'},
        },
        {"type": "function", "id": "call00002", "function": {"name": "now", "arguments": "{}"}},
    ],
}
RESULTS = [
    {"role": "tool", "tool_call_id": "call00001", "content": '{"rain": true}'},
    {"role": "tool", "tool_call_id": "call00002", "content": "noon"},
]
ANSWER = {"role": "assistant", "content": "It rains."}
THOUGHT = {**ANSWER, "reasoning_content": "Clouds."}
AGAIN = {"role": "user", "content": "And tomorrow?"}


def body(*messages: Any, tools: Any = (), kwargs: Any = None, **more: Any) -> Body:
    """Return the body of a request."""
    found: Body = {"messages": list(messages or (USER,)), "reasoning_format": "auto"}
    if tools:
        found |= {"tools": list(tools), "tool_choice": "auto", "parallel_tool_calls": True}
    if kwargs:
        found["chat_template_kwargs"] = kwargs
    return found | more


def conversations() -> Iterator[Body]:
    yield body()
    yield body(SYSTEM, USER)
    yield body(SYSTEM, USER, ANSWER, AGAIN)
    yield body(USER, THOUGHT, AGAIN)
    yield body(SYSTEM, USER, tools=TOOLS)
    yield body(USER, CALL, *RESULTS, tools=TOOLS)
    yield body(USER, {**CALL, "reasoning_content": ""}, *RESULTS, THOUGHT, AGAIN, tools=TOOLS)
    yield body(PARTS)
    yield body(USER, ANSWER, AGAIN, add_generation_prompt=False)


def ifm() -> Iterator[tuple[Body, str]]:
    for one in conversations():
        yield one, ""
    for form in ("json", "xml_typed"):
        yield body(USER, CALL, *RESULTS, tools=TOOLS, kwargs={"tool_call_format": form}), ""
    for effort, tag in (("high", "think"), ("medium", "think_fast"), ("low", "think_faster")):
        asked = {"reasoning_effort": effort}
        yield body(kwargs=asked), f"Let me see.\n</ifm|{tag}>\nIt rains."
        call = "<ifm|tool_calls>\n<ifm|tool_call>now\n</ifm|tool_call>\n</ifm|tool_calls>"
        yield body(tools=TOOLS, kwargs=asked), f"Now.\n</ifm|{tag}>\n{call}"
        yield body(kwargs=asked), "Let me see.\n</ifm|think>\nIt rains."
        off = {**asked, "enable_thinking": False}
        yield body(kwargs=off), "It rains."
    yield body(reasoning_format="none"), "Let me see.\n</ifm|think>\nIt rains."
    yield from ifm_calls()
    json = '{"rain": true}'
    yield body(response_format=RESPONSE), f"Rain?\n</ifm|think>\n{json}"
    none = body(response_format=RESPONSE, reasoning_format="none")
    yield none, f"Rain?\n</ifm|think>\n{json}"
    for message, what, more in (
        ({**THOUGHT, "content": "It "}, "content", "rains."),
        ({**THOUGHT, "content": ""}, "reasoning_content", " Grey.\n</ifm|think>\nIt rains."),
    ):
        asked = body(USER, message, continue_final_message=what, add_generation_prompt=False)
        yield asked, more


def ifm_call(name: str, *arguments: tuple[str, str], kind: str = "") -> str:
    """Return a call in tags."""
    kind = f"<ifm|arg_type>{kind}</ifm|arg_type>\n" if kind else ""
    inner = "".join(
        f"<ifm|arg_key>{key}</ifm|arg_key>\n{kind}<ifm|arg_value>{value}</ifm|arg_value>\n"
        for key, value in arguments
    )
    return f"<ifm|tool_call>{name}\n{inner}</ifm|tool_call>\n"


def ifm_calls() -> Iterator[tuple[Body, str]]:
    def section(*calls: str, said: str = "", thought: str = "Look.\n</ifm|think>\n") -> str:
        return f"{thought}{said}<ifm|tool_calls>\n{''.join(calls)}</ifm|tool_calls>"

    asked = body(tools=TOOLS)
    city, days = ("city", "Bern <3"), ("days", "3")
    yield asked, "No call.\n</ifm|think>\nIt <ifm|tool rains."
    yield asked, section(ifm_call("weather", city, days))
    yield asked, section(ifm_call("weather", days, city))
    yield asked, section(ifm_call("now"), said="One moment.\n")
    yield asked, section(ifm_call("weather", city, days), ifm_call("now"))
    yield asked, section(ifm_call("weather", city, days, ("unit", "F"), ("hours", "[6, 18]")))
    yield asked, section(ifm_call("weather", city, days, ("more", '{"wind": true}')))
    for value in ("6", "noon", '"6"', "null", "6 pm", "-"):
        yield asked, section(ifm_call("weather", city, days, ("at", value)))
    for more in ({"tool_choice": "required"}, {"reasoning_format": "none"}):
        yield {**asked, **more}, section(ifm_call("weather", city, days))
    both = {**asked, "tool_choice": "required", "reasoning_format": "none"}
    yield both, section(ifm_call("weather", city, days))
    single = {**asked, "parallel_tool_calls": False}
    yield single, section(ifm_call("weather", city, days))
    typed = body(tools=TOOLS, kwargs={"tool_call_format": "xml_typed"})
    for kind in ("", "any"):
        yield typed, section(ifm_call("weather", city, days, kind=kind))
    json = body(tools=TOOLS, kwargs={"tool_call_format": "json"})
    calls = (
        '{"name": "weather", "arguments": {"city": "Bern", "days": 3}}',
        '{"name": "now", "arguments": {}}',
    )
    each = [f"<ifm|tool_call>{call}</ifm|tool_call>\n" for call in calls]
    yield json, section(*each)
    yield {**json, "tool_choice": "required"}, section(each[0])


def llm_jp() -> Iterator[tuple[Body, str]]:
    for one in conversations():
        yield one, ""
    yield body({**SYSTEM, "role": "developer"}, USER), ""
    for gap in (" ", ""):
        yield from llm_jp_responses(gap)


def llm_jp_responses(gap: str) -> Iterator[tuple[Body, str]]:
    """Yield responses with `gap` after control tokens."""
    start, message = f"<|start|>{gap}assistant", f"<|message|>{gap}"
    analysis, comment, final = (
        f"<|channel|>{gap}{name}" for name in ("analysis", "commentary", "final")
    )
    thought = f"{analysis}{message}Clouds?<|end|>{start}"
    said = f"{final}{message}It  rains."
    yield body(), thought + said
    yield body(), said
    yield body(), f"{final}{message}  Two spaces"
    yield body(reasoning_format="none"), thought + said
    asked, json = body(tools=TOOLS), f" <|constrain|>{gap}json"
    now = f" to=functions.now{comment}{json}{message}{{}}"
    weather = f' to=functions.weather{comment}{json}{message}{{"city": "Bern", "days": 3}}'
    yield asked, thought + said
    yield asked, thought + now
    yield asked, thought + weather
    yield asked, f"{thought}{analysis} to=functions.now json{message}{{}}"
    yield asked, f"{thought}{comment} to=functions.now{message}{{}}"
    yield asked, f"{thought}{comment}{message}I ask.<|end|>{start}{now}"
    yield asked, f"{thought}{weather}<|end|>{start}{now}"
    yield {**asked, "parallel_tool_calls": False}, thought + now
    yield {**asked, "tool_choice": "required"}, thought + now
    for kind in (json, ""):
        yield body(response_format=RESPONSE), f'{thought}{final}{kind}{message}{{"rain": true}}'
    begun, more = {**THOUGHT, "content": ""}, {"add_generation_prompt": False}
    rest = f" Grey.<|end|>{start}{said}"
    yield body(USER, begun, continue_final_message="reasoning_content", **more), rest
    begun = {**THOUGHT, "content": "It "}
    yield body(USER, begun, continue_final_message="content", **more), "rains."


def translation() -> Iterator[tuple[Body, str]]:
    codes = {"source_lang_code": "cs", "target_lang_code": "de_DE"}
    for messages in ((USER,), (PARTS,), (SYSTEM, USER), (USER, ANSWER, AGAIN)):
        for kwargs in (codes, {"target_lang_code": "de-DE"}, None):
            yield body(*messages, kwargs=kwargs), ""
    yield body(kwargs=codes), "\nEs regnet. "
    yield body(kwargs=codes, reasoning_format="none"), "<think>Es</think> regnet."
    yield body(tools=TOOLS, kwargs=codes), "Es regnet."
    asked = body(USER, {"role": "assistant", "content": "Es "}, kwargs=codes)
    yield asked | {"continue_final_message": True, "add_generation_prompt": False}, "regnet."


def tool_list() -> Iterator[tuple[Body, str]]:
    for one in conversations():
        yield one, ""

    def calls(*each: str) -> str:
        return f"<|tool_call_start|>[{', '.join(each)}]<|tool_call_end|>"

    weather, thought = 'weather(city="Bern", days=3)', "<think>Clouds?</think>"
    asked = body(tools=TOOLS)
    yield body(), thought + "It rains."
    yield body(reasoning_format="none"), thought + "It rains."
    yield body(), "A [list] rains."
    yield asked, "A [list] rains."
    yield asked, thought + calls(weather)
    yield asked, "I ask." + calls(weather, "now()")
    yield asked, calls("weather(city='Bern', days=3, hours=[6, 18], more={'wind': True})")
    yield asked, calls('weather(city="Bern", days=3, more={"wind": true}, at=None)')
    yield {**asked, "tool_choice": "required"}, calls(weather)
    yield {**asked, "parallel_tool_calls": False}, calls(weather)
    yield body(response_format=RESPONSE), '{"rain": true}'
    message = {**THOUGHT, "content": "It "}
    more = {"continue_final_message": "content", "add_generation_prompt": False}
    yield body(USER, message, **more), "rains."


def braces() -> Iterator[tuple[Body, str]]:
    for one in conversations():
        yield one, ""
        yield one | {"chat_template_kwargs": {"enable_thinking": False}}, ""
    quote = '<|"|>'

    def call(name: str, inner: str) -> str:
        return f"<|tool_call>call:{name}{{{inner}}}<tool_call|>"

    weather = f"city:{quote}Bern{quote},days:3"
    thought, now = "<|channel>thought\nClouds?<channel|>", call("now", "")
    asked = body(tools=TOOLS)
    yield body(), thought + "It rains."
    yield body(), "It rains."
    yield body(reasoning_format="none"), thought + "It rains."
    yield asked, thought + "It rains."
    yield asked, thought + call("weather", weather)
    yield asked, "I ask." + call("weather", weather) + now
    yield asked, call("weather", f"{weather},hours:[6,18],more:{{wind:true}},at:null")
    yield {**asked, "tool_choice": "required"}, thought + now
    yield {**asked, "parallel_tool_calls": False}, thought + now
    message = {**THOUGHT, "content": "It "}
    more = {"continue_final_message": "content", "add_generation_prompt": False}
    yield body(USER, message, **more), "rains."


EACH = {
    "ifm": ifm,
    "llm-jp": llm_jp,
    "translation": translation,
    "tool-list": tool_list,
    "braces": braces,
}


def cases() -> Iterator[Case]:
    """Yield each template's cases."""
    for name, each in EACH.items():
        for asked, text in each():
            yield name, asked, text
