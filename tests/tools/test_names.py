"""Names of functions and classes: the limits of dev/docs/names.txt only fall."""

from __future__ import annotations

import pytest

from dev.docs.names import Flagged, counts, flagged_names, limits

NOW = counts()


@pytest.mark.parametrize("rule", NOW)
def test_flagged_names(rule: str) -> None:
    package = rule.partition(":")[0]
    assert NOW[rule] <= limits()[rule], (
        f"{package}: give new functions a verb and new classes a noun;"
        " `python -m dev.docs.names FILE ...` lists flagged names"
    )
    assert NOW[rule] == limits()[rule], "run `python -m dev.docs.names --lower`"


def test_rules() -> None:
    text = """
class Kept: ...
class KeptFiles: ...
class _Whole:
    def told_of(self): ...
    def is_on(self): ...
async def loaded(): ...
def read(): ...
def seed(): ...
"""
    assert sorted(flagged_names(text)) == [
        Flagged(2, "participle", "Kept"),
        Flagged(4, "preposition or quantifier", "_Whole"),
        Flagged(5, "ends in a preposition", "told_of"),
        Flagged(7, "participle", "loaded"),
    ]
