"""Grammars and what they take: llama.cpp's own, and random ones with a plain judge of texts.

To write the data anew, from llama.cpp's sources:

    python -m tests.support.grammars llama.cpp
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from llama_py.grammar import compile_grammar
from llama_py.grammar.gbnf import parse
from llama_py.grammar.nodes import Alt, Chars, Node, Ref, Repeat, Seq
from llama_py.grammar.vocabulary import matcher
from llama_py.tokenizer import Tokenizer, TokenType
from tests.support.text_vocab import bpe_meta

RECORD = Path(__file__).parents[1] / "data" / "grammars.json"
RAW = r'R"""\((?P<raw>.*?)\)"""'
TEXT, SIGN = r'(?P<text>"(?:[^"\\]|\\.)*")', "(?P<sign>[{}(),])"
TOKEN = re.compile(rf"{RAW}|{TEXT}|//[^\n]*|{SIGN}|\s+", re.DOTALL)


def record() -> Any:
    """{"files": name -> GBNF, "cases": [[kind, name, text, takes, refuses], ...]}"""
    return json.loads(RECORD.read_text("utf-8"))


@cache
def characters() -> Tokenizer:
    """Every byte is a token; then <end> and <think>."""
    special = dict.fromkeys(("<end>", "<think>"), TokenType.CONTROL)
    return Tokenizer.from_metadata(bpe_meta(special=special, eos_token_id=256))


def takes(kind: str, text: str) -> Callable[[str], bool]:
    """Whether an answer may be a text, character by character, and end after it."""
    tokenizer = characters()
    first = matcher(compile_grammar(kind, text), tokenizer)
    ids = {piece: id for id, piece in enumerate(tokenizer.pieces) if len(piece) == 1}

    def judge(answer: str) -> bool:
        now = first.deep_copy()
        tokens = [ids[bytes([b])] for b in answer.encode()]
        return bool(now.try_consume_tokens(tokens) == len(tokens) and now.is_accepting())

    return judge


def meets(gbnf: str) -> Callable[[str], bool]:
    """The same by trying everything."""
    rules = parse(gbnf)

    def judge(text: str) -> bool:
        known: dict[tuple[str, int], set[int]] = {("root", 0): set()}

        def ends(node: Node, at: int) -> set[int]:
            if isinstance(node, Chars):
                here = at < len(text) and any(a <= ord(text[at]) <= b for a, b in node.ranges)
                return {at + 1} if here else set()
            if isinstance(node, Ref):
                return set(known.setdefault((node.name, at), set()))
            if isinstance(node, Alt):
                return set().union(*(ends(one, at) for one in node.items))
            if isinstance(node, Seq):
                places = {at}
                for one in node.items:
                    places = set().union(*(ends(one, place) for place in places))
                return places
            assert isinstance(node, Repeat)
            return repeated(node, at)

        def repeated(node: Repeat, at: int) -> set[int]:
            places, found = {at}, {at} if node.low == 0 else set()
            for n in range(1, 2 * len(text) + node.low + 2 if node.high is None else node.high + 1):
                places = set().union(*(ends(node.item, place) for place in places))
                found |= places if n >= node.low else set()
            return found

        before = -1
        while before != (before := sum(map(len, known.values())) + len(known)):
            for name, at in list(known):
                known[name, at] |= ends(rules[name], at)
        return len(text) in known["root", 0]

    return judge


def random_grammar(rng: Random) -> str:
    names = ["root", "x", "y"][: rng.randint(1, 3)]
    return "\n".join(f"{name} ::= {_node(rng, names, 3)}" for name in names)


def _node(rng: Random, names: list[str], depth: int) -> str:
    what = rng.random()
    if depth <= 0 or what < 0.35:
        what = rng.random()
        if what < 0.3:
            return f'"{"".join(rng.choice("abc") for _ in range(rng.randint(1, 3)))}"'
        return rng.choice(["[a-b]", "[^a]", "[bc]", "[abé]"]) if what < 0.6 else rng.choice(names)
    inner = [_node(rng, names, depth - 1) for _ in range(rng.randint(1, 3))]
    if what < 0.8:
        return f"({(' ' if what < 0.6 else ' | ').join(inner)})"
    return inner[0] + rng.choice(["*", "+", "?", "{2}", "{0,2}", "{1,}"])


def _calls(source: str) -> Iterator[list[Any]]:
    """Calls of test_grammar and test_schema whose arguments are texts and lists of them."""
    for call in re.finditer(r"^ +test_(grammar|schema)\(", source, re.MULTILINE):
        found: list[Any] = [[""]]
        at, lists = call.end(), found
        while (token := TOKEN.match(source, at)) and token["sign"] != ")":
            at = token.end()
            if token["sign"] == "{":
                lists = found[-1] = [""]
            elif token["sign"] == "}":
                lists = found
            elif token["sign"] == ",":
                lists.append([""] if lists is found else "")
            elif token["raw"] is not None or token["text"]:
                more = token["raw"] if token["raw"] is not None else ast.literal_eval(token["text"])
                if lists is found:
                    found[-1][0] += more
                else:
                    lists[-1] += more
        if token and len(found) == 4:
            yes, no = ([*texts[:-1], *filter(None, texts[-1:])] for texts in found[2:])
            yield [
                "grammar" if call[1] == "grammar" else "json_schema",
                found[0][0],
                found[1][0],
                yes,
                no,
            ]


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    files = {p.name: p.read_text("utf-8") for p in sorted((folder / "grammars").glob("*.gbnf"))}
    cases = [*_calls((folder / "tests" / "test-grammar-integration.cpp").read_text("utf-8"))]
    RECORD.write_text(
        json.dumps({"files": files, "cases": cases}, ensure_ascii=False, indent=0) + "\n", "utf-8"
    )
