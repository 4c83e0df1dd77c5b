"""Sections as one HTML page without scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

from llama_py_tools.graph.read.source import Excerpt
from llama_py_tools.graph.read.text import common_indent, describe, heading, note
from llama_py_tools.graph.read.tree import Function, ReadNode, Section, Statement
from llama_py_tools.graph.view.families import meaning

STYLES = ("scheme.css", "read.css")
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(title: str, graphs: Sequence[tuple[str, Sequence[Section]]]) -> Iterator[str]:
    """Yield the page in pieces: per graph a list of sections, then the sections."""
    folder = files("llama_py_tools.graph.page")
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<title>{escape(title)}</title>\n<style>\n"
    yield from ((folder / name).read_text("utf-8") for name in STYLES)
    yield f"</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n"
    for number, (what, parts) in enumerate(graphs):
        yield f"<h2>{escape(what)}</h2>\n<nav><ol>\n"
        for k, part in enumerate(parts):
            yield f'<li><a href="#s{number}-{k}">{escape(heading(part))}</a></li>\n'
        yield "</ol></nav>\n"
        for k, part in enumerate(parts):
            yield f'<section id="s{number}-{k}">\n<h3>{escape(heading(part))}</h3>\n'
            for function in part.functions.values():
                yield from _function(function, part)
            yield "</section>\n"
    yield "</body>\n</html>\n"


def _function(function: Function, part: Section) -> Iterator[str]:
    yield f'<details open class="function"><summary><b>{escape(function.name)}</b> '
    yield f"<small>{escape(function.place)}</small></summary>\n"
    indent = common_indent(function)
    for excerpt, statement in function.list_statements():
        yield from _statement(excerpt, statement, part, indent)
        for called in statement.calls.values():
            yield from _function(called, part)
    yield "</details>\n"


def _statement(excerpt: Excerpt, statement: Statement, part: Section, indent: int) -> Iterator[str]:
    lines = [line[indent:] for line in excerpt.text.splitlines()]
    yield f'<div class="line"><i>{excerpt.first}</i><pre>{escape(chr(10).join(lines))}</pre>'
    if nodes := statement.first_layer_nodes():
        yield "<ul>"
        if remark := note(statement, part):
            yield f'<li class="note">{escape(remark)}</li>'
        yield from map(_node, nodes)
        yield "</ul>"
    yield "</div>\n"


def _node(node: ReadNode) -> str:
    name, kind, formed = map(escape, describe(node))
    about = escape(meaning(node.made.tensor.op))
    return f'<li title="{about}"><b>{name}</b> <span>{kind}</span> <code>{formed}</code></li>'
