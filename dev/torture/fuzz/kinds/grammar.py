"""Grammars in GBNF, Lark and regular expressions: texts that anyone may send."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from dev.torture.fuzz.kind import Case, Kind
from dev.torture.fuzz.text import damaged
from llama_py.loading.model import DEMO
from llama_py.params import SamplingParams
from llama_py.sampler import Sampler
from llama_py.sampler.constraint import ConstraintEnded
from llama_py.tokenizer import load_tokenizer

GBNF = (
    'root ::= (expr "=" ws term "\\n")+\nexpr ::= term ([-+*/] term)*\nterm ::= ident | num |'
    ' "(" ws expr ")" ws\nident ::= [a-z] [a-z0-9_]* ws\nnum ::= [0-9]+ ws\nws ::= [ \\t\\n]*',
    'root ::= object\nvalue ::= object | string | ("true" | "null") ws\nobject ::= "{" ws'
    ' (string ":" ws value ("," ws string ":" ws value)*)? "}" ws\nstring ::= "\\"" ([^"\\\\\\x7F]'
    ' | "\\\\" (["\\\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\\"" ws\nws ::= | " " | "\\n" [ \\t]{0,20}',
    'root ::= "- " item{1,3}\nitem ::= [^\\n\\r]+ "\\n" # one\n\nx ::= .* <[7]>? !<[8]>',
    'root ::= "a" root "b" | ("x"? "yz"{2,}) | [^\\u0041-\\U0010FFFF]',
)
LARK = (
    '%llguidance {}\nstart: a B+ | "x" /[a-z]{1,3}/\na: B? start\nB: /b|c(d)*/ "e"\n',
    'start: x{2,3} %json {"type": "integer"}\nx: "a"i | T & U\nT: /[a-c]+/\nU: ~/b+/\n',
)
REGEX = ("(a|b)*a(a|b){5}x?", r"[^\W\d]+\s(?i:king)\p{L}{2,4}$", r"\d{3}-\d{4}|[ -~]{1,20}")
PARTS = (
    "(", ")", "[", "]", "{", "}", "|", "*", "+", "?", '"', "\\", "/", "::=", ":", "\n", "#", "^",
    "-", ".", " root ", " start ", "{2000}", "{99999999}", "{0,1000}", "{1000,}", "\\x", "\\u0000",
    "\\U00110000", "<[999999]>", "<a>", "<", "!", "%", "%ignore /a/\n", "%json {", "&", "~", "\0",
    "\ud800", "é", "\x1b[2J", "root ::= root\n", "x ::= x x | x\n", "((((((((", "[^\\x00-\\xFF]",
    "(a|a)*", "(((a{9}){9}){9}){9}", "\\p{L}", "(?=", "(?i)", "\u2028",
)  # fmt: skip
SEEDS = {"grammar": GBNF, "lark": LARK, "regex": REGEX}
TOKENS = 12


class Grammars(Kind):
    """grammars"""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.tokenizer = load_tokenizer(DEMO)

    def case(self, rng: Random) -> Case:
        kind = rng.choice(("grammar", "grammar", "lark", "regex"))
        text = damaged(rng, rng.choice(SEEDS[kind]), PARTS)

        def run() -> str:
            return answered(rng, self.tokenizer, **{kind: text})

        return Case(f"{kind} {text!a}", run)


def answered(rng: Random, tokenizer: Any, **params: Any) -> str:
    """Sample some tokens under a constraint."""
    seed = rng.randrange(1 << 30)
    sampler = Sampler(SamplingParams(seed=seed, **params), tokenizer.n_vocab, tokenizer)
    if not any(params.values()):
        return "no text, no constraint"
    assert sampler.constraint is not None
    logits = np.random.default_rng(seed).normal(0, 3, tokenizer.n_vocab).astype(np.float32)
    for n in range(TOKENS):
        try:
            id = sampler.sample(logits)
        except ConstraintEnded as e:
            return f"{n} tokens, {'complete' if e.complete else 'no way on'}"
        sampler.accept(id)
        if tokenizer.is_eog(id):
            return f"{n} tokens, complete"
        logits[id] -= 3
    return f"{TOKENS} tokens"
