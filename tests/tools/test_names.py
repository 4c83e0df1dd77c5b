"""Names of functions and classes are verbs and nouns."""

from __future__ import annotations

from dev.docs.names import Flagged, flagged_names, shipped_names


def test_no_name_is_flagged() -> None:
    found = [f"{module}:{one.line}: {one.rule}: {one.name}" for module, one in shipped_names()]
    assert not found, "give functions a verb and classes a noun"


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
