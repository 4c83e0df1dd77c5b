"""Checked grammars in llguidance's form."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ggml_py._moved import former_names
from ggml_py.errors import GrammarError
from llama_py.grammar.closed import has_free_keys
from llama_py.grammar.lark import convert_gbnf
from llama_py.grammar.messages import TITLES, one_line
from llama_py.grammar.nodes import TokenChoice
from llama_py.grammar.place import position_error
from llama_py.grammar.schema import enforce_schema, format_pointers
from llama_py.grammar.trial import trial

MAX_CHARACTERS = 256 << 10  # limits nesting to the available stack
log = logging.getLogger("llama_py")
LLGUIDANCE = "%llguidance"  # prefix of a Lark grammar, like in llama.cpp


@dataclass(frozen=True)
class Grammar:
    """A grammar, checked. kind: grammar (GBNF), lark, regex or json_schema.

    form    grammar in llguidance's form
    tokens  tokens that `<[@0]>`, `<[@1]>`, ... in the form represent
    left_out  JSON pointers of a schema's assertions that it does not enforce
    free_keys  objects may have keys that the schema does not name
    """

    kind: str
    form: str
    tokens: tuple[TokenChoice, ...] = ()
    left_out: tuple[str, ...] = ()
    free_keys: bool = False


@lru_cache(64)
def compile_grammar(kind: str, text: str) -> Grammar:
    """Check a text of a kind: `grammar` (GBNF; Lark, if it begins with %llguidance), `lark`,
    `regex` or `json_schema`.

    Raises GrammarError, in one line with the position and the remedy.
    """
    if len(text) > MAX_CHARACTERS:
        raise GrammarError(
            f"{kind} must have at most {MAX_CHARACTERS} characters, got {len(text)}; shorten it"
        )
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise position_error(
            text, e.start, "invalid character (half a surrogate pair)", TITLES.get(kind, kind)
        ) from None
    if kind == "grammar" and text.lstrip().startswith(LLGUIDANCE):
        kind = "lark"
    return _KINDS[kind](text)


def _gbnf(text: str) -> Grammar:
    lark = convert_gbnf(text)
    form = _check("grammar", matcher_class().grammar_from_lark(lark.text))
    return Grammar("grammar", form, lark.tokens)


def _lark(text: str) -> Grammar:
    return Grammar("lark", _check("lark", matcher_class().grammar_from_lark(text), text))


def _regex(text: str) -> Grammar:
    if (len(text) - len(text.rstrip("\\"))) % 2:
        raise position_error(
            text,
            len(text) - 1,
            "incomplete escape: a character must follow the backslash",
            "regular expression",
        )
    return Grammar("regex", _check("regex", matcher_class().grammar_from_regex(text), text))


def _json_schema(text: str) -> Grammar:
    found = enforce_schema(text)
    if found.left_out:
        log.warning("JSON schema: the grammar does not enforce %s", format_pointers(found.left_out))
    free_keys = has_free_keys(json.loads(found.schema))
    return Grammar("json_schema", found.form, (), found.left_out, free_keys)


_KINDS: dict[str, Callable[[str], Grammar]] = {
    "grammar": _gbnf,
    "lark": _lark,
    "regex": _regex,
    "json_schema": _json_schema,
}


def _check(kind: str, form: str, text: str = "") -> str:
    error = trial(form.replace("@", "") if kind == "grammar" else form)
    if error:
        raise GrammarError(one_line(kind, error, text))
    return form


def matcher_class() -> Any:
    """Return llguidance's matcher class, imported on first use."""
    try:
        from llguidance import LLMatcher
    except ImportError:
        raise GrammarError(
            "grammars and JSON schemas need llguidance: pip install llguidance"
        ) from None
    return LLMatcher


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, compiled="compile_grammar")
