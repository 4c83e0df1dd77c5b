"""Find participles, prepositions and quantifiers among names of functions and classes.

    python -m dev.docs.names            # each such name of the shipped packages, with its line
    python -m dev.docs.names PATH ...   # the same of some files

Functions are verbs, predicates start with is, has, can or supports, and classes, modules and
properties are nouns.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dev.docs.rooms import ROOT
from dev.docs.structure import SHIPPED, modules

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
        "(?!is_|has_|can_|visit_|transfer_from$)[a-z0-9_]+_"
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


def shipped_names() -> Iterator[tuple[str, Flagged]]:
    """Yield the flagged names of the shipped packages, each with its module."""
    for package in SHIPPED:
        for module in modules(ROOT, package):
            for one in flagged_names(module.text):
                yield module.name, one


def main(paths: Sequence[str]) -> int:
    """Print flagged names; return 1 if there are any."""
    texts = ((path, Path(path).read_text(encoding="utf-8")) for path in paths)
    found = [(path, one) for path, text in texts for one in flagged_names(text)]
    found = found if paths else list(shipped_names())
    for path, one in found:
        print(f"{path}:{one.line}: {one.rule}: {one.name}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
