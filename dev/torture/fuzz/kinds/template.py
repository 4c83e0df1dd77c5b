"""Chat templates: programs out of a file, which may never end or grow without end."""

from __future__ import annotations

from pathlib import Path
from random import Random

from dev.torture.fuzz.kind import Case, Kind
from llama_py.chat import ChatTemplate, bounds

STEPS = 30_000  # fewer than usual, since many cases use them up
NUMBERS = (
    "0",
    "1",
    "2",
    "7",
    "99",
    "1000",
    "99999",
    "100000",
    "10**9",
    "2**40",
    "9**9",
    "-1",
    "1.5",
    "1e308",
    "9**9**9",
    "true",
    "none",
)
TEXTS = (
    "'a'",
    "'ab' * 1000",
    "'%s'",
    "'%1000000000d'",
    "'{:>1000000000}'",
    "'{0.__class__}'",
    "'\\x1b[2J'",
    "messages[0].content",
    "bos_token",
    "'x' * 10**6",
    "messages[0]['role']",
)
FILTERS = (
    "length", "list", "upper", "tojson", "trim", "string", "int", "first", "last", "sort", "join",
    "replace('a', 'x' * 10**6)", "center({n})", "indent({n})", "batch({n})|list",
    "slice({n})|list", "wordwrap({n})", "truncate({n})", "format(1)", "pprint", "urlize",
    "tojson(indent={n})", "map('string')|list", "join('x' * 10**6)", "sum(start=[])", "unique",
    "round({n})", "xmlattr", "dictsort", "reverse", "safe", "escape", "default({e})",
    "groupby(0)", "map('center', {n})|list", "select('odd')|list", "striptags", "filesizeformat",
    "random", "items|list", "wordcount", "title", "abs", "attr('__class__')", "float", "max",
    "min",
)  # fmt: skip
METHODS = (
    "ljust({n})",
    "zfill({n})",
    "center({n})",
    "expandtabs({n})",
    "replace('', {e})",
    "split('a')",
    "join(['b'] * 1000)",
    "format({e})",
    "encode()",
    "strip()",
    "__class__",
    "upper()",
    "count({e})",
    "items()",
    "append(1)",
    "title()",
    "translate({{}})",
    "splitlines()",
    "rjust({n}, 'x')",
    "__init__.__globals__",
    "format_map({{}})",
    "partition('a')",
    "startswith({e})",
)
CALLS = (
    "range({n})",
    "lipsum({n})",
    "namespace(a={e})",
    "dict(a={e})",
    "cycler({e})",
    "joiner({e})",
    "raise_exception({e})",
    "strftime_now({e})",
    "loop.index",
    "loop({e})",
    "f({e})",
    "caller()",
    "self.x()",
    "range({n}, {n}, {n})",
    "loop.cycle({e})",
    "f()",
    "namespace()",
    "range(99999)",
)
BINARY = ("+", "-", "*", "**", "//", "%", "~", "==", "<", "in", "and", "or", "/", "is not")
MESSAGES = [
    {"role": "user", "content": "Hello <b>there</b>"},
    {"role": "assistant", "content": "Hi", "tool_calls": [{"name": "f", "arguments": {"a": 1}}]},
]


class _Grammar:
    """Random source; `depth` bounds how far it nests."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def expression(self, depth: int) -> str:
        rng = self.rng
        what = rng.randrange(12 if depth else 3)
        if what == 0:
            return rng.choice(NUMBERS)
        if what == 1:
            return rng.choice(TEXTS)
        if what == 2:
            return rng.choice(
                ("messages", "x", "ns.a", "m", "tools", "loop", "ns", "i", "[]", "{}")
            )
        a, b = self.expression(depth - 1), self.expression(depth - 1)
        if what < 6:
            return f"({a} {rng.choice(BINARY)} {b})"
        if what < 8:
            return f"({a})|{self._filled(rng.choice(FILTERS), depth)}"
        if what < 10:
            return f"({a}).{self._filled(rng.choice(METHODS), depth)}"
        if what == 10:
            return self._filled(rng.choice(CALLS), depth)
        return rng.choice((f"({a})[{b}]", f"[{a}, {b}]", f"({a} if {b} else 1)", f"({a})[:{b}]"))

    def _filled(self, text: str, depth: int) -> str:
        more = {"n": self.rng.choice(NUMBERS), "e": self.expression(max(depth - 2, 0))}
        return text.format(**more)

    def block(self, depth: int) -> str:
        rng = self.rng
        e = self.expression(rng.randrange(4))
        what = rng.randrange(10 if depth else 3)
        if what < 3:
            return rng.choice((f"{{{{ {e} }}}}", f"{{% set x = {e} %}}", f"{{% set ns.a = {e} %}}"))
        inner = "".join(self.block(depth - 1) for _ in range(rng.randint(1, 2)))
        if what < 7:
            over = rng.choice((f"range({rng.choice(NUMBERS)})", e, "messages", "range(99999)"))
            more = rng.choice(("", "", " recursive", f" if {e}"))
            stop = rng.choice(("", "", "{% break %}", "{% continue %}"))
            return f"{{% for i in {over}{more} %}}{inner}{stop}{{% endfor %}}"
        if what == 7:
            return f"{{% macro f(x) %}}{inner}{{{{ f(x) }}}}{{% endmacro %}}{{{{ f({e}) }}}}"
        if what == 8:
            return f"{{% if {e} %}}{inner}{{% else %}}b{{% endif %}}"
        return rng.choice(
            (
                f"{{% set x %}}{inner}{{% endset %}}",
                f"{{% filter upper %}}{inner}{{% endfilter %}}",
                f"{{% call f(1) %}}{inner}{{% endcall %}}",
                "{% generation %}",
                f"{{% include {e} %}}",
                f"{{% block x %}}{inner}{{% endblock %}}",
                "{% raw %}",
                "{#",
                f"{{% with x = {e} %}}{inner}{{% endwith %}}",
                f"{{% for i in range(99) %}}{{% set ns.a = ns.a ~ ns.a %}}{inner}{{% endfor %}}",
                f"{{% for i in range(99) %}}{{% set ns.a = ns.a + [ns.a] * 9 %}}"
                f"{inner}{{% endfor %}}",
            )
        )


class Templates(Kind):
    """chat templates"""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        bounds.STEPS = STEPS

    def case(self, rng: Random) -> Case:
        grammar = _Grammar(rng)
        start = rng.choice(
            ("", "{% set ns = namespace(a='ab') %}", "{% set ns = namespace(a=[1]) %}")
        )
        macro = rng.choice(
            (
                "",
                "{% macro f(x) %}{{ x }}{% endmacro %}",
                "{% macro f(x) %}{{ f(x) }}{{ f(x) }}{% endmacro %}",
            )
        )
        source = start + macro + "".join(grammar.block(4) for _ in range(rng.randint(1, 3)))
        if rng.random() < 0.1:
            at = rng.randrange(len(source))
            source = (
                source[:at]
                + rng.choice(("{", "}", "%", "\0", "\x1b", "'", "{{"))
                + source[at + 1 :]
            )

        def run() -> str:
            text = ChatTemplate(source, "<s>", "</s>").render(MESSAGES)
            return f"{len(text)} characters"

        return Case(ascii(source), run)
