"""Translation of Ollama's templates, which are Go's text/template, to Jinja.

template = ChatTemplate(to_jinja("{{ range .Messages }}{{ .Role }}: {{ .Content }}{{ end }}"))

The Jinja template runs in the sandbox of all templates, so its limits and the detection of tool
calls and reasoning apply. It has a line for each line of the Go template.

A template without `.Messages` renders one turn: the translation renders it for each turn, and ends
the last turn at `.Response` (ollama: template/template.go). JSON has `<` unchanged, unlike Go's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from llama_py.chat.families import GO_MARK
from llama_py.chat.go_expressions import JSON, Expressions, GoValue, print_code
from llama_py.chat.go_tokens import Item, Token, read_items

_BEGIN = re.compile(
    r"\{\{-?\s*(?:[.$]|/\*|if\s|(?:range|with|template|define|block|json|printf?)\s+[.$\"`]"
    r"|\w+\s+(?:\$|\.[A-Z]))"
)
MAX_LENGTH = 1 << 22  # characters of a translation

_TEXT = (  # a printed value: texts, JSON of objects, Go's lists of texts
    "{% macro text(x) %}{% if x is undefined or x is none %}{% elif x is boolean %}"
    "{{ 'true' if x else 'false' }}{% elif x is mapping or x is sequence and x[0] is mapping %}"
    "{{ x|JSON }}{% elif x is sequence and x is not string %}{{ '[' ~ x|join(' ') ~ ']' }}"
    "{% else %}{{ x }}{% endif %}{% endmacro %}"
).replace("JSON", JSON)
_TYPES = (
    "{% set types = {'string': 'string', 'number': 'number', 'integer': 'number', 'boolean':"
    " 'boolean', 'array': 'any[]', 'object': 'Record<string, any>', 'null': 'null'} %}"
)
_SYSTEM = (
    "{% set System = messages|selectattr('role', 'equalto', 'system')|map(attribute='content')"
    "|join('\n\n') %}"
).replace("\n", "\\n")
_COUNT = "{% set n_messages = messages|length %}"
_TURNS = (  # a turn ends before a system message, and before a user's message after a response
    "{% if Suffix is defined %}{{ turn({'Prompt': Prompt, 'Response': ''}, false) }}{% else %}"
    "{% set s = namespace(System='', Prompt='', Response='') %}{% for m in messages %}"
    "{% if m['role'] == 'system' %}{% if s.Prompt or s.Response %}END{% endif %}SYSTEM"
    "{% elif m['role'] == 'user' %}{% if s.Response %}END{% endif %}"
    "{% set s.Prompt = m['content'] %}"
    "{% elif m['role'] == 'assistant' %}{% set s.Response = m['content'] %}{% endif %}"
    "{% endfor %}{{ turn(TURN, true) }}{% endif %}"
)
_TURN = "{'System': s.System, 'Prompt': s.Prompt, 'Response': s.Response}"
_END = (
    "{{ turn(TURN, false) }}{% set s.System = '' %}{% set s.Prompt = '' %}{% set s.Response = '' %}"
)


def is_go_template(text: str) -> bool:
    """Return True if a text has an action of Go's templates, and no block of Jinja."""
    return "{%" not in text and _BEGIN.search(text) is not None


def takes_suffix(source: str) -> bool:
    """Return True if a translation renders the variables `Prompt` and `Suffix` for infill."""
    return source.startswith(GO_MARK) and "Suffix|default" in source


def to_jinja(source: str) -> str:
    """Return the Jinja template for a Go template. ModelError, with the line, if it is invalid."""
    return _Translator(read_items(source)).translate()


class _Translator(Expressions):
    """Translates a template's texts and actions in sequence."""

    def __init__(self, items: Sequence[Item]) -> None:
        tokens = [token for item in items for token in item.tokens or ()]
        self.fields = {token.text[1:] for token in tokens if token.kind == "field"}
        super().__init__(by_turns="Messages" not in self.fields)
        self.items, self.at = list(items), 0
        if self.by_turns and "Response" not in self.fields:
            line = items[-1].line
            self.items.append(Item("", [Token("field", ".Response", line, False)], line, 0))
        self.out: list[str] = []
        self.templates: dict[str, int] = {}  # the item after each `define`
        self.active: list[str] = []  # templates in progress
        self.n_names = self.n_cuts = self.n_loops = self.n_chars = 0
        self._find_templates()

    def translate(self) -> str:
        self._list(inside=False)
        body = "".join(self.out)
        head = [GO_MARK, _TEXT, "{% set v = namespace() %}"]
        head += [_TYPES] if "types.get" in body else []
        if self.by_turns:
            system = "{% set s.System = m['content'] %}" if "System" in self.fields else ""
            turns = _TURNS.replace("END", _END).replace("TURN", _TURN).replace("SYSTEM", system)
            return "".join([*head, "{% macro turn(t, last) %}", body, "{% endmacro %}", turns])
        head += [_SYSTEM] if "System" in self.fields else []
        head += [_COUNT] if "n_messages" in body else []
        return "".join([*head, body])

    def _emit(self, code: str) -> None:
        self.out.append(code)
        self.n_chars += len(code)
        if self.n_chars > MAX_LENGTH:
            self.fail(f"its translation exceeds {MAX_LENGTH} characters; shorten the template")

    def _pad(self, item: Item) -> None:
        """Keep the numbers of lines, except in templates within another."""
        if item.n_lines and not self.active:
            self._emit("{#" + "\n" * item.n_lines + "#}")

    def _new_name(self, start: str) -> str:
        self.n_names += 1
        return f"{start}{self.n_names}"

    # blocks

    def _find_templates(self) -> None:
        for i, item in enumerate(self.items):
            if item.word in ("define", "block"):
                self.line = item.line
                self.templates[self._template_name(item)] = i + 1

    def _template_name(self, item: Item) -> str:
        tokens = item.tokens or []
        if len(tokens) < 2 or tokens[1].kind != "string":
            self.fail(f"{item.word} needs a name in quotes")
        return str(ast.literal_eval(tokens[1].text))

    def _list(self, inside: bool) -> Sequence[Token]:
        """Translate until the end of a block; return the tokens of its `end` or `else`."""
        is_cut, n_cuts, end = False, self.n_cuts, None
        while end is None and self.at < len(self.items):
            item = self.items[self.at]
            self.at, self.line = self.at + 1, item.line
            if item.tokens is None:
                if item.text:
                    self._emit(f"{{{{ {item.text!r} }}}}")
            elif item.word in ("end", "else"):
                if not inside:
                    self.fail(f"unexpected {{{{{item.word}}}}}")
                end = item.tokens
            elif item.tokens:
                self._action(item)
            self._pad(item)
            if self.n_cuts > n_cuts and not is_cut and end is None:
                self._emit("{% if not last %}")
                is_cut = True
        if end is None and inside:
            self.fail("unexpected end of the template: {{end}} is missing")
        if is_cut:
            self._emit("{% endif %}")
        return end or ()

    def _action(self, item: Item) -> None:
        word = item.word
        self.tokens, self.i = item.tokens or (), 1
        if word in ("if", "range", "with"):
            self._branch(word)
        elif word == "define":
            if len(self.scopes) > 1:
                self.fail("unexpected {{define}} in a block")
            self._skip_block()
        elif word in ("template", "block"):
            self.i = 2
            name, start = self._template_name(item), self.at
            dot = self.read_pipeline()[2] if self.i < len(self.tokens) else GoValue("none")
            self._insert(name, dot)
            if word == "block":
                self.at = start
                self._skip_block()
        elif word in ("break", "continue"):
            if not self.n_loops:
                self.fail(f"{{{{{word}}}}} outside of {{{{range}}}}")
            self._emit(f"{{% {word} %}}")
        else:
            self.i = 0
            names, op, value = self.read_pipeline(most=1)
            if names:
                self._set(names[0], op, value)
            else:
                if value.kind == "root":
                    self.fail("the template's whole input cannot be printed; name a field")
                self._emit(f"{{{{ {print_code(value)} }}}}")
            responds = any(t.kind == "field" and t.text == ".Response" for t in self.tokens)
            self.n_cuts += self.by_turns and responds

    def _skip_block(self) -> None:
        depth = 1
        while depth:
            if self.at >= len(self.items):
                self.fail("unexpected end of the template: {{end}} is missing")
            item = self.items[self.at]
            self.at += 1
            self._pad(item)
            if item.word == "end":
                depth -= 1
            elif item.word in ("if", "range", "with", "define", "block"):
                depth += 1

    def _insert(self, name: str, dot: GoValue) -> None:
        """Translate a named template at this place."""
        if name not in self.templates:
            self.fail(f"template {name!r} is not defined")
        if name in self.active:
            self.fail(f"template {name!r} includes itself")
        before = self.at, self.dot, self.root, self.scopes, self.n_loops, self.line
        self.at, self.dot, self.root = self.templates[name], dot, dot
        self.scopes, self.n_loops = [{}], 0
        self.active.append(name)
        if self._list(inside=True)[0].text != "end":
            self.fail("unexpected {{else}}")
        self.active.pop()
        self.at, self.dot, self.root, self.scopes, self.n_loops, self.line = before

    def _branch(self, word: str) -> None:
        """Translate if, range or with, up to its end."""
        self.deepen()
        self.scopes.append({})
        dot, n_loops = self.dot, self.n_loops
        names, op, value = self.read_pipeline(most=2 if word == "range" else 1)
        if word == "range":
            self._begin_range(names, op, value)
            self.n_loops += 1
        else:
            if names:
                value = self._set(names[0], op, value)
            if word == "with" and value.kind != "root":
                name = self._new_name("d")
                self._emit(f"{{% set {name} = {value.code} %}}")
                value = self.dot = GoValue(name, value.kind)
            self._emit(f"{{% if {value.code} %}}")
        end = self._list(inside=True)
        self.dot, self.n_loops = dot, n_loops
        if end[0].text == "else":
            self._emit("{% else %}")
            if len(end) == 1:
                if self._list(inside=True)[0].text != "end":
                    self.fail("expected {{end}}, got {{else}}")
            elif end[1].text in ("if", "with"):
                self.tokens, self.i = end, 2
                self._branch(end[1].text)
            else:
                self.fail(f"unexpected {end[1].text!r} after else")
        self._emit("{% endfor %}" if word == "range" else "{% endif %}")
        self.scopes.pop()
        self.depth -= 1

    def _begin_range(self, names: Sequence[str], op: str, value: GoValue) -> None:
        if value.kind == "root":
            self.fail("the template's whole input cannot be a range; name a field")
        item, key = self._new_name("d"), "loop.index0"
        if value.kind == "list":
            self._emit(f"{{% for {item} in {value.code} or [] %}}")
        else:  # an object's keys and values, or a list's
            all, each = self._new_name("r"), self._new_name("e")
            self._emit(f"{{% set {all} = {value.code} %}}{{% for {each} in {all} or [] %}}")
            self._emit(f"{{% set {item} = {all}[{each}] if {all} is mapping else {each} %}}")
            key = f"{each} if {all} is mapping else loop.index0"
        self.dot = GoValue(item)
        for name, code in zip(reversed(names), (item, key), strict=False):
            self._set(name, op, GoValue(code))

    def _set(self, name: str, op: str, value: GoValue) -> GoValue:
        """Translate a declaration or an assignment; return the variable."""
        if op == ":=":
            letters = re.sub("[^A-Za-z]", "", name) or "x"
            found = GoValue(self._new_name(f"v.{letters}"), value.kind)
            scope = self.scopes[-1]
        else:
            scope = self.find_scope(name)
            found = scope[name]
            found = found._replace(kind=found.kind if found.kind == value.kind else "")
        if value.kind == "root":
            self.fail("the template's whole input cannot be a variable; name a field")
        scope[name] = found
        self._emit(f"{{% set {found.code} = {value.code} %}}")
        return found
