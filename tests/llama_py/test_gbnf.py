"""GBNF takes exactly what llama.cpp's grammars take, and wrong ones are told in a line."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import jsonschema
import pytest

from ggml_py.errors import GrammarError
from llama_py.grammar import compile_grammar
from llama_py.grammar.automata import automaton, meeting
from llama_py.grammar.gbnf import parse
from llama_py.grammar.lark import convert_gbnf
from llama_py.grammar.lexemes import cut
from llama_py.grammar.shape import Regular, RuleSizes
from llama_py.grammar.vocabulary import matcher
from tests.support.grammars import characters, meets, random_grammar, record, takes

RECORD = record()


@pytest.mark.parametrize("case", RECORD["cases"], ids=[case[1] for case in RECORD["cases"]])
def test_what_llama_cpp_takes(case: list[Any]) -> None:
    """Of a schema it takes less than what is valid: up to 16 digits, and no uniqueItems."""
    kind, _, text, yes, no = case
    if kind == "json_schema":
        text = text.replace('"uniqueItems": true', '"title": ""')
    judge = takes(kind, text)
    assert [answer for answer in yes if not judge(answer)] == []
    for answer in filter(judge, no):
        assert kind == "json_schema"
        jsonschema.validate(json.loads(answer), json.loads(text))


@pytest.mark.parametrize("seed", range(120))
def test_random_grammars_take_what_they_say(seed: int) -> None:
    """Texts of few letters, beside a judge that tries everything."""
    rng = Random(seed)
    text = random_grammar(rng)
    try:
        judge = takes("grammar", text)
    except GrammarError as e:
        assert "never ends" in str(e)
        return
    plain = meets(text)
    for _ in range(12):
        answer = "".join(rng.choice("abcé") for _ in range(rng.randint(0, 6)))
        assert judge(answer) == plain(answer), f"{text}\n{answer!r}"


@pytest.mark.parametrize("name", RECORD["files"])
def test_llama_cpps_files(name: str) -> None:
    """Every answer that the masks lead to is one that the grammar takes."""
    text, rng, tokenizer = RECORD["files"][name], Random(1), characters()
    now, answer = matcher(compile_grammar("grammar", text), tokenizer), b""
    whole = b""
    while len(answer) < 40 and not now.is_stopped():
        bits = int.from_bytes(now.compute_bitmask(), "little")
        may = [id for id in range(256) if bits >> id & 1 and len(tokenizer.pieces[id]) == 1]
        id = rng.choice([i for i in may if tokenizer.pieces[i] < b"\x7f"] or may)
        answer += tokenizer.pieces[id]
        assert now.consume_token(id)
        whole = answer if now.is_accepting() else whole
    assert answer and (not whole or meets(text)(whole.decode()))


def lexemes(text: str) -> list[str]:
    return cut(parse(text)).texts


def test_lexemes_are_as_long_as_they_may_be() -> None:
    assert lexemes('root ::= "a" [b-c]* (d | "e")\nd ::= "d"') == ["a(?:[b-c])*(?:d|e)"]
    text = 'root ::= "x" root "y" | [a-c]+'
    assert lexemes(text) == ["x", "y", "(?:[a-c])+"]
    # "aa" may be one [a]+ or two
    assert lexemes('root ::= [a]+ root "b" | "c"') == ["a", "b", "c"]


def test_the_longest_match_alone_would_be_wrong() -> None:
    """Without being cut, `ab` hides `a` before `b`."""
    text = 'root ::= x "b" | "ab" root "c"\nx ::= "a" x | "a"'
    rules = parse(text)
    assert "ab" in RuleSizes(Regular(rules), ()).texts and "ab" not in cut(rules).texts
    judge = takes("grammar", text)
    assert judge("ab") and judge("aab") and judge("ababc") and not judge("abc")


def test_looking_where_lexemes_meet_has_an_end() -> None:
    """Of 270 parts in a row that may be empty each may be followed by all behind it."""
    rules = parse(f"root ::= {'ws ' * 270}\nws ::= [ \\t]*")
    row = automaton(rules["root"], rules)
    assert 1000 <= meeting(row, row, 1000).n_steps <= 1000 + 270**2
    word = automaton(parse("root ::= [a-z]+")["root"], {})
    assert meeting(word, word, 1000).n_steps == 1


def test_what_is_too_large_for_a_lexeme_is_cut_to_characters() -> None:
    words = " | ".join(f'"{n:04d}x"' for n in range(300))
    judge = takes("grammar", f"root ::= ({words}) root?")
    assert judge("0123x0007x") and not judge("0300x") and not judge("0123")
    deep = "\n".join(f'r{n} ::= "{n}" r{n + 1}' for n in range(500))
    assert takes("grammar", f'root ::= r0\n{deep}\nr500 ::= "."')(
        "".join(map(str, range(500))) + "."
    )


def test_tokens_are_named_by_text_or_number() -> None:
    lark = convert_gbnf('root ::= <a> !<[7]> "<[@0]>"')
    assert [(token.which, token.but) for token in lark.tokens] == [("<a>", False), (7, True)]
    assert lark.text.startswith("start: <[@0]> <[^@1]> T") and lark.text.count("@") == 2
    tokenizer = characters()
    think = tokenizer.n_vocab - 1
    now = matcher(compile_grammar("grammar", f"root ::= <think> !<[{think}]> [b]"), tokenizer)
    b = tokenizer.pieces.index(b"b")
    assert now.validate_tokens([think, b, b]) == 3 and now.validate_tokens([b]) == 0
    assert now.validate_tokens([think, think]) == 1
    with pytest.raises(GrammarError, match=r"token 258 must be in the vocabulary, 0\.\.257"):
        matcher(compile_grammar("grammar", "root ::= <[258]>"), tokenizer)
    with pytest.raises(GrammarError, match="<a> is 3 tokens of this vocabulary, not one"):
        matcher(compile_grammar("grammar", "root ::= <a>"), tokenizer)


@pytest.mark.parametrize("item", ['"a"', "[a-c]", "x"])
def test_a_large_upper_bound_is_kept(item: str) -> None:
    """llama.cpp repeats without an end where more than 2000 times are allowed."""
    judge = takes("grammar", f'root ::= {item}{{1,2003}}\nx ::= "(" x ")" | "a"')
    assert judge("a" * 2003) and not judge("a" * 2004) and not judge("")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1, column 1: rule `root` is missing"),
        ('a ::= "b"', "rule `root` is missing; add `root ::= ...`"),
        ('root = "a"', "line 1, column 6: expected ::=, at '= \"a\"'"),
        ('root ::= "a"\nroot ::= foo', "line 2, column 10: unknown rule `foo`, at 'foo'"),
        ('root ::= "a', r"line 1, column 12: unclosed"),
        ("root ::= [a", r"column 12: unclosed"),
        ("root ::= []", r"empty character class; add characters between \[ and \]"),
        (r'root ::= "\q"', r"column 11: unknown escape; known: \\n"),
        (r'root ::= "\x4"', "unknown escape"),
        (r'root ::= "\UFFFFFFFF"', "character code must be"),
        ("root ::= [z-a]", "column 13: range end is less than its start"),
        ("root ::= *", "column 10: nothing to repeat before this operator"),
        ('root ::= "a"{3', "column 15: expected }, at the end of the line"),
        ('root ::= "a"{2,1}', "from 2 to 1: the end is less than the start"),
        ('root ::= "a"{2001}', "repetitions must be at most 2000, got at least 2001"),
        ('root ::= "a"{9999999999}', "number is too large"),
        ('root ::= ("a" | "b"', r"column 20: expected \), at the end of the line"),
        ('root ::= "a" )', "column 14: expected a string"),
        ("root ::= root", "rule `root` never ends"),
        ('root ::= "a" x\nx ::= "b" x', "line 1, column 14: rule `root` never ends"),
        ("root ::= <[x]>", r"token number must be written as `<\[1000\]>`"),
        ("root ::= <a", "unclosed token"),
        (f"root ::= {'(' * 101}", "column 110: parentheses must be nested at most 100 levels"),
        ("x" * (1 << 20), "grammar must have at most 262144 characters, got 1048576"),
    ],
)
def test_what_is_no_grammar(text: str, said: str) -> None:
    with pytest.raises(GrammarError, match=said) as caught:
        compile_grammar("grammar", text)
    assert "\n" not in str(caught.value)
