"""Objects of a constrained JSON answer have each key once."""

from __future__ import annotations

import json
from functools import cache
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from llama_py.grammar import compile_grammar
from llama_py.grammar.unique import JSONEnd, UniqueKeys
from llama_py.grammar.vocabulary import matcher
from llama_py.sampler.grammar import ByGrammar
from llama_py.tokenizer import Tokenizer
from tests.support.grammars import takes
from tests.support.text_vocab import spm

Schema = dict[str, Any]
ONE = {"enum": [1]}
USED = {"😀", "\n/", "né"}
FREE = {"type": "object", "additionalProperties": ONE}
# Tokens that begin, complete or repeat keys, within and across the parts of an answer.
TEXTS = (
    "al",
    "alp",
    "alpha",
    "ps",
    'a"',
    '"a',
    '"a"',
    'a":',
    'a": ',
    '":1',
    '":1,',
    '":1,"',
    ',"',
    ', "a',
    '1,"a"',
    '1,"a":',
    "1,",
    ",\n",
    '","',
    '":1,"a":1',
    '{"a":1,"a":1}',
    '{"a":1,"b',
    "\\u00",
    "00",
    "0a",
    "\\n",
    '\\"',
    "\\",
    '\\u000a":1',
    "é",
    "😀",
    'é"',
    '{"',
    "{",
    "[",
    "}]",
    '"}',
)


def of_keys(pattern: str, value: Any = ONE, **more: Any) -> Schema:
    """Return the schema of objects whose keys meet a pattern."""
    return {
        "type": "object",
        "patternProperties": {pattern: value},
        "additionalProperties": False,
        **more,
    }


@cache
def tokenizer() -> Tokenizer:
    """Return a tokenizer with every byte and some longer tokens."""
    return spm({text.replace(" ", "▁"): 0.0 for text in TEXTS})


def start(schema: Any, given: Tokenizer | None = None) -> Any:
    return matcher(compile_grammar("json_schema", json.dumps(schema)), given or tokenizer())


def in_mask(now: Any) -> list[int]:
    """Return the tokens of a mask that do not end the answer."""
    bits, ends = int.from_bytes(now.compute_bitmask(), "little"), tokenizer().eog
    return [id for id in range(len(tokenizer().pieces)) if bits >> id & 1 and id not in ends]


def ids_of(*texts: str) -> list[int]:
    pieces = tokenizer().pieces
    return [pieces.index(text.encode()) for text in texts]


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (FREE | {"minProperties": 2}, '{"a": 1, "b": 1}', '{"a": 1, "a": 1}'),
        (of_keys("^[a-z]$", minProperties=2), '{"a":1,"b":1}', '{"a":1,"a":1}'),
        ({"type": "array", "items": FREE}, '[{"a":1},{"a":1}]', '[{"a":1},{"a":1,"a":1}]'),
        (of_keys("^[ab]$", FREE), '{"a":{"a":1},"b":{"a":1}}', '{"a":{"b":1},"a":{}}'),
        (FREE, r'{"\n":1,"n":1}', r'{"\n":1,"\u000a":1}'),
        (FREE, r'{"\\":1,"\"":1,"\\\"":1}', r'{"\\":1,"\"":1,"\"":1}'),
        (FREE, '{"é":1,"e":1,"":1}', '{"é":1,"é":1}'),
        (FREE | {"properties": {"\n": ONE}}, r'{"\n":1,"a":1}', r'{"\n":1,"\u000A":1}'),
        (
            FREE | {"x-guidance": {"json_allow_general_unicode_escapes": True}},
            r'{"\ud83d\ude00":1,"\ud83d\ude01":1,"\u0061b":1}',
            '{"😀":1,"\\uD83D\\ude00":1}',
        ),
        ({}, '{"a":["a","a",{"a":"a,\\"a\\":{"}],"b":{"a":{}}}', '{"a":[{"a":"{"}],"a":1}'),
        (
            {"type": "object", "properties": {"x": {}}, "additionalProperties": False},
            '{"x":{"x":1}}',
            '{"x":{"x":1,"x":1}}',
        ),
        ({"type": "array"}, '[{"a":1,"b":1}]', '[{"a":1,"a":1}]'),
        (
            {"anyOf": [of_keys("^a$"), FREE | {"required": ["b"]}]},
            '{"b":1,"a":1}',
            '{"b":1,"a":1,"a":1}',
        ),
    ],
)
def test_no_key_comes_twice(schema: Schema, good: str, bad: str) -> None:
    judge = takes("json_schema", json.dumps(schema))
    assert judge(good) and not judge(bad)


@pytest.mark.parametrize(
    ("pattern", "begun", "last"),
    [
        ("^[ab]$", '{"a":1,"b":1', "}"),
        ("^(al|alpha)$", '{"alpha":1,"al":1', "}"),
        ("^(al|alpha)$", '{"al":1,"al', "p"),
        ("^(al|alpha)$", '{"alpha":1,"al', '"'),
        ('^[\n"]$', r'{"\n":1,"', "\\"),
        ('^[\n"]$', r'{"\n":1,"' + "\\", '"'),
        ("^[é😀]$", '{"é":1,"', "\xf0"),
        ("^[éè]$", '{"é":1,"\xc3', "\xa8"),
    ],
)
def test_no_token_leads_to_repeated_keys_only(pattern: str, begun: str, last: str) -> None:
    """The only byte that may come next; `begun` and `last` are characters and bytes of UTF-8."""
    now, pieces = start(of_keys(pattern)), tokenizer().pieces
    for c in begun:
        text = c.encode("latin-1") if c == "\xc3" else c.encode()
        assert now.try_consume_tokens([pieces.index(bytes([b])) for b in text])
    allowed = {pieces[id] for id in in_mask(now)}
    assert {text[:1] for text in allowed} - {b" ", b"\n"} == {last.encode("latin-1")}


WALKS: tuple[Schema, ...] = (
    FREE, of_keys("^[abc]$", minProperties=2), of_keys("^(al|alpha|alps|a)$"),
    of_keys("^[\\n\"é😀]{1,2}$", minProperties=3), {"type": "array", "items": of_keys("^[ab]$")},
    of_keys("^[ab]$", of_keys("^(a|al)$", {"enum": [1, "a", ','  ]})),
    {"anyOf": [of_keys("^[ab]$"), of_keys("^[bc]$", {"enum": ["a"]}, required=["b"])]},
    {"type": "object", "properties": {"a": ONE, "c": ONE}, "additionalProperties": ONE},
)  # fmt: skip


@pytest.mark.parametrize("schema", WALKS)
def test_walks_end_with_valid_answers(schema: Schema) -> None:
    """And masks have the tokens of the grammar's mask that are allowed one by one."""
    pieces, n_ended = tokenizer().pieces, 0
    likely = {id for id, piece in enumerate(pieces) if piece in {t.encode() for t in TEXTS}}
    likely |= set(ids_of(*'ab":,1}'))
    for seed in range(12):
        rng, now, text = Random(seed), start(schema), b""
        for _ in range(40):
            allowed = in_mask(now)
            assert allowed == [id for id in in_mask(now._matcher) if now.validate_tokens([id])]
            if now.is_accepting() and (not allowed or rng.random() < 0.5):
                value = json.loads(text, object_pairs_hook=unique)
                assert not [*Draft202012Validator(schema).iter_errors(value)]
                n_ended += 1
                break
            assert allowed, text
            chosen = rng.choice([id for id in allowed if id in likely] or allowed)
            assert now.consume_token(chosen)
            text += pieces[chosen]
    assert n_ended


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs), pairs
    return dict(pairs)


def test_long_tokens_and_copies() -> None:
    now = start(FREE)
    assert now.try_consume_tokens(ids_of('{"', 'a":1'[:1], '":1,"', 'a":', "1")) == 3
    other = now.deep_copy()
    assert other.try_consume_tokens(ids_of("al", '":1,"', "al", 'a"')) == 4
    assert now.validate_tokens(ids_of("al", '":1,"', "al", '":1')) == 3
    assert not other.consume_token(ids_of("a")[0]) or other.is_error()
    assert now.validate_tokens(ids_of("al", '":1')) == 2
    assert not now.consume_token(ids_of('a"')[0]) and now.is_error() and not now.is_accepting()


def test_constraints_verify_several_tokens_and_start_again() -> None:
    constraint = ByGrammar(compile_grammar("json_schema", json.dumps(FREE)), tokenizer())
    constraint.begin_response(ids_of("{", '"a"'))
    for _ in range(2):
        assert constraint.n_allowed(ids_of(":", "1", ',"', 'a"')) == 3
        for id in ids_of(":", "1", ",", '"', "al", '":1'):
            constraint.accept(id)
        copy = constraint.copy()
        assert copy.n_allowed(ids_of('","')) == 0 and copy.n_allowed(ids_of(',"', 'a"')) == 1
        assert copy.n_allowed(ids_of("}")) == 1 and not constraint.complete
        constraint.reset()


@pytest.mark.parametrize(
    ("schema", "is_free"),
    [
        (
            {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": ONE}}}},
            False,
        ),
        ({"type": "array", "items": {"$ref": "#/$defs/x"}, "$defs": {"x": {"const": {}}}}, False),
        ({"anyOf": [{"properties": {"a": ONE}, "type": "object"}, {"type": "string"}]}, False),
        ({"type": ["string", "null"]}, False),
        ({"type": "array", "items": False}, False),
        ({}, True),
        (FREE, True),
        (of_keys("a"), True),
        ({"type": "array"}, True),
        ({"type": "array", "items": True}, True),
        ({"type": "array", "prefixItems": [ONE]}, True),
        ({"anyOf": [True, ONE]}, True),
        ({"type": "object", "required": ["a"]}, True),
        ({"type": "object", "properties": {"a": {"description": "any"}}}, True),
    ],
)
def test_only_free_keys_are_watched(schema: Schema, is_free: bool) -> None:
    assert isinstance(start(schema), UniqueKeys) == is_free


def test_places_in_texts_of_several_tokens() -> None:
    text, place = b'{"a":["x\\"",{"b\\\\":{}}],"c":1,"', JSONEnd()
    for i in range(len(text)):
        whole, place = JSONEnd().advance(text[: i + 1]), place.advance(text[i : i + 1]) or JSONEnd()
        assert place == whole
    assert place.open == (frozenset("ac"),) and sorted(place.rests()) == [b"a", b"c"]


@pytest.mark.parametrize(
    ("raw", "rests", "within"),
    [
        ("", USED, False),
        ("\\", USED, True),
        ("\\u00", USED, True),
        ("\\n", {"/"}, False),
        ("\\u000A", {"/"}, False),
        ("\\ud83d", USED, True),
        ("\\ud83D\\uDe0", USED, True),
        ("\\ud83d\\ude00", {""}, False),
        ("\\\\", set(), False),
        ("n", {"é"}, False),
        ("n\\u00e9", {""}, False),
        ("N", set(), False),
    ],
)
def test_keys_that_an_incomplete_key_may_repeat(raw: str, rests: set[str], within: bool) -> None:
    place = JSONEnd((frozenset(USED),), "key", raw.encode())
    assert {rest.decode() for rest in place.rests()} == rests and place.ends_within == within
