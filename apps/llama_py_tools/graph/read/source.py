"""Statements of source files by line."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType

from llama_py_tools.graph.read.record import PACKAGE


@dataclass(frozen=True, slots=True, order=True)
class Excerpt:
    """Lines `first` to `last` of a file, unchanged."""

    first: int
    last: int
    text: str


@dataclass(slots=True)
class Module:
    """Source file with its statements by line.

    Attributes:
        path: Path from the folder that has the package.
        lines: Text by line; line 1 is at index 0.
        statements: First and last line of the statement at a line; for a compound statement (if,
            for, with, def), of its header.
        otherwise: Line of the `else:` of a statement at a line.
        bodies: Lines below the header of a compound statement at a line.
        names: Qualified name of the function that starts at a line, decorators included.
    """

    path: str
    lines: list[str]
    statements: dict[int, tuple[int, int]]
    otherwise: dict[int, int]
    bodies: dict[int, range]
    names: dict[int, str]

    def excerpt(self, line: int) -> Excerpt:
        """Return the statement at a line."""
        first, last = self.statements.get(line, (line, line))
        return Excerpt(first, last, "\n".join(self.lines[first - 1 : last]))

    def excerpts(self, lines: set[int]) -> list[Excerpt]:
        """Return the statements on these lines, with `else:` lines, without skipped branches."""
        more = {self.otherwise[n] for n in lines if n in self.otherwise}
        run = {n for n in lines if n not in self.bodies or not lines.isdisjoint(self.bodies[n])}
        return sorted({self.excerpt(n) for n in run | more})

    def name(self, code: CodeType) -> str:
        """Return the qualified name of a function."""
        return self.names.get(code.co_firstlineno, code.co_name)


@cache
def module(path: str) -> Module:
    """Read a source file."""
    text = Path(path).read_text("utf-8")
    made = Module(str(Path(path).relative_to(PACKAGE.parent)), text.splitlines(), {}, {}, {}, {})
    _read(made, ast.parse(text), "")
    return made


def _read(made: Module, parent: ast.AST, prefix: str) -> None:
    for child in ast.iter_child_nodes(parent):
        inner = prefix
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inner = f"{prefix}{child.name}."
            decorators = [d.lineno for d in child.decorator_list]
            made.names[min([child.lineno, *decorators])] = inner[:-1]
        if isinstance(child, ast.stmt):
            body = getattr(child, "body", None)
            last = body[0].lineno - 1 if body else child.end_lineno or child.lineno
            span = (child.lineno, max(child.lineno, last))
            made.statements |= dict.fromkeys(range(span[0], span[1] + 1), span)
            if body:
                below = range(span[1] + 1, (child.end_lineno or span[1]) + 1)
                made.bodies |= dict.fromkeys(range(span[0], span[1] + 1), below)
        if isinstance(child, ast.If) and child.orelse:
            _read_else(made, child)
        _read(made, child, inner)


def _read_else(made: Module, branch: ast.If) -> None:
    start = branch.orelse[0].lineno
    for line in range(start - 1, branch.body[-1].end_lineno or start, -1):
        if made.lines[line - 1].strip().startswith("else:"):
            for part in branch.orelse:
                covered = range(part.lineno, (part.end_lineno or part.lineno) + 1)
                made.otherwise |= dict.fromkeys(covered, line)
