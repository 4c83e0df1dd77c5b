"""Shipped class names of two meanings or more: this list only shrinks."""

from __future__ import annotations

from dev.docs.rooms import ROOT
from dev.docs.structure import SHIPPED, class_names, modules

SEVERAL = "Decoder Event Plan Rows Scheduler SlotInfo Source Step Tables Template"


def test_names_of_two_meanings() -> None:
    shipped = [m for package in SHIPPED for m in modules(ROOT, package)]
    found = {name for name, n in class_names(shipped).items() if n > 1}
    allowed = set(SEVERAL.split())
    assert not found - allowed, "give each of these classes a noun of its own"
    assert not allowed - found, "take these names off the list"
