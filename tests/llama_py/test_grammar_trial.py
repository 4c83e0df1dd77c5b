"""llguidance checks a grammar in this process if it is short, else in a process of its own."""

from __future__ import annotations

import json

import pytest

from llama_py.grammar.trial import SMALL, trial


@pytest.mark.parametrize("n_letters", [1, 2 * SMALL], ids=["here", "in a process"])
def test_a_wrong_grammar_is_refused(n_letters: int) -> None:
    def form(start: str) -> str:
        text = f'start: {start}\nword: "{"a" * n_letters}"\n'
        return json.dumps({"grammars": [{"lark_grammar": text}]})

    assert trial(form("word")) == ""
    assert "missing" in trial(form("word missing"))
