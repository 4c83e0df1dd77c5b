"""Expressions of Go templates as Jinja code: fields, variables, pipelines and functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, NoReturn

from llama_py.chat.go_tokens import Token, fail

MAX_DEPTH = 64  # nested blocks and parentheses
LITERALS = {"true": "true", "false": "false", "nil": "none"}

# Fields of messages and tools by Ollama's names.
FIELDS = {
    "Thinking": "reasoning_content", "ToolCalls": "tool_calls", "ToolName": "name",
    "ToolCallID": "tool_call_id", "AnyOf": "anyOf",
    **{name: name.lower() for name in (
        "Role", "Content", "Images", "ID", "Function", "Name", "Arguments", "Description",
        "Parameters", "Properties", "Required", "Type", "Items", "Enum", "Index")},
}  # fmt: skip
STRINGS = frozenset(("Role", "Content", "Thinking", "ToolName", "ToolCallID", "ID", "Name",
                     "Description"))  # fmt: skip
LISTS = frozenset(("ToolCalls", "Images", "Required", "Enum"))
COMPARISONS = {"ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
# Functions with their minimum and maximum number of arguments.
FUNCTIONS = {
    **{name: (1, 99) for name in ("and", "or", "printf")}, "eq": (2, 99), "index": (1, 9),
    **{name: (1, 1) for name in ("not", "len", "json", "toTypeScriptType")}, "slice": (2, 3),
    **dict.fromkeys(COMPARISONS, (2, 2)), "print": (1, 99),
    "currentDate": (0, 0), "yesterdayDate": (0, 0),
}  # fmt: skip
JSON = "tojson(separators=(',', ':'))"


class GoValue(NamedTuple):
    """An expression: its Jinja code, its type if known (str, int, list, root), the code of its
    length, and the text of a literal."""

    code: str
    kind: str = ""
    length: str = ""
    literal: str | None = None


class Expressions:
    """Reader of the expressions in an action.

    Attributes:
        by_turns: The template renders one turn, with its texts in the Jinja variable `t`.
        dot, root: Values of `.` and `$`.
        scopes: Variables by name; the innermost scope is the last.
        tokens, i, line: The tokens of the action, the index of the next one, and the line.
        depth, n_open: Nested blocks and parentheses, and open parentheses.
    """

    def __init__(self, by_turns: bool) -> None:
        self.by_turns = by_turns
        self.dot = self.root = GoValue("true", "root")
        self.scopes: list[dict[str, GoValue]] = [{}]
        self.tokens: Sequence[Token] = ()
        self.i = self.line = self.depth = self.n_open = 0

    def fail(self, why: str) -> NoReturn:
        fail(self.line, why)

    def deepen(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"blocks and parentheses are nested deeper than {MAX_DEPTH}")

    def find_scope(self, name: str) -> dict[str, GoValue]:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope
        self.fail(f"undefined variable {name!r}")

    def _peek(self) -> Token:
        end = Token("", "", self.line, True)
        return self.tokens[self.i] if self.i < len(self.tokens) else end

    def read_pipeline(self, most: int = 0) -> tuple[list[str], str, GoValue]:
        """Return declared names, `:=` or `=`, and the value; up to the end or `)`."""
        start, names, op = self.i, list[str](), ""
        while self._peek().kind == "variable":
            names.append(self._peek().text)
            self.i += 2
            op = self.tokens[self.i - 1].text if self.i <= len(self.tokens) else ""
            if op != ",":
                break
        if op not in (":=", "="):
            self.i, names, op = start, [], ""
        if len(names) > most or "$" in names:
            self.fail(f"unexpected {op!r}: too many variables")
        value = None
        while value is None or self._peek().text == "|":
            self.i += value is not None
            value = self._command(value)
        if self._peek().kind and (self._peek().text != ")" or not self.n_open):
            self.fail(f"unexpected {self._peek().text!r}")
        return names, op, value

    def _command(self, piped: GoValue | None) -> GoValue:
        token = self._peek()
        if token.kind == "word" and token.text not in LITERALS:
            self.i += 1
            args = []
            while self._peek().kind and self._peek().text not in ("|", ")"):
                args.append(self._operand())
            return self._call(token.text, args + ([] if piped is None else [piped]))
        value = self._operand()
        if piped is not None or (self._peek().kind and self._peek().text not in ("|", ")")):
            self.fail(f"{token.text!r} is not a function and takes no arguments")
        return value

    def _operand(self) -> GoValue:
        token = self._peek()
        self.i += 1
        if token.kind == "word":
            known = LITERALS.get(token.text)
            value = self._call(token.text, []) if known is None else GoValue(known)
        elif token.kind == "string":
            value = GoValue(token.text, "str", literal=ast.literal_eval(token.text))
        elif token.kind == "number":
            value = GoValue(f"({token.text})", "int")
        elif token.kind == "variable":
            value = self.root if token.text == "$" else self.find_scope(token.text)[token.text]
        elif token.kind == "field":
            value = self._field(self.dot, token.text[1:])
        elif token.text == ".":
            value = self.dot
        elif token.text == "(":
            self.deepen()
            self.n_open += 1
            value = self.read_pipeline()[2]
            self.i += 1
            if self.i > len(self.tokens):
                self.fail("')' is missing")
            self.n_open -= 1
            self.depth -= 1
        else:
            self.fail(f"unexpected {token.text!r}" if token.kind else "a value is missing")
        while self._peek().kind == "field" and not self._peek().is_spaced:
            value = self._field(value, self._peek().text[1:])
            self.i += 1
        return value

    def _field(self, value: GoValue, name: str) -> GoValue:
        if value.kind == "root":
            return self._root_field(name)
        kind = "str" if name in STRINGS else "list" if name in LISTS else ""
        return GoValue(f"{value.code}[{FIELDS.get(name, name)!r}]", kind)

    def _root_field(self, name: str) -> GoValue:
        turn = "t.{}" if self.by_turns else "({}|default(''))"
        known = {
            "Messages": GoValue("messages", "list", "n_messages"),
            "Tools": GoValue("[]" if self.by_turns else "tools", "list"),
            "System": GoValue("t.System" if self.by_turns else "System", "str"),
            "Prompt": GoValue(turn.format("Prompt"), "str"),
            "Response": GoValue("t.Response" if self.by_turns else "''", "str"),
            "Suffix": GoValue("(Suffix|default(''))", "str"),
            "Think": GoValue("enable_thinking"),
            "ThinkLevel": GoValue("(reasoning_effort|default(''))", "str"),
            "IsThinkSet": GoValue("(enable_thinking is defined)"),
        }
        return known.get(name, GoValue("none"))

    def _call(self, name: str, args: Sequence[GoValue]) -> GoValue:
        if name not in FUNCTIONS:
            self.fail(f"function {name!r} is not defined; known: {', '.join(FUNCTIONS)}")
        least, most = FUNCTIONS[name]
        if not least <= len(args) <= most:
            self.fail(
                f"wrong number of arguments for {name}: {len(args)}, expected {least} to {most}"
            )
        if any(arg.kind == "root" for arg in args):
            self.fail(f"the template's whole input cannot be an argument of {name}; name a field")
        if name == "printf":
            return self._format(args)
        first, *codes = [arg.code for arg in args] or [""]
        length = args[0].length or f"({first}|length)" if args else ""
        if name == "slice":
            begin, end = [*codes, ""][:2]
            left = "" if end else f"({length} - {begin})"
            return GoValue(f"{first}[{begin}:{end}]", args[0].kind, left)
        if name == "len":
            return GoValue(length, "int")
        if name in COMPARISONS:
            return GoValue(f"({first} {COMPARISONS[name]} {codes[0]})")
        conditions = {
            "and": " and ".join([first, *codes]),
            "or": " or ".join([first, *codes]),
            "not": f"not {first}",
            "eq": " or ".join(f"{first} == {code}" for code in codes),
            "index": first + "".join(f"[{code}]" for code in codes),
        }
        texts = {
            "json": f"{first}|{JSON}",
            "print": " ~ ".join(_list_codes(args)),
            "currentDate": "strftime_now('%Y-%m-%d')",
            "yesterdayDate": "strftime_now('%Y-%m-%d', -1)",
            "toTypeScriptType": f"types.get({first}['type']|string, 'any')",
        }
        is_text = name in texts
        return GoValue(
            f"({texts[name] if is_text else conditions[name]})", "str" if is_text else ""
        )

    def _format(self, args: Sequence[GoValue]) -> GoValue:
        if args[0].literal is None:
            self.fail("printf needs a format in quotes")
        left, parts = list(args[1:]), []
        for i, piece in enumerate(re.split(r"%(.)", args[0].literal, flags=re.DOTALL)):
            if i % 2 == 0 or piece == "%":
                parts.append(repr(piece))
            elif piece in "svdq" and left:
                value = left.pop(0)
                parts.append(f"({value.code}|{JSON})" if piece == "q" else print_code(value))
            else:
                self.fail(f"printf: no argument for %{piece}, or an unsupported format")
        return GoValue(f"({' ~ '.join(parts)})", "str")


def print_code(value: GoValue) -> str:
    return value.code if value.kind in ("str", "int") else f"text({value.code})"


def _list_codes(args: Sequence[GoValue]) -> Iterator[str]:
    """Yield the codes of printed values, with spaces between numbers."""
    for before, arg in zip([None, *args], args, strict=False):
        if before is not None and before.kind == arg.kind == "int":
            yield "' '"
        yield print_code(arg)
