"""Arguments written as bare text between tags, by their JSON schema."""

from __future__ import annotations

import json
import re
from typing import Any

from ggml_py.errors import GrammarError
from llama_py.chat.formats.schema import Schema, target
from llama_py.chat.peg.lark import pattern_of_text
from llama_py.chat.peg.leaves import TextUntil
from llama_py.chat.peg.nodes import Expression
from llama_py.grammar import compile_grammar
from llama_py.grammar.formats import in_rust

MAX_DEPTH = 8  # maximum nesting of references
MAX_LENGTH = 2000  # a longer bound is not enforced
_ANY = "(?s:.*)"
_PLAIN = {
    "null": "/null/",
    "boolean": "/true|false/",
    "integer": "/-?(0|[1-9][0-9]*)/",
    "number": r"/-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/",
}
_DAYS = "(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
_DATE = f"[0-9]{{4}}-({_DAYS}|02-(0[1-9]|[12][0-9]))"
_HOUR = "([01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_HOUR}:[0-5][0-9](\.[0-9]+)?(Z|[+-]{_HOUR})"
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
FORMATS = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}T{_TIME}$",
    "uuid": "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
    "ipv4": rf"^{_BYTE}(\.{_BYTE}){{3}}$",
    "email": r"^[^\s@]+@[^\s@]+$",
}
_PIECE = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|.", re.S)


def bare(schema: Schema, *tags: str, but: str = "") -> Expression:
    """Return text before the first of some tags; a grammar restricts it to the schema's values."""
    return TextUntil(tags, but, _terminal(schema, schema, MAX_DEPTH) or "")


def _terminal(schema: Schema, root: Schema, depth: int) -> str | None:
    """Return the values of a schema as an expression for a terminal in Lark; None: any text."""
    if not depth:
        return None
    parts = [_string(schema)]
    if "$ref" in schema:
        found = target(schema, root)
        parts.append(None if found is None else _terminal(found, root, depth - 1))
    if "const" in schema:
        parts.append(_literal(schema["const"]))
    if isinstance(schema.get("enum"), list):
        parts.append(_either([_literal(one) for one in schema["enum"]]))
    for key in ("anyOf", "oneOf", "allOf"):
        inner = [one for one in schema.get(key) or () if isinstance(one, dict)]
        each = [_terminal(one, root, depth - 1) for one in inner]
        parts += each if key == "allOf" else [_either(each)]
    return _require_all(parts)


def _string(schema: Schema) -> str | None:
    """Return a pattern for the schema's type and string keywords."""
    types = schema.get("type", "string")
    types = types if isinstance(types, list) else [types]
    low, high = (schema.get(key) for key in ("minLength", "maxLength"))
    parts = [_regex(FORMATS.get(str(schema.get("format")))), _regex(schema.get("pattern"))]
    if isinstance(low, int) or isinstance(high, int):
        most = high if isinstance(high, int) and high <= MAX_LENGTH else ""
        least = min(low, MAX_LENGTH) if isinstance(low, int) else 0
        parts.append(f"/(?s:.{{{least},{most}}})/")
    return _either([_require_all(parts) if one == "string" else _PLAIN.get(one) for one in types])


def _literal(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"/{pattern_of_text(text)}/" if text else '""'


def _either(parts: list[str | None]) -> str | None:
    known = [part for part in dict.fromkeys(parts) if part is not None]
    return f"({' | '.join(known)})" if known and len(known) == len({*parts}) else None


def _require_all(parts: list[str | None]) -> str | None:
    known = [part for part in dict.fromkeys(parts) if part is not None]
    return f"({' & '.join(known)})" if known else None


def _regex(pattern: Any) -> str | None:
    """Return a schema's `pattern`, which may match anywhere, as a pattern for the whole text. None
    if a grammar cannot enforce it, such as look-around: arguments are checked afterwards."""
    ways: list[list[str]] = [[]]
    depth = 0
    for piece in _PIECE.findall(pattern) if isinstance(pattern, str) else ():
        depth += (piece == "(") - (piece == ")")
        if piece == "|" and not depth:
            ways.append([])
        else:
            ways[-1].append(piece)
    if not any(ways) or any(piece in "^$" for way in ways for piece in way[1:-1]):
        return None
    whole = "|".join(map(_complete_pattern, ways))
    try:
        compile_grammar("regex", whole)
    except GrammarError:
        return None
    return "/" + re.sub(r"(\\.)|/", lambda match: match[1] or r"\/", whole) + "/"


def _complete_pattern(way: list[str]) -> str:
    """Return an alternative of a pattern, with any text at ends without an anchor."""
    first, last = way[:1] == ["^"], way[-1:] == ["$"]
    text = in_rust("".join(way[first : len(way) - last]))
    return f"{'' if first else _ANY}({text}){'' if last else _ANY}"
