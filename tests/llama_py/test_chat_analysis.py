"""What a template shows of its models' answers is what llama.cpp finds in it."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from llama_py.chat import ChatTemplate
from llama_py.chat.formats.analysis import find_marks
from llama_py.chat.formats.analysis.diff import Diff, diff, segments
from llama_py.chat.formats.known import find_form_builder
from llama_py.chat.formats.marks import Marks
from llama_py.chat.peg.lark import write_lark
from llama_py.chat.tools import ChatAnswer, ChatFormat, ToolCall, build_format
from tests.support.grammars import takes

FOLDER = Path(__file__).parents[1] / "data" / "chat"
RECORDED, TEMPLATES = (
    json.loads(lzma.decompress((FOLDER / f"{name}.json.xz").read_bytes()))
    for name in ("formats", "templates")
)
CALLS = ("none", "json", "name", "tags")
BETWEEN = 2  # the place of an id behind the name
OWN = "openbmb-MiniCPM5-1B"  # brackets begin its calls, which llama.cpp reads by hand, as we do
RESPONSES = "ibm-granite-granite-3.3-2B-Instruct"  # marks that llama.cpp knows, but does not use


def recorded(found: dict[str, Any]) -> dict[str, Any]:
    """In the words of Marks, those that are used."""

    def both(what: str, *names: str) -> tuple[str, ...]:
        return tuple(found[f"{what}.{name}"] for name in names)

    calls = CALLS[found["format.mode"]]
    wanted = {
        "think": found["reasoning.start"],
        "thought": found["reasoning.end"],
        "say": found["content.start"],
        "said": found["content.end"],
        "calls": calls,
        "section": both("format", "section_start", "section_end"),
        "each_call": both("format", "per_call_start", "per_call_end"),
        "name": both("function", "name_prefix", "name_suffix"),
        "gap": found["function.args_separator"],
        "close": found["function.close"],
        "key": both("arguments", "name_prefix", "name_suffix"),
        "value": both("arguments", "value_prefix", "value_suffix"),
        "wrapper": found["format.openai_wrapper_trigger"],
        "stops": tuple(found["stops"]),
        "shown": {*found["preserved_tokens"]},
    }
    if found["call_id.pos"] == BETWEEN:
        wanted["id"] = both("call_id", "prefix", "suffix")
    if calls == "json":
        wanted["keys"] = (
            *both("format", "name_field", "args_field", "id_field", "gen_id_field"),
            tuple(found["format.parameter_order"]),
            found["format.tools_array_wrapped"],
            found["format.fun_name_is_key"],
        )
    return wanted


def seen(marks: Marks, names: dict[str, Any]) -> dict[str, Any]:
    k = marks.keys
    keys = (k.name, k.arguments, k.id, k.made_id, k.order, k.array, k.by_name)
    special = {"keys": keys, "shown": {*marks.shown_marks}}
    return {name: special[name] if name in special else getattr(marks, name) for name in names}


@pytest.mark.parametrize("found", RECORDED["analysis"], ids=lambda f: Path(f["template"]).stem)
def test_marks_are_those_that_llama_cpp_finds(found: dict[str, Any]) -> None:
    name = Path(found["template"]).stem
    wanted = recorded(found)
    if name == OWN:
        assert find_form_builder(TEMPLATES["templates"][name]["source"]) is not None
        return
    if name == RESPONSES:
        wanted |= {"say": "", "said": ""}
    assert seen(find_marks(TEMPLATES["templates"][name]["source"]), wanted) == wanted


def test_segments_are_marks_and_what_is_between() -> None:
    assert [tuple(one) for one in segments("a<b>[c] d <e [f]")] == [
        ("a", False),
        ("<b>", True),
        ("[c]", True),
        (" d ", False),
        ("<e [f]", False),
    ]


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [
        ("", "x", ("", "", "x", "")),
        ("x", "", ("", "x", "", "")),
        ("ab", "ab", ("ab", "", "", "")),
        ("<a>one<b>", "<a>two<b>", ("<a>", "one", "two", "<b>")),
        ("call00001", "call00002", ("call0000", "1", "2", "")),
        ("<x1>", "<x2>", ("", "<x1>", "<x2>", "")),
        ("a<b>\n", "a<b>\n<c>\n", ("a<b>\n", "", "<c>\n", "")),
    ],
)
def test_what_differs(a: str, b: str, found: tuple[str, str, str, str]) -> None:
    assert diff(a, b) == Diff(*found)


HEAD = """{% for tool in tools %}{{ tool.function.name }} {% endfor %}
{%- for m in messages %}((({{ m.role }}))
{% if m.reasoning_content %}<muse>{{ m.reasoning_content }}</muse>
{% endif %}{{ m.content }}"""
TAIL = """
{% endfor %}{% if add_generation_prompt %}(((assistant)))
{% endif %}"""
UNKNOWN = {
    "json": (
        "{% for c in m.tool_calls %}<do>{{ c.function | tojson }}</do>{% endfor %}",
        '<do>{"name": "weather", "arguments": {"city": "Bern", "days": 3}}</do>',
    ),
    "name": (
        "{% for c in m.tool_calls %}<do fun={{ c.function.name }}>{{ c.function.arguments | tojson"
        " }}</do>{% endfor %}",
        '<do fun=weather>{"city": "Bern", "days": 3}</do>',
    ),
    "tags": (
        "{% for c in m.tool_calls %}<do><fun={{ c.function.name }}>{% for k, v in"
        " c.function.arguments.items() %}<arg={{ k }}>{{ v }}</arg>{% endfor %}</fun></do>"
        "{% endfor %}",
        "<do><fun=weather><arg=city>Bern</arg><arg=days>3</arg></fun></do>",
    ),
}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "required": ["city", "days"],
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "maximum": 9}},
        },
    },
}
ASKED = [{"role": "user", "content": "How will it be?"}]


def format_in(kind: str, **options: Any) -> ChatFormat:
    source = HEAD + UNKNOWN[kind][0] + TAIL
    assert find_form_builder(source) is None
    return build_format(ChatTemplate(source), ASKED, tools=[TOOL], **options)


@pytest.mark.parametrize("kind", UNKNOWN)
def test_templates_that_nobody_has_seen(kind: str) -> None:
    text = f"<muse>Snow?</muse>\nWait.{UNKNOWN[kind][1]}"
    wanted = ("Wait.", "Snow?", "weather", {"city": "Bern", "days": 3})
    for pieces in ([text], list(text)):
        parser = format_in(kind).parser(ids=lambda: "1")
        for piece in pieces:
            parser.feed(piece)
        found = parser.finish()
        [call] = found.tool_calls
        told = (found.content, found.reasoning, call.name, json.loads(call.arguments))
        assert told == wanted


@pytest.mark.parametrize("kind", UNKNOWN)
def test_their_calls_are_held_to_schemas(kind: str) -> None:
    form = format_in(kind, tool_choice="required")
    assert not form.lazy and format_in(kind).lazy
    judge = takes("lark", write_lark(form.form.root, form.form.prompt, False))
    call = UNKNOWN[kind][1]
    assert judge(call) and not judge(f"Well. {call}")
    assert not judge(call.replace("3", "12")) and not judge(call.replace("weather", "other"))
    assert not judge("No.")


def test_a_template_that_takes_no_calls_is_told_of_tools() -> None:
    """Though it has the word."""
    source = "{% for m in messages %}{% if m.role != 'tool' %}{{ m.role }}: {{ m.content }}" + (
        "\n{% endif %}{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
    )
    form = build_format(ChatTemplate(source), ASKED, tools=[TOOL])
    assert "<tool_call>" in form.prompt
    answer = form.parse(
        '<tool_call>\n{"name": "weather", "arguments": {"city": "B", "days": 1}}\n</tool_call>',
        ids=lambda: "1",
    )
    arguments = '{"city": "B", "days": 1}'
    assert answer == ChatAnswer("", "", (ToolCall("weather", arguments, "1"),))


UNSTEADY = "{{ strftime_now('%H:%M:%S.%f') }} {{ range(9999) | random }}\n"


@pytest.mark.parametrize("name", ["Qwen-Qwen3-0.6B", "ibm-granite-granite-3.3-2B-Instruct"])
def test_time_and_chance_are_no_marks(name: str) -> None:
    source = TEMPLATES["templates"][name]["source"]
    unsteady = UNSTEADY + source
    template = ChatTemplate(unsteady)
    assert find_marks(unsteady) == find_marks(source)
    assert template.thinking == ChatTemplate(source).thinking
    texts = {template.render([{"role": "user", "content": "x"}]) for _ in range(3)}
    assert len(texts) > 1  # for an answer they are what they say
