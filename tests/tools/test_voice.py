"""Text and names stay readable: no file has more hits of `dev.docs.voice` than voice.txt says."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.docs.voice import excess, hits_of, limits


def test_no_file_reads_worse_than_it_did() -> None:
    allowed = limits()
    worse = {k: (n, allowed.get(k, 0)) for k, n in excess().items() if n > allowed.get(k, 0)}
    assert not worse, f"run `python -m dev.docs.voice PATH` on each: {worse}"


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ('"""Of a chunk."""', ["Of X, Y", "first line"]),
        ('"""Bytes of one chunk in a panel."""', []),
        ('"""Which device runs it, if any."""', ["first line"]),
        ("# The parent handles Ctrl-C and stops this worker if needed.", []),
        ("# Ctrl-C is for who asked; that ends us if it must", ["who"]),
        ("x = 'the file lies where it is told to'", ["lies", "where", "is kept", "tells"]),
        ("x = 'a file'", []),
        ("# its value is 'none', or `what` it read", []),
        ("def told(): ...", ["name"]),
        ("def in_waves(): ...", ["name"]),
        ("def read(): ...", []),
    ],
)
def test_rules(tmp_path: Path, text: str, rules: list[str]) -> None:
    path = tmp_path / "module.py"
    path.write_text(text, encoding="utf-8")
    assert sorted(h.rule for h in hits_of(path)) == sorted(rules)


def test_code_in_markdown_is_no_prose(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("It runs.\n```\nwhat is told\n```\nCall `what`; what else?\n", encoding="utf-8")
    assert [(h.line, h.rule) for h in hits_of(path)] == [(5, "what")]
