"""Answers by grammar: what is drawn is what the grammar takes, and ends where it may."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llama_py
from ggml_py.errors import AnswerError, GrammarError
from llama_py.grammar import compile_grammar
from llama_py.grammar.vocabulary import vocabulary
from llama_py.params import SamplingParams
from llama_py.params.choosers import Thinking
from llama_py.sampler import Sampler
from llama_py.sampler.after_thoughts import AfterThoughts
from llama_py.sampler.constraint import ConstraintEnded
from llama_py.sampler.grammar import ByGrammar
from llama_py.tokenizer import Tokenizer, TokenType, load_tokenizer
from tests.speculative.scripted import context, greedy, plain, scripted
from tests.support.commands import DEMO
from tests.support.grammars import characters, takes
from tests.support.text_vocab import bpe_meta, demo_with, spm

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
N = 258


@pytest.fixture(scope="module")
def model() -> Iterator[llama_py.Model]:
    with llama_py.Model(DEMO, "ref", load_mtp=True) as model:
        yield model


@cache
def tokenizer() -> Tokenizer:
    return load_tokenizer(DEMO)


def made(given: Tokenizer | None = None, n_vocab: int | None = None, **params: Any) -> Sampler:
    given = given or tokenizer()
    options = {"seed": 1, "temp": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, **params}
    return Sampler(SamplingParams(**options), n_vocab or given.n_vocab, given)


def answer(sampler: Sampler, n: int = 200, seed: int = 0) -> list[int]:
    """Tokens from random logits, up to an end."""
    rng, found = np.random.default_rng(seed), list[int]()
    sampler.begin()
    while len(found) < n and not (found and tokenizer().is_eog(found[-1])):
        found.append(sampler.sample(rng.normal(0, 3, sampler.n_vocab).astype(np.float32)))
        sampler.accept(found[-1])
    return found


@pytest.mark.parametrize("temp", [0.0, 1.0, 5.0])
def test_answers_meet_a_schema(temp: float) -> None:
    sampler = made(
        json_schema={
            **PERSON,
            "properties": {
                **PERSON["properties"],
                "age": {"type": "integer", "minimum": -5, "maximum": 120},
            },
        },
        temp=temp,
    )
    for seed in range(5):
        ids = answer(sampler, seed=seed)
        assert tokenizer().is_eog(ids[-1])
        found = json.loads(tokenizer().detokenize(ids))
        assert found.keys() == {"name", "age"} and len(found["name"]) <= 5
        assert -5 <= found["age"] <= 120


def test_masks_are_what_the_tokens_are_asked_one_by_one() -> None:
    """And refused tokens change no random number of those that come later."""
    sampler = made(regex="(ab|the |[0-9]{2})+x?")
    constraint = sampler.constraint
    assert constraint is not None
    for id in tokenizer().tokenize("the 12", False, False):
        constraint.accept(id)
    logits = np.random.default_rng(0).normal(0, 3, sampler.n_vocab).astype(np.float32)
    c = sampler.candidates(logits)
    left = constraint.apply(c)
    one_by_one = [constraint.allows(int(id)) for id in c.ids]
    assert (left.logits > -np.inf).tolist() == one_by_one and 0 < sum(one_by_one) < 200
    np.testing.assert_array_equal(left.logits[one_by_one], c.logits[one_by_one])


def test_logits_beyond_the_tokens_are_never_drawn() -> None:
    sampler = made(n_vocab=tokenizer().n_vocab + 70, regex="[a-z]{3}")
    assert sampler.constraint is not None and not sampler.constraint.allows(tokenizer().n_vocab + 1)
    ids = answer(sampler)
    assert len(tokenizer().detokenize(ids)) == 3


def test_the_same_draws_where_the_grammar_refuses_nothing() -> None:
    free, held = made(), made(regex=r"(?s:.)*", ignore_eos=True)
    logits = np.random.default_rng(0).normal(0, 3, free.n_vocab).astype(np.float32)
    logits[[i for i, p in enumerate(tokenizer().pieces) if max(p) > 127]] = -np.inf
    logits[list(tokenizer().eog)] = -np.inf
    for _ in range(10):
        ids = [sampler.sample(logits) for sampler in (free, held)]
        assert ids[0] == ids[1]
        free.accept(ids[0])
        held.accept(ids[0])


def test_another_answer_and_a_clone_begin_anew() -> None:
    sampler = made(regex="abc")
    first = answer(sampler)
    assert answer(sampler) == first  # it begins again
    clone = sampler.clone()
    sampler.begin()
    assert sampler.n_allowed(first) == len(first) and clone.n_allowed(first) == 0
    assert made().n_allowed([1, 2, 3]) == 3


def test_the_trie_is_made_once() -> None:
    assert vocabulary(tokenizer()) is vocabulary(tokenizer())
    sampler, other = made(regex="a"), made(lark='start: "b"')
    assert sampler.constraint is not other.constraint


def test_without_an_end_token_the_answer_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Tokenizer.from_metadata(bpe_meta())
    monkeypatch.setattr(endless, "eog", frozenset())
    sampler = made(endless, regex="ab")
    for text in (b"a", b"b"):
        id = sampler.sample(np.zeros(256, np.float32))
        assert endless.pieces[id] == text
        sampler.accept(id)
    with pytest.raises(ConstraintEnded) as caught:
        sampler.sample(np.zeros(256, np.float32))
    assert caught.value.complete


def test_a_vocabulary_that_cannot_go_on(model: llama_py.Model) -> None:
    few = Tokenizer.from_metadata(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.merges": [],
            "tokenizer.ggml.tokens": ["a", "b", "<end>"],
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.token_type": [1, 1, TokenType.CONTROL],
        }
    )
    with pytest.raises(GrammarError, match="regex: no token of the vocabulary can start"):
        made(few, regex="x")
    sampler = made(few, regex="abx|b")
    logits = np.array([5, 0, 0], np.float32)
    for id in (0, 1):
        assert sampler.sample(logits) == id
        sampler.accept(id)
    with pytest.raises(ConstraintEnded) as caught:
        sampler.sample(logits)
    assert not caught.value.complete


def test_an_answer_that_cannot_go_on_ends(
    model: llama_py.Model, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(complete: bool) -> list[llama_py.Piece]:
        sampler = made(regex="[a-z]{2}", ignore_eos=True)
        monkeypatch.setattr(type(sampler.constraint), "complete", complete)
        return [*llama_py.stream(model.context(64), "Ay", sampler=sampler)]

    with caplog.at_level(logging.WARNING, "llama_py"):
        assert ended(True)[-1].finish_reason == "stop" and not caplog.records
        pieces = ended(False)
    assert len("".join(piece.text for piece in pieces)) == 2
    assert pieces[-1].token is None and pieces[-1].finish_reason == "grammar"
    assert [r.getMessage() for r in caplog.records] == [
        "the grammar allows no token here, so the response is incomplete"
    ]


def test_text_and_chat(model: llama_py.Model) -> None:
    assert model.generate("Now", regex="(yes|no)!", temp=0) in ("yes!", "no!")
    assert json.loads(model.chat("Who?", json_schema=PERSON, max_tokens=60, seed=3))["name"] != 1
    assert model.chat("Who?", grammar='root ::= "I" " am"? "."', temp=0) in ("I.", "I am.")
    pieces = [*model.stream("Now", json_schema={"type": "string", "minLength": 99}, max_tokens=9)]
    assert pieces[-1].finish_reason == "length"  # it was cut


@pytest.mark.parametrize("schema_is_text", [False, True])
def test_answers_are_checked_where_no_grammar_enforces_them(
    model: llama_py.Model, schema_is_text: bool
) -> None:
    given: Any = {"const": "as it is", "not": {"maxLength": 8}}
    how = {"json_schema": json.dumps(given) if schema_is_text else given, "max_tokens": 60}
    for answer in (model.generate, model.chat):
        with pytest.raises(AnswerError, match="should not be valid under") as e:
            answer("Now", **how)
        assert json.loads(e.value.answer) == "as it is"
    for stream in (model.stream, model.stream_chat):
        pieces = [*stream("Now", **how)]
        assert "not be valid" in pieces[-1].error and not any(p.error for p in pieces[:-1])
    answers = [
        llama_py.stream(model.context(256), "Now", max_tokens=60, sampler=made(json_schema=given)),
        llama_py.Conversation(model.context(256)).ask("Now", **how),
        llama_py.Conversation(model.context(256)).ask("Now", sampler=made(json_schema=given)),
    ]
    assert all("not be valid" in [*pieces][-1].error for pieces in answers)
    assert model.generate("Now", json_schema={"const": 7, "not": {"const": 8}}) == "7"
    with pytest.raises(AnswerError, match="not JSON"):  # it was cut
        model.generate("Now", **{**how, "max_tokens": 1})


def test_texts_with_drafts_are_the_same(model: llama_py.Model) -> None:
    prompt = "and the king and the queen and the"
    how: dict[str, Any] = {"regex": "( and the [a-z]{3,6}){5}", "temp": 0}
    alone = model.generate(prompt, **how)
    drafted = model.generate(prompt, spec_type="draft-mtp,ngram-simple", **how)
    assert drafted == alone and len(alone) >= 50


def test_drafts_end_where_the_grammar_refuses_them() -> None:
    prompt, answer = plain("llama-dense", 30)
    asked: list[list[int]] = []

    def allowed(ids: list[int]) -> int:
        asked.append(list(ids))
        return 3

    with scripted(context("llama-dense"), lambda _: answer[1:9]) as speculator:
        speculator.extend(0, prompt)
        speculator.advance()
        assert speculator.take(0, greedy)[0] == answer[0]
        speculator.limit(0, 20, allowed)
        speculator.advance()
        taken = []
        while speculator.has_rows(0):
            taken.append(speculator.take(0, greedy)[0])
        assert asked == [answer[1:9]] and taken == answer[1:5]
        assert speculator.statistics["ngram-simple"].drafted_at == [1, 1, 1]
        speculator.finish(0)


THINKING = Thinking("<think>", ("</think>",))
X = b"x"


def thinker(inside: bool, thinking: Thinking = THINKING) -> tuple[Sampler, Any]:
    given = characters()
    sampler = made(given, regex="<?[0-9]{2}")
    sampler.begin(thinking._replace(inside=inside))
    return sampler, sampler.constraint


def told(sampler: Sampler, text: str) -> None:
    for b in text.encode():
        id = characters().pieces.index(bytes([b]))
        constraint = sampler.constraint
        assert constraint is not None and constraint.allows(id), (text, chr(b))
        assert np.isfinite(constraint.apply(sampler.candidates(np.zeros(N, np.float32))).logits[id])
        constraint.accept(id)


def may(sampler: Sampler) -> str:
    constraint = sampler.constraint
    assert constraint is not None
    left = constraint.apply(sampler.candidates(np.zeros(N, np.float32))).logits
    pieces = characters().pieces
    found = [id for id in range(N) if left[id] > -np.inf]
    assert found == [id for id in range(N) if constraint.allows(id)]
    return "".join(chr(pieces[id][0]) if len(pieces[id]) == 1 else "$" for id in found)


def test_thoughts_are_free_and_do_not_end_the_answer() -> None:
    sampler, constraint = thinker(inside=True)
    told(sampler, "Hm, 1 < 2 </thin")
    assert len(may(sampler)) == 256 + 1  # <think> is a token, but not <end>
    assert not constraint.complete
    told(sampler, "k>")
    assert sorted(may(sampler)) == sorted("\t\n\x0b\x0c\r 0123456789<")
    told(sampler, "\n\n42")
    assert constraint.complete and may(sampler) == "$"
    sampler.begin()
    assert sorted(may(sampler)) == sorted("0123456789<")


def test_an_answer_may_begin_with_thoughts() -> None:
    sampler, _ = thinker(inside=False)
    assert sorted(may(sampler)) == sorted("0123456789<$")  # the tag is a token
    told(sampler, "42")
    assert may(sampler) == "$"
    sampler, constraint = thinker(inside=False)
    think = characters().pieces.index(b"<think>")
    assert constraint.allows(think)
    clone = sampler.clone()
    constraint.accept(think)
    told(sampler, "Hm</think>7")
    assert sorted(may(sampler)) == sorted("0123456789")
    told(clone, "12")
    assert clone.n_allowed([]) == 0


def test_drafts_with_thoughts_are_followed() -> None:
    sampler, constraint = thinker(inside=True)
    ids = [characters().pieces.index(bytes([b])) for b in b"a</think>42x"]
    assert sampler.n_allowed(ids) == len(ids) - 1
    assert constraint.thinking  # nothing has happened


def test_markers_that_letters_spell_are_no_markers() -> None:
    marked = Thinking("<A>", ("</A>",), "<say>", spaces=False)
    for inside, thoughts in ((False, ""), (True, "Hm</A>")):
        sampler, _ = thinker(inside, marked)
        told(sampler, thoughts)
        assert sorted(may(sampler)) == sorted("0123456789<")
    sampler, _ = thinker(False, THINKING._replace(may_begin=False))
    assert sorted(may(sampler)) == sorted("0123456789<")  # not <think>, though it is a token


def test_an_answer_that_is_marked_begins_with_its_mark() -> None:
    tokenizer = demo_with("<A>", "</A>", "<B>", "<say>")
    marked = Thinking("<A>", ("</A>",), "<say>", after="<B><say>")
    for text, good in (
        ("<say>7", True),
        ("<A>So.</A><B><say>7", True),
        ("7", False),
        ("<A>So.</A>7", False),
        ("<A>So.</A><say>7", False),
        ("<A>So.</A><B>7", False),
        ("<say><A>", False),
    ):
        constraint = AfterThoughts(
            ByGrammar(compile_grammar("regex", "7"), tokenizer), tokenizer, marked
        )
        ids = tokenizer.tokenize(text, False)
        assert (constraint.n_allowed(ids) == len(ids)) == good, text


def test_thoughts_have_a_bound() -> None:
    sampler, constraint = thinker(True, THINKING._replace(most=3))
    told(sampler, "Hm ")
    for c in "</think>":
        assert may(sampler) == c
        told(sampler, c)
    told(sampler, "42")
    assert constraint.complete


def test_another_end_of_thoughts_is_no_part_of_them() -> None:
    sampler, _ = thinker(True, THINKING._replace(ends=("</think>", "<call>")))
    told(sampler, "Hm <cal")
    told(sampler, "l")
    assert ">" not in may(sampler)


def test_chat_with_thoughts(tmp_path: Path) -> None:
    from tests.support.commands import demo_with_template

    template = (
        "{% for m in messages %}{{ m.role }}:"
        "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
        "{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:<think>{% endif %}"
    )
    with llama_py.Model(demo_with_template(tmp_path, template), "ref") as thinking:
        talk = llama_py.Conversation(thinking.context(256), budget=5)
        for _ in range(2):
            pieces = [*talk.ask("Speak!", max_tokens=40, sampler=made(regex="(yes|no)!"))]
            assert "".join(piece.text for piece in pieces) in ("yes!", "no!")
            assert "".join(piece.reasoning for piece in pieces)
        for fails in (False, True):
            schema = {"const": "yes", "not": {"const": "yes" if fails else "no"}}
            pieces = [*talk.ask("Speak!", json_schema=schema, max_tokens=40)]
            assert talk.messages[-1]["content"] == '"yes"' and bool(pieces[-1].error) == fails


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"regex": "a(b"}, r"regular expression, column 2: unclosed group, at '\(b'"),
        ({"regex": "x\\"}, "column 2: incomplete escape"),
        ({"regex": "a\ud800"}, r"column 2: invalid character .*, at '\\ud800'"),
        ({"lark": "start: /[\x1b[2J/"}, r"unclosed character class in \[\\x1b\[2J"),
        ({"regex": "(?=x)"}, "look-around, .* is not supported"),
        ({"lark": "start: foo"}, 'Lark grammar, line 1, column 8: unknown name: "foo"'),
        ({"grammar": "%llguidance {}\nstart: foo"}, "Lark grammar, line 2, column 8"),
        ({"json_schema": "{"}, "JSON schema, line 1, column 2: expecting property name"),
        ({"json_schema": '{"a": NaN}'}, "JSON schema: NaN is not a JSON number"),
        ({"json_schema": "[]"}, r'must be an object, such as \{"type": "string"\}'),
        ({"json_schema": False}, "must be an object"),
        ({"json_schema": {"a": {1}}}, "json_schema is not JSON"),
        ({"json_schema": {"title": "\ud800"}}, "half a surrogate pair"),
        (
            {"json_schema": {"type": "object", "properties": {"a": {"type": "strin"}}}},
            r"JSON schema: Invalid type: strin \(at /properties/a\)",
        ),
        ({"json_schema": {"$ref": "#/x"}}, "Pointer '/x' does not exist"),
        ({"json_schema": {"$ref": "http://x/y"}}, "does not fetch resources"),
        ({"json_schema": {"type": "integer", "minimum": 3, "maximum": 1}}, "greater than maximum"),
        ({"json_schema": "[" * 99999}, "brackets must be nested at most 100 levels"),
        (
            {"json_schema": '{"items":' * 120 + "{}" + "}" * 120},
            "brackets must be nested at most 100",
        ),
        ({"regex": "a", "lark": "b"}, "regex and lark cannot be combined"),
        ({"regex": "(" * 9999}, "regular expression"),
        ({"lark": f"start: {'(' * 9999}"}, "too deeply nested"),
    ],
)
def test_what_is_wrong_is_told_at_once(params: dict[str, Any], said: str) -> None:
    with pytest.raises(GrammarError, match=said) as caught:
        SamplingParams(**params)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("pattern", "text", "good"),
    [
        (r"^\s$", "\u00a0", True),
        (r"^\s$", "\ufeff", True),
        (r"^\s$", "\u0085", False),
        (r"^\S$", "\u0085", True),
        (r"^\S$", "\ufeff", False),
        (r"^[^\s]$", "\u0085", True),
        (r"^[\S]$", "\u0085", True),
        (r"^[\d\s]+$", "1\ufeff", True),
        (r"^\\s$", "\\s", True),
        (r"^.$", "\u0085", True),
        (r"^.$", "\u2028", False),
        (r"^[.]$", "x", False),
        (r"^[[.]$", "[", True),
        (r"^[\].]$", "]", True),
    ],
)
def test_patterns_are_those_of_ecma_262(pattern: str, text: str, good: bool) -> None:
    said = json.dumps(text, ensure_ascii=False)
    judge = takes("json_schema", json.dumps({"type": "string", "pattern": pattern}))
    assert judge(said) == good
    keys = {"type": "object", "patternProperties": {pattern: True}, "additionalProperties": False}
    assert takes("json_schema", json.dumps(keys))(f"{{{said}: 1}}") == good


def test_files(tmp_path: Path) -> None:
    gbnf, lark, schema = (tmp_path / name for name in ("a.gbnf", "a.lark", "a.json"))
    gbnf.write_text('root ::= "é"', "utf-8")
    lark.write_text('start: "b"', "utf-8")
    schema.write_text('{"const": 7}')
    for options, text in (
        ({"grammar_file": gbnf}, "é"),
        ({"grammar_file": str(lark)}, "b"),
        ({"json_schema_file": schema}, "7"),
    ):
        assert tokenizer().detokenize(answer(made(**options))) == text
    gbnf.write_bytes(b"root ::= \xff")
    with pytest.raises(GrammarError, match="byte 9 is not UTF-8"):
        SamplingParams(grammar_file=gbnf)
    with pytest.raises(FileNotFoundError):
        SamplingParams(json_schema_file=tmp_path / "none")


@pytest.mark.parametrize("text", ["aaaaa", "a b", " a", "ab\u00e9\x03"])
def test_no_space_comes_before_what_a_grammar_wants(text: str) -> None:
    """Nor where the tokenizer puts one before every text: it would be none of the answer."""
    pieces = {"\u2581a": -1.0, "\u2581b": -2.0, "\u2581": -3.0, "a": -4.0, "b": -5.0, "aa": -6.0}
    given = spm(pieces)
    sampler = made(given, grammar=f"root ::= {json.dumps(text)}", temp=0.0)
    logits = np.zeros(given.n_vocab, np.float32)
    sampler.begin()
    found = list[int]()
    while not (found and given.is_eog(found[-1])):
        found.append(sampler.sample(logits.copy()))
        sampler.accept(found[-1])
    assert b"".join(map(given.token_bytes, found[:-1])).decode() == text
