"""Find prose and names that are hard to read without knowing the project.

    python -m dev.docs.voice                # hits per 1,000 words of each package
    python -m dev.docs.voice PATH ...       # each hit in these files, with its line
    python -m dev.docs.voice --lower        # lower the limits in voice.txt to today's hits

Prose is docstrings, comments, strings of three words or more, and Markdown outside code. A file may
have 6 hits per 1,000 words; voice.txt lists the files that have more, and how many they may have.
A pattern also occurs in good prose: its density makes a text hard to read.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
LIMITS = Path(__file__).with_name("voice.txt")
PACKAGES = (
    "ggml_py",
    "llama_py",
    "backends",
    "apps",
    "dev",
    "docs",
    "README.md",
    "CONTRIBUTING.md",
)
GENERATED = re.compile("architectures|options|ops|judged|llama-completion|CHANGELOG")
PER_WORD = 6 / 1000

WORDS = {
    "what": r"\b[Ww]hat\b",
    "who": r"\b[Ww]ho(ever|se|m)?\b",
    "those of": r"\b([Tt]hat|[Tt]hose) (of|in|with|from|at|on|for)\b"
    r"|\b[Tt]hose (that|which|who)\b|\b[Oo]ne (that|of|which|who)\b|\b[Oo]nes\b",
    "tells": r"\b([Tt]ell(s|ing)?|[Tt]old|[Ss]ay(s|ing)?|[Ss]aid)\b",
    "lies": r"\b(lies?|lay|stands?|stood|lives?|stays?|stayed|goes|comes?|came|leaves?)\b",
    "is kept": r"\b(is|are|was|were|be|been) (told|said|asked|given|kept|made|meant|taken|left|had"
    r"|seen|looked|wanted|known|put|held|read|gone|done)\b"
    r"|\b(is|are) to (be|have|go|do|hold|keep|read)\b",
    "is there": r"\b(is|are|was|were|be) there\b"
    r"|\b[Tt]here (is|are|was|were) (no|none|nothing|one|some)\b",
    "where": r"\b[Ww]here (it|they|the|a|an|there|no|that|this|one|those|others|several"
    r"|[a-z]+s)\b",
    "of which": r"\b(of|in|by|with|from|to|for|at|on|over) (which|whom|whose|it|them|these"
    r"|those)\b",
    "Of X, Y": r"(^|[.;:] )Of [A-Za-z0-9_`]",
    "so many": r"\b([Ss]o|[Aa]s) (many|much|long|few|large|far)\b|\bat (most|least)([.,;:)]|$)",
    "anew": r"\b([Aa]new|[Bb]esides?|[Bb]ehind|[Mm]eanwhile|[Ll]ikewise|[Nn]evertheless|[Ww]herever"
    r"|[Ww]hatever|[Ww]hichever)\b",
    "as it has": r"\bas ([a-z.]+ )?(has|have|had|does|do|did|says?|wants?|it is|it was|they are"
    r"|ever|there|before|without|elsewhere)\b",
    "tokens a second": r"\b([Tt]okens?|files?|lines?|rows?|bytes?|messages?|columns?|threads?"
    r"|kernels?|nodes?|one|once|values?|sums?|times|steps?|bits) an? [a-z]+\b",
    "nothing": r"\b([Nn]othing|none|[Nn]either|[Nn]or)\b",
    "somebody": r"\b([Ss]omebody|[Aa]nybody|[Nn]obody|[Nn]eighbou?rs?|[Ss]trangers?|[Rr]ude|eyes?"
    r"|[Ss]ight|[Tt]alk(s|ed|ing)?|[Gg]uess(es|ed)?)\b",
    ", too": r", too\b|\bof (its|their|one's|your) own\b|\bby (itself|themselves|turns)\b"
    r"|\bin turn\b|\bonce more\b",
}
PATTERNS = {name: re.compile(pattern) for name, pattern in WORDS.items()}
FRAGMENT = re.compile(
    r"(Of|By|As|In|With|For|From|To|At|Before|Without|What|Which|Where|How|Whether|Those|That|Its|No"
    r"|Nothing|Only)\b"
)
BEFORE = "of|in|by|for|over|into|beside|behind|before|after|without"
NAME = re.compile(
    r"_?((?!embed$|seed$|feed$|need$|speed$)[a-z]+ed|(?!string$|ring$)[a-z]+ing|told|kept|made|held"
    r"|given|taken|found|seen|known|said|meant|left|gone|done|begun"
    rf"|({BEFORE})(_[a-z0-9_]+)?|[a-z0-9_]+_({BEFORE}|with|from|to|at|on))$"
)


class Hit(NamedTuple):
    """A place that a reader would stumble over; rule: the pattern's name."""

    line: int
    rule: str
    text: str


class Prose(NamedTuple):
    """A line of text for people; first: of a docstring."""

    line: int
    text: str
    first: bool = False


@cache
def prose_of(path: Path) -> tuple[Prose, ...]:
    """Return the lines of a file that people read."""
    text = path.read_text(encoding="utf-8")
    return tuple(_markdown(text) if path.suffix == ".md" else _python(text))


def _markdown(text: str) -> Iterator[Prose]:
    code = False
    for i, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code and line.strip():
            yield Prose(i, _hide_values(line))


def _python(text: str) -> Iterator[Prose]:
    tree, docstrings = ast.parse(text), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node, clean=False) is None:
                continue
            found = node.body[0].value  # type: ignore[union-attr]
            docstrings.add(found)
            lines = enumerate(found.value.splitlines())
            yield from (
                Prose(found.lineno + i, _hide_values(t), first=i == 0)
                for i, t in lines
                if t.strip()
            )
    for node in ast.walk(tree):
        value = getattr(node, "value", None) if node not in docstrings else None
        if isinstance(value, str) and _is_prose(value):
            yield Prose(node.lineno, _hide_values(value))  # type: ignore[attr-defined]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and _is_prose(token.string):
            yield Prose(token.start[0], _hide_values(token.string))


def _hide_values(text: str) -> str:
    """Replace code in backticks, and single words in quotes, by x: they are values, not prose."""
    return re.sub(r"`[^`]*`|(?<!\w)(['\"])[\w-]+\1", "`x`", text)


def _is_prose(text: str) -> bool:
    """Return True for three words or more, unless they are for a tool."""
    return len(text.split()) > 2 and not re.match(r"#!|# (fmt|type|noqa|ruff)", text)


def hits_of(path: Path) -> Iterator[Hit]:
    """Yield the hits in a file: patterns in its prose, first lines of docstrings, and names."""
    for line, text, first in prose_of(path):
        for rule, pattern in PATTERNS.items():
            yield from (Hit(line, rule, text.strip()) for _ in pattern.finditer(text))
        if first and (FRAGMENT.match(text.strip()) or len(text.split()) < 4):
            yield Hit(line, "first line", text.strip())
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and NAME.match(node.name):
                yield Hit(node.lineno, "name", node.name)


def n_words(path: Path) -> int:
    """Return the number of words of a file's prose."""
    return sum(len(p.text.split()) for p in prose_of(path))


def files() -> list[Path]:
    """Return the files that people read, as git lists them: no tests, no generated pages."""
    listed = subprocess.check_output(["git", "ls-files", *PACKAGES], cwd=ROOT, text=True).split()
    paths = [ROOT / name for name in listed if name.endswith((".py", ".md"))]
    return [
        p for p in paths if p != Path(__file__) and not GENERATED.fullmatch(p.stem) and p.is_file()
    ]


def limits() -> dict[str, int]:
    """Return the hits that each file of voice.txt may have."""
    rows = (line.rsplit(" ", 1) for line in LIMITS.read_text(encoding="utf-8").splitlines())
    return {name: int(n) for name, n in rows}


def excess() -> dict[str, int]:
    """Return the hits of each file that has more than PER_WORD allows."""
    counts = {p: sum(1 for _ in hits_of(p)) for p in files()}
    allowed = {p: 1 + int(n_words(p) * PER_WORD) for p, n in counts.items() if n}
    return {p.relative_to(ROOT).as_posix(): counts[p] for p, n in allowed.items() if counts[p] > n}


def lower() -> None:
    """Write voice.txt with the lower of its limits and today's hits; it gains no file."""
    old, now = limits() if LIMITS.exists() else None, excess()
    kept = now if old is None else {k: min(n, old[k]) for k, n in now.items() if k in old}
    LIMITS.write_text("".join(f"{k} {n}\n" for k, n in sorted(kept.items())), encoding="utf-8")


def table() -> None:
    """Print words and hits of each package."""
    words: Counter[str] = Counter()
    hits: Counter[str] = Counter()
    for path in files():
        package = path.relative_to(ROOT).parts[0]
        words[package] += n_words(path)
        hits[package] += sum(1 for _ in hits_of(path))
    print("| package | words | hits | per 1,000 words |\n|---|---:|---:|---:|")
    for package, n in words.items():
        print(f"| `{package}` | {n:,} | {hits[package]:,} | {1000 * hits[package] / n:.1f} |")


def main(argv: Sequence[str]) -> int:
    """Print a table, or the hits in some files; return 1 if these have hits."""
    if argv == ["--lower"]:
        lower()
    elif not argv:
        table()
    found = 0
    for name in argv if argv != ["--lower"] else ():
        for hit in sorted(hits_of(Path(name))):
            found += 1
            print(f"{name}:{hit.line}: {hit.rule}: {hit.text[:100]}")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
