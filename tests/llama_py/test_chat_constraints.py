"""What a client demands of an answer holds in every format, whatever a model would write."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from llama_py.chat import ChatTemplate
from llama_py.chat.formats.bare import bare
from llama_py.chat.named import named_templates
from llama_py.chat.peg.lark import write_lark
from llama_py.chat.peg.nodes import seq
from llama_py.chat.tools import ChatFormat, build_format
from llama_py.grammar import compile_grammar
from llama_py.sampler import Constraint
from llama_py.sampler.after_thoughts import AfterThoughts
from llama_py.sampler.candidates import Candidates
from llama_py.sampler.grammar import ByGrammar
from llama_py.tokenizer import Tokenizer
from tests.support.grammars import takes
from tests.support.text_vocab import demo_with

FILE = Path(__file__).parents[1] / "data" / "chat" / "templates.json.xz"
SOURCES: dict[str, str] = {
    name: one["source"]
    for name, one in json.loads(lzma.decompress(FILE.read_bytes()))["templates"].items()
} | {f"named-{name}": source for name, source in named_templates().items()}
ASK = [{"role": "user", "content": "What is three and four?"}]
BEGUN = [*ASK, {"role": "assistant", "content": "The answer is "}]
MODES: dict[str, dict[str, Any]] = {
    "on": {"messages": ASK, "enable_thinking": True},
    "off": {"messages": ASK, "enable_thinking": False},
    "prefill": {"messages": BEGUN, "continue_final_message": True},
    "prefill, off": {"messages": BEGUN, "continue_final_message": True, "enable_thinking": False},
}
CONSTRAINTS = {"grammar": 'root ::= "7"', "regex": "7", "lark": 'start: "7"'}
MOST = 16  # tokens of an answer

pytestmark = pytest.mark.usefixtures("checks_in_this_process")


@cache
def template(name: str) -> ChatTemplate:
    return ChatTemplate(SOURCES[name], "<s>", "</s>")


def format_in(name: str, messages: Any, **options: Any) -> ChatFormat:
    return build_format(template(name), messages, **options)


def constraint_of(form: ChatFormat, kind: str, tokenizer: Tokenizer) -> Constraint:
    if kind == "schema":
        found = form.constraint(tokenizer)
        assert found is not None
        return found
    inner = ByGrammar(compile_grammar(kind, CONSTRAINTS[kind]), tokenizer)
    return inner if form.thinking is None else AfterThoughts(inner, tokenizer, form.thinking)


def written(
    constraint: Constraint,
    tokenizer: Tokenizer,
    markers: float = 60,
    most: int = MOST,
    seed: int = 1,
) -> tuple[str, bool]:
    """What a model writes that wants to write markers, and whether it has ended."""
    draw, text = np.random.default_rng(seed), b""
    wanted = [
        id
        for id, piece in enumerate(tokenizer.pieces)
        if piece[:1] in (b"<", b"[", b"|", b"]", b"`", b"t") and id not in tokenizer.eog
    ]
    for _ in range(most):
        logits = draw.normal(size=tokenizer.n_vocab).astype(np.float32)
        logits[wanted] += markers
        logits[sorted(tokenizer.eog)] += 12
        left = constraint.apply(Candidates(np.arange(tokenizer.n_vocab), logits))
        id = int(left.ids[np.argmax(left.logits)])
        assert constraint.allows(id)
        if id in tokenizer.eog:
            return text.decode(errors="replace"), constraint.complete
        constraint.accept(id)
        text += tokenizer.pieces[id]
    return text.decode(errors="replace"), False


@pytest.mark.parametrize("name", SOURCES)
def test_constraints_hold_in_every_format(name: str) -> None:
    for mode, options in MODES.items():
        for kind in (*CONSTRAINTS, "schema"):
            schema = {"const": 7} if kind == "schema" else None
            form = format_in(name, **options, json_schema=schema)
            for marks in ((), form.preserved_tokens):  # markers without tokens, and with them
                tokenizer = demo_with(*marks)
                text, ended = written(constraint_of(form, kind, tokenizer), tokenizer)
                parser = form.parser()
                deltas = [*parser.feed(text), *parser.rest()]
                said = "".join(delta.content for delta in deltas)
                may_think = form.thinking is not None and (
                    form.thinking.inside or (marks and mode == "on")
                )
                assert said == "7" or (may_think and not said and not ended), (mode, kind, text)
                assert ended or may_think, (mode, kind, text)
                assert may_think or not any(delta.reasoning for delta in deltas)


PARAMETERS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "how": {"enum": ["list", "load"]},
        "what": {"type": "string", "pattern": "^[a-z]{2}$"},
    },
    "required": ["how", "what"],
}
TOOL = {"type": "function", "function": {"name": "act", "parameters": PARAMETERS}}
FORCED = {"type": "function", "function": {"name": "act"}}


@pytest.mark.parametrize("name", SOURCES)
def test_a_named_tool_is_called_once(name: str) -> None:
    """Nothing but reasoning of a bounded length precedes the call."""
    for thinking in (True, False):
        form = format_in(name, ASK, tools=[TOOL], tool_choice=FORCED, enable_thinking=thinking)
        tokenizer = demo_with(*form.preserved_tokens)
        constraint = form.constraint(tokenizer, 40)
        assert constraint is not None and not constraint.complete
        text, ended = written(constraint, tokenizer, markers=0, most=500)
        answer = form.parse(text)
        assert ended and not answer.content.strip(), text
        assert [call.name for call in answer.tool_calls] == ["act"], text
        jsonschema.validate(json.loads(answer.tool_calls[0].arguments), PARAMETERS)


@pytest.mark.parametrize("name", SOURCES)
def test_json_or_a_call(name: str) -> None:
    """With a schema and tools an answer is JSON of it, or a call; neither is left out."""
    schema = {"type": "object", "properties": {"a": {"const": 7}}, "required": ["a"]}
    form = format_in(name, ASK, tools=[TOOL], json_schema=schema, enable_thinking=False)
    for seed in range(2):
        tokenizer = demo_with(*form.preserved_tokens)
        constraint = form.constraint(tokenizer)
        assert constraint is not None
        text, ended = written(constraint, tokenizer, markers=20 * (seed % 2), most=150, seed=seed)
        if not ended:
            continue
        answer = form.parse(text)
        if not answer.tool_calls:
            assert json.loads(answer.content) == {"a": 7}, text
        else:
            assert not answer.content.strip(), text


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"enum": ["a b", "c/d"]}, ["a b", "c/d"], ["a", "x", ""]),
        ({"const": "a"}, ["a"], ["b"]),
        ({"enum": ["a", None, 3]}, ["a", "null", "3"], ["b"]),
        ({"type": ["string", "null"], "enum": ["a", None]}, ["a", "null"], ["b"]),
        ({"type": ["string", "integer"], "maxLength": 2}, ["ab", "1234"], ["abc"]),
        ({"anyOf": [{"const": "a"}, {"type": "string", "pattern": "^x"}]}, ["a", "xyz"], ["ab"]),
        ({"oneOf": [{"const": "a"}, {"type": "boolean"}]}, ["a", "true"], ["b"]),
        ({"allOf": [{"pattern": "a"}, {"maxLength": 2}]}, ["ab", "ba"], ["b", "aab"]),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"const": "a"}}}, ["a"], ["b"]),
        ({"type": "string", "pattern": "a/[/b]+"}, ["xa//x", "a/b"], ["a/"]),
        ({"type": "string", "pattern": "^(a|b)$|^c"}, ["a", "cd"], ["ab", "dc"]),
        ({"type": "string", "pattern": r"^\d\w$"}, ["1a"], ["\u0663a", "1\u00e9"]),
        ({"type": "string", "pattern": "^(?=a)a$"}, ["a", "anything"], []),
        ({"type": "string", "minLength": 2}, ["ab", "a</"], ["a", ""]),
        ({"type": "string", "format": "date"}, ["2024-02-29"], ["2024-13-01", "today"]),
        ({"type": "string", "format": "unknown"}, ["anything"], []),
        ({"type": "string"}, ["", "a\n<b>"], ["a</p>b"]),
        ({"type": "object"}, ["{}"], []),
    ],
)
def test_bare_arguments_are_those_of_a_schema(
    schema: dict[str, Any], good: list[str], bad: list[str]
) -> None:
    judge = takes("lark", write_lark(seq(bare(schema, "</p>"), "</p>"), "", False))
    for text in good:
        assert judge(f"{text}</p>"), text
    for text in bad:
        assert not judge(f"{text}</p>"), text
