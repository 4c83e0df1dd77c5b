"""Sections as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from llama_py_tools.graph.layers import shape
from llama_py_tools.graph.read.formula import formula
from llama_py_tools.graph.read.source import Excerpt
from llama_py_tools.graph.read.tree import Function, ReadNode, Section, Statement

WIDTH = 100
INDENT = 2


def text(title: str, parts: Sequence[Section]) -> Iterator[str]:
    """Yield the lines of a graph."""
    yield f"{title}: {sum(1 for part in parts for _ in part.nodes())} nodes"
    for part in parts:
        yield ""
        yield "=" * WIDTH
        yield from textwrap.wrap(heading(part), WIDTH)
        yield "=" * WIDTH
        for function in part.functions.values():
            yield from _function(function, part, 0)


def heading(part: Section) -> str:
    """Return a section's title with its layers."""
    if not part.layers:
        return part.title
    return f"{_layers(part.layers)}: {part.title}".capitalize()


def spans(numbers: Sequence[int]) -> str:
    """Return sorted numbers as `0-2, 4`."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][-1] == n - 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)


def _layers(numbers: Sequence[int]) -> str:
    return f"{'layer' if len(numbers) == 1 else 'layers'} {spans(numbers)}"


def note(statement: Statement, part: Section) -> str:
    """Return which layers have a statement's nodes if the others of the section do not."""
    own = statement.layers
    return f"only {_layers(own)}" if own and own != part.layers else ""


def describe(node: ReadNode) -> tuple[str, str, str]:
    """Return a node's number and name, its op with type and shape, and its formula."""
    t = node.made.tensor
    return f"{node.number} {t.name}", f"{t.op} {shape(t)}", formula(node.made)


def _function(function: Function, part: Section, depth: int) -> Iterator[str]:
    pad = " " * INDENT * depth
    yield from _wrap(
        f"{function.name}  ({function.module.path}:{function.code.co_firstlineno})", pad
    )
    indent = common_indent(function)
    for excerpt, statement in function.list_statements():
        yield from _source(excerpt, indent, pad)
        if remark := note(statement, part):
            yield from _wrap(f"({remark})", f"{pad}       > ")
        for node in statement.first_layer_nodes():
            name, kind, formed = describe(node)
            yield from _wrap(f"{name}  {kind}", f"{pad}       > ")
            yield from _wrap(formed, f"{pad}           = ")
        for called in statement.calls.values():
            yield from _function(called, part, depth + 1)


def common_indent(function: Function) -> int:
    """Return the number of spaces that all lines of a function's statements start with."""
    texts = [e.text for e in function.statements]
    return min((len(t) - len(t.lstrip()) for t in texts), default=0)


def _source(excerpt: Excerpt, indent: int, pad: str) -> Iterator[str]:
    for number, line in enumerate(excerpt.text.splitlines(), excerpt.first):
        whole = f"{pad}{number:5d}  {line[indent:]}".rstrip()
        hang = " " * (len(pad) + 11)
        yield from textwrap.wrap(whole, WIDTH, subsequent_indent=hang, break_on_hyphens=False)


def _wrap(line: str, pad: str) -> Iterator[str]:
    yield from textwrap.wrap(
        line, WIDTH, initial_indent=pad, subsequent_indent=" " * (len(pad) + 2)
    )
