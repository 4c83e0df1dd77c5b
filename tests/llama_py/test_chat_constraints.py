"""What a client demands of an answer holds in every format, whatever a model would write."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llama_py.chat import ChatTemplate
from llama_py.chat.named import named
from llama_py.chat.tools import ChatFormat, format_of
from llama_py.grammar import compiled
from llama_py.sampler import Constraint
from llama_py.sampler.after_thoughts import AfterThoughts
from llama_py.sampler.candidates import Candidates
from llama_py.sampler.grammar import ByGrammar
from llama_py.tokenizer import Tokenizer
from tests.text_vocab import demo_with

FILE = Path(__file__).parents[1] / "data" / "chat" / "templates.json.xz"
SOURCES: dict[str, str] = {
    name: one["source"]
    for name, one in json.loads(lzma.decompress(FILE.read_bytes()))["templates"].items()
} | {f"named-{name}": source for name, source in named().items()}
ASK = [{"role": "user", "content": "What is three and four?"}]
BEGUN = [*ASK, {"role": "assistant", "content": "The answer is "}]
MODES: dict[str, dict[str, Any]] = {
    "on": {"messages": ASK, "enable_thinking": True},
    "off": {"messages": ASK, "enable_thinking": False},
    "prefill": {"messages": BEGUN, "continue_final_message": True},
    "prefill, off": {
        "messages": BEGUN, "continue_final_message": True, "enable_thinking": False,
    },
}  # fmt: skip
CONSTRAINTS = {"grammar": 'root ::= "7"', "regex": "7", "lark": 'start: "7"'}
MOST = 24  # tokens of an answer


@cache
def template(name: str) -> ChatTemplate:
    return ChatTemplate(SOURCES[name], "<s>", "</s>")


def format_in(name: str, messages: Any, **options: Any) -> ChatFormat:
    return format_of(template(name), messages, **options)


def constraint_of(form: ChatFormat, kind: str, tokenizer: Tokenizer) -> Constraint:
    if kind == "schema":
        found = form.constraint(tokenizer)
        assert found is not None
        return found
    inner = ByGrammar(compiled(kind, CONSTRAINTS[kind]), tokenizer)
    return inner if form.thinking is None else AfterThoughts(inner, tokenizer, form.thinking)


def written(constraint: Constraint, tokenizer: Tokenizer) -> tuple[str, bool]:
    """What a model writes that wants to write markers, and whether it has ended."""
    draw, text = np.random.default_rng(1), b""
    wanted = [
        id for id, piece in enumerate(tokenizer.pieces)
        if piece[:1] in (b"<", b"[", b"|", b"]", b"`", b"t") and id not in tokenizer.eog
    ]  # fmt: skip
    for _ in range(MOST):
        logits = draw.normal(size=tokenizer.n_vocab).astype(np.float32)
        logits[wanted] += 60
        left = constraint.apply(Candidates(np.arange(tokenizer.n_vocab), logits))
        id = int(left.ids[np.argmax(left.logits)])
        assert constraint.allows(id)
        if id in tokenizer.eog:
            return text.decode(), constraint.complete
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
