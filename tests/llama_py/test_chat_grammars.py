"""What a model may write with tools: every answer of llama.cpp's test-chat, and nothing else."""

from __future__ import annotations

import json
import lzma
import random
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import llama_py
from ggml_py.errors import GrammarError
from llama_py.chat import ChatTemplate
from llama_py.chat.tools import ChatAnswer, ChatFormat, ToolCall, build_format
from llama_py.params import SamplingParams
from llama_py.sampler import Constraint, Sampler
from llama_py.sampler.constraint import ConstraintEnded
from llama_py.sampler.triggers import Scan, TriggeredConstraint, Triggers
from llama_py.tokenizer import Tokenizer
from tests.support.text_vocab import demo_with

FOLDER = Path(__file__).parents[1] / "data" / "chat"
RECORDED, TEMPLATES, NEWEST = (
    json.loads(lzma.decompress((FOLDER / f"{name}.json.xz").read_bytes()))
    for name in ("formats", "templates", "newest")
)
SOURCES = {name: one["source"] for name, one in TEMPLATES["templates"].items()}
SOURCES |= NEWEST["templates"]
CHOICES = ("auto", "required", "none")
TOKENIZER = llama_py.load_tokenizer(
    Path(llama_py.__file__).parent / "data" / "demo.gguf"
)  # its tokens are texts: there are no marks among them


def with_grammar() -> list[Any]:
    """Of each template the first answers with calls of tools, or JSON, of each kind."""
    found: dict[tuple[str, int, bool, bool], list[dict[str, Any]]] = {}
    for case in RECORDED["cases"]:
        if case["has_grammar"] and not case["partial"] and not case["continuation"]:
            calls = case["parsed"]["tool_calls"]
            if calls or not case["lazy"]:
                key = (case["template"], case["tool_choice"], len(calls) > 1, case["lazy"])
                found.setdefault(key, []).append(case)
    return [
        pytest.param(case, id=f"{Path(case['template']).stem}-{case['tool_choice']}-{i}")
        for i, (case, *_) in enumerate(found.values())
    ]


@cache
def template(name: str) -> ChatTemplate:
    return ChatTemplate(SOURCES[name])


def format_for(case: dict[str, Any]) -> ChatFormat:
    return build_format(
        template(Path(case["template"]).stem),
        case["messages"],
        tools=[{"type": "function", "function": tool} for tool in case["tools"]],
        tool_choice=CHOICES[case["tool_choice"]],
        parallel_tool_calls=case["parallel"],
        json_schema=json.loads(case["json_schema"]) if case["json_schema"] else None,
        reasoning_format=case["reasoning_format"],
        enable_thinking=case["enable_thinking"],
    )


def constraint_of(form: ChatFormat, tokenizer: Tokenizer = TOKENIZER) -> Constraint:
    found = form.constraint(tokenizer)
    assert found is not None
    return found


def taken(constraint: Constraint, text: str, tokenizer: Tokenizer = TOKENIZER) -> str:
    """As much of a text as a constraint lets a model write."""
    ids = tokenizer.tokenize(text, False, tokenizer is not TOKENIZER)
    n = constraint.n_allowed(ids)
    for id in ids[:n]:
        constraint.accept(id)
    return b"".join(tokenizer.pieces[id] for id in ids[:n]).decode(errors="replace")


# Of llama.cpp's answers: prose before a required call, and what surrounds JSON, are not written.
UNWRITTEN = re.compile(
    r"Let me inspect the current directory\.\n|```json\n(?=[{\"])|\n```$| <\|constrain\|>json"
)


@pytest.mark.parametrize("case", with_grammar())
def test_answers_are_allowed(case: dict[str, Any]) -> None:
    form = format_for(case)
    tokenizer = demo_with(*form.preserved_tokens, "<|return|>", "<|call|>")
    constraint = constraint_of(form, tokenizer)
    text = case["input"] if form.lazy else UNWRITTEN.sub("", case["input"])
    assert taken(constraint, text, tokenizer) == text
    if isinstance(constraint, TriggeredConstraint):
        assert constraint.holds == bool(case["parsed"]["tool_calls"])
    assert constraint.complete


PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "unit": {"enum": ["C", "F"]},
    },
    "required": ["days"],
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "now"}},
]
ASKED = [{"role": "user", "content": "How is the weather?"}]
HERMES, LINES, BRACES = "Qwen-Qwen3-0.6B", "Qwen3.5-4B", "google-gemma-4-31B-it"


def asked(name: str, **options: Any) -> ChatFormat:
    return build_format(template(name), ASKED, **{"tools": TOOLS, **options})


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("3", True),
        ("<think>\nSo.\n</think>\n\n3", True),
        ("\n\n3", False),
        (" 3", False),
        ("3\n", False),
        ("```json\n3\n```", False),
        ("```json\n\n3\n```", False),
    ],
)
def test_only_json_is_written(text: str, good: bool) -> None:
    """Spaces may end a turn, or go on for ever. They and a fence are read all the same."""
    form = asked(HERMES, tools=None, json_schema={"type": "integer"})
    tokenizer = demo_with("<think>", "</think>")
    constraint = constraint_of(form, tokenizer)
    assert (taken(constraint, text, tokenizer) == text and constraint.complete) == good
    assert form.parse(text).content == "3"


@pytest.mark.parametrize(
    ("text", "good"),
    [
        (call("weather", '{"days": 3}'), True),
        (call("weather", '{"days": 3, "unit": "C"}'), True),
        (call("now", "{}"), True),
        ("No.", True),
        ("", True),
        (call("weather", '{"days": 12}'), False),
        (call("weather", "{}"), False),
        (call("weather", '{"days": 3, "unit": "K"}'), False),
        (call("never", "{}"), False),
        (call("weather", '{"days": 3, "more": 1}'), False),
        (call("now", "{}") + " And so on", False),
    ],
)
def test_a_call_must_be_right(text: str, good: bool) -> None:
    constraint = constraint_of(asked(HERMES))
    assert (taken(constraint, text) == text and constraint.complete) == good


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("{days:3}", True),
        ('{days:3,unit:<|"|>C<|"|>}', True),
        ("{}", False),
        ("{days:12}", False),
        ('{days:3,unit:<|"|>K<|"|>}', False),
        ("{days:3,more:1}", False),
        ('{days:<|"|>3<|"|>}', False),
    ],
)
def test_arguments_in_braces_must_be_right(text: str, good: bool) -> None:
    constraint, text = constraint_of(asked(BRACES)), f"<|tool_call>call:weather{text}<tool_call|>"
    assert (taken(constraint, text) == text and constraint.complete) == good


def test_a_call_may_have_to_be_there() -> None:
    for options, good in (
        ({"tool_choice": "required"}, call("now", "{}")),
        ({"tool_choice": {"function": {"name": "weather"}}}, call("weather", '{"days": 1}')),
    ):
        constraint = constraint_of(asked(HERMES, **options))
        assert not constraint.complete
        assert taken(constraint, good) == good and constraint.complete
    constraint.reset()
    assert taken(constraint, call("now", "{}")) != call("now", "{}")  # another one was asked for
    assert asked(HERMES, tool_choice="none").constraint(TOKENIZER) is None
    assert asked(HERMES, tools=None).constraint(TOKENIZER) is None


def test_several_calls_only_if_they_may_be() -> None:
    text = call("now", "{}") + "\n" + call("weather", '{"days": 2}')
    for may in (True, False):
        constraint = constraint_of(asked(HERMES, parallel_tool_calls=may))
        assert (taken(constraint, text) == text) == may


def test_thoughts_are_free() -> None:
    """A tag in thoughts is no trigger, and a call may follow them at once."""
    thought = f"<think>\nMaybe {call('never', '{}')}?\n</think>\n\n"
    constraint = constraint_of(asked(HERMES))
    assert taken(constraint, thought) == thought and constraint.complete
    good = call("now", "{}")
    assert taken(constraint, good) == good and constraint.complete


def test_a_prompt_may_begin_thoughts() -> None:
    form = asked(LINES, enable_thinking=True)
    assert form.generation_prompt.endswith("<think>\n")
    constraint = constraint_of(form)
    text = "Hm.\n</think>\n\n<tool_call>\n<function=now>\n</function>\n</tool_call>"
    assert taken(constraint, text) == text and constraint.complete
    assert [c.name for c in form.parse(text).tool_calls] == ["now"]


def test_json_may_be_asked_for() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    for name, text in ((HERMES, '{"n": 3}'), (LINES, 'So.\n</think>\n\n{"n": 3}')):
        form = asked(name, tools=None, json_schema=schema)
        constraint = constraint_of(form)
        assert not form.lazy and taken(constraint, text) == text and constraint.complete
        assert json.loads(form.parse(text).content) == {"n": 3}
        constraint.reset()
        wrong = text.replace("3", '"3"')
        assert taken(constraint, wrong) != wrong
    with pytest.raises(GrammarError):
        asked(HERMES, tools=None, json_schema={"type": "wrong"}).constraint(TOKENIZER)


@pytest.mark.parametrize(
    ("begun", "rest", "good"),
    [
        ('{"n": ', "3}", True),
        ('{"n": ', '{"n": 3}', False),
        ("So: ", '{"n": 3}', True),
        ("So: ", "3}", False),
    ],
)
def test_json_may_have_begun(begun: str, rest: str, good: bool) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    template = ChatTemplate(TEMPLATES["templates"][HERMES]["source"])
    messages = [*ASKED, {"role": "assistant", "content": begun}]
    form = build_format(template, messages, json_schema=schema, continue_final_message=True)
    constraint = constraint_of(form)
    constraint.reset()
    assert (taken(constraint, rest) == rest and constraint.complete) == good
    assert not good or form.parse(rest).content == begun + rest


def test_a_state_can_be_copied() -> None:
    constraint = constraint_of(asked(HERMES))
    taken(constraint, "Well <tool_")
    other = constraint.copy()
    taken(constraint, "call>\n{")
    assert isinstance(constraint, TriggeredConstraint) and isinstance(other, TriggeredConstraint)
    assert constraint.holds and not other.holds and other.complete
    assert taken(other, "box>!") == "box>!"


def test_scans_find_triggers_wherever_a_text_is_cut() -> None:
    triggers = Triggers(("<call>",), (), "<think>", ("</think>",), "<think>")
    text = b"<call> no </think> < <cal <think> <call> </think> and <call>{"
    draw = random.Random(1)
    for _ in range(200):
        scan, at = Scan(triggers), 0
        while at < len(text):
            n = draw.randrange(1, 9)
            scan.add_text(text[at : at + n])
            at += n
        assert scan.found == len(b"<think>") + text.rindex(b"<call>")


NUMBERS = {
    "type": "object",
    "required": ["days", "wet"],
    "properties": {"days": PARAMETERS["properties"]["days"], "wet": {"type": "boolean"}},
}
NUMBERED = [{"type": "function", "function": {"name": "weather", "parameters": NUMBERS}}]


@pytest.mark.parametrize(
    "channel", [" to=functions.now<|channel|>commentary", "<|channel|>commentary to=functions.now"]
)
@pytest.mark.parametrize("name", ["openai-gpt-oss-120b", "llm-jp"])
def test_reasoning_may_begin_like_a_required_call(name: str, channel: str) -> None:
    form = asked(name, tool_choice="required")
    tokenizer = demo_with(*form.preserved_tokens, "<|return|>", "<|call|>")
    thought = "<|channel|>analysis<|message|>It is late.<|end|><|start|>assistant"
    for text in (thought, ""):
        constraint, call = constraint_of(form, tokenizer), f"{channel}<|message|>{{}}"
        assert taken(constraint, text + call, tokenizer) == text + call
        assert constraint.complete
    constraint = constraint_of(form, tokenizer)
    begun = "<|channel|>analysis"
    assert taken(constraint, f"{begun}<|end|>", tokenizer) == begun
    assert not constraint.complete
    other = constraint.copy()
    for rest in ("<|message|>Hm.", " to=functions.now<|message|>{}"):
        assert taken(other.copy(), rest, tokenizer) == rest


FORCED = {  # templates, and how a call begins: before that a model may say anything
    "Qwen-Qwen3-0.6B": "<tool_call>\n",
    "meta-llama-Llama-3.1-8B-Instruct": "{",
    "Qwen3.5-4B": "<tool_call>\n",
    "Qwen3-Coder": "<tool_call>\n",
    "openai-gpt-oss-120b": "<|channel|>commentary to=functions",
    "GLM-4.6": "\n<tool_call>",
    "mistralai-Mistral-Nemo-Instruct-2407": "[TOOL_CALLS]",
    "MiniMax-M2": "\n</think>\n\n<minimax:tool_call>\n",
    "deepseek-ai-DeepSeek-V3.1": "<｜tool▁calls▁begin｜>",
    "Kimi-K2-Instruct": "<|tool_call_begin|>",
    "MiniMax-M3": "]<]minimax[>[<tool_call>",
    "Apertus-8B-Instruct": "<|tools_prefix|>",
    "ifm": "<ifm|tool_calls>",
    "llm-jp": "<|channel|> commentary to=functions",
}


@pytest.mark.parametrize("name", FORCED)
def test_noise_becomes_a_call(name: str) -> None:
    """A model that knows nothing calls a tool as it is to be called."""
    form = asked(
        name,
        tools=NUMBERED,
        tool_choice="required",
        parallel_tool_calls=False,
        enable_thinking=False,
    )
    draw = np.random.default_rng(5)
    for seed in range(3):
        constraint, begun = constraint_of(form), FORCED[name]
        assert taken(constraint, begun) == begun
        text = begun + written(constraint, seed, draw)
        calls = form.parse(text).tool_calls
        assert [c.name for c in calls] == ["weather"], text[:500]
        jsonschema.validate(json.loads(calls[0].arguments), NUMBERS)


def written(constraint: Constraint, seed: int, draw: np.random.Generator) -> str:
    """What is sampled from noise."""
    params = SamplingParams(seed=seed, top_k=0, min_p=0.0, top_p=1.0)
    sampler = Sampler(params, TOKENIZER.n_vocab, TOKENIZER, constraint)
    ends, text = sorted(TOKENIZER.eog), b""
    while len(text) < 2000:
        logits = draw.normal(size=TOKENIZER.n_vocab).astype(np.float32)
        logits[ends] += 12
        try:
            id = sampler.sample(logits)
        except ConstraintEnded as e:
            assert e.complete
            break
        sampler.accept(id)
        if TOKENIZER.is_eog(id):
            break
        text += TOKENIZER.pieces[id]
    return text.decode(errors="replace")


def test_answers_are_tuples_of_calls() -> None:
    text = call("weather", '{"days": 1}')
    assert asked(HERMES).parse(text, ids=lambda: "x") == ChatAnswer(
        tool_calls=(ToolCall("weather", '{"days": 1}', "x"),)
    )
