"""Count participles, prepositions and quantifiers among names of functions and classes.

    python -m dev.docs.names            # counts per package
    python -m dev.docs.names PATH ...   # each such name in some files, with its line
    python -m dev.docs.names --lower    # lower the limits in names.txt to today's counts

Functions are verbs, predicates start with is, has, can or supports, and classes, modules and
properties are nouns. names.txt has the limits of each package: they only fall.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dev.docs.rooms import ROOT
from dev.docs.structure import SHIPPED, modules

LIMITS = Path(__file__).with_name("names.txt")
PREPOSITIONS = (
    "of|in|by|for|over|into|beside|behind|before|after|without|with|within|from|to|at|on|under"
    "|between|beyond|above|below|near|since|until|like|as|up|down|out|off|through|past|against"
)
# Words with the form of a participle that are nouns, verbs or field terms.
OTHER = "embed|seed|feed|need|speed|shared|nested|fixed|unembed"
RULES = {
    "participle": re.compile(
        rf"(?!({OTHER})$)[a-z]+ed|told|kept|made|held|given|taken|found|seen|known|said|meant|left"
        "|gone|done|begun|shown|sent|lost|got|had|been|met|won|thought|brought|bought|caught|taught"
        "|built|chosen|written|drawn|thrown|grown|broken|spoken|hidden|stood|understood|felt|laid"
        "|paid|lent|spent|bound|wound|worn|torn"
    ),
    "preposition or quantifier": re.compile(
        rf"{PREPOSITIONS}|several|whole|alone|apart|only|all|any|both|each|every|few|many|more|most"
        "|much|none|nothing|other|others|own|same|some|such|theirs|mine|ours|there|here|again|anew"
        "|afresh|ahead|away|back|once|twice|together|elsewhere|what|which|who|how|why|where|when"
        "|least|less|enough|half|plain|ready|likely|near|far|long|short|wide|deep|idle|equal|large"
        "|largest|smallest|longest|best|worst|first|last|late|lazily|early|quiet|quick|live|lone"
    ),
    "ends in a preposition": re.compile(
        "(?!is_|has_|can_|visit_)[a-z0-9_]+_"
        "(of|in|by|for|over|into|beside|behind|before|after|without|with|from|to|at|on)"
    ),
}


class Flagged(NamedTuple):
    """A name that breaks a rule; rule: a key of RULES."""

    line: int
    rule: str
    name: str


def flagged_names(text: str) -> Iterator[Flagged]:
    """Yield names of functions and classes in a source text that break a rule."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", node.name).lower().strip("_")
            for rule, pattern in RULES.items():
                if pattern.fullmatch(name):
                    yield Flagged(node.lineno, rule, node.name)


def counts() -> dict[str, int]:
    """Return the number of flagged names by package and rule, `package: rule`."""
    found: Counter[str] = Counter()
    for package in SHIPPED:
        for module in modules(ROOT, package):
            found.update(f"{package}: {one.rule}" for one in flagged_names(module.text))
    return {f"{p}: {rule}": found[f"{p}: {rule}"] for p in SHIPPED for rule in RULES}


def limits() -> dict[str, int]:
    """Return the limits of names.txt by package and rule."""
    rows = (line.rsplit(" ", 1) for line in LIMITS.read_text(encoding="utf-8").splitlines())
    return {name: int(n) for name, n in rows}


def main(argv: Sequence[str]) -> int:
    """Print counts, or the flagged names in some files; return 1 if these have any."""
    if argv == ["--lower"]:
        old = limits() if LIMITS.exists() else {}
        now = {name: min(n, old.get(name, n)) for name, n in counts().items()}
        LIMITS.write_text("".join(f"{name} {n}\n" for name, n in now.items()), encoding="utf-8")
    elif not argv:
        now = counts()
        print(f"| package | {' | '.join(RULES)} |\n|---|{'---:|' * len(RULES)}")
        for p in SHIPPED:
            print(f"| `{p}` | {' | '.join(str(now[f'{p}: {rule}']) for rule in RULES)} |")
    found = 0
    for path in argv if argv != ["--lower"] else ():
        for line, rule, name in flagged_names(Path(path).read_text(encoding="utf-8")):
            found += 1
            print(f"{path}:{line}: {rule}: {name}")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
