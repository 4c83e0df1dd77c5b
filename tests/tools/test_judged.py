"""docs/judged.md: every tiny model was judged, and all was within its bound."""

from __future__ import annotations

import json

from dev import tiny_models as tiny
from dev.compare import judge_architectures as tool

RESULTS = json.loads(tool.DATA.read_text(encoding="utf-8"))
COMMAND = "python -m dev.compare.judge_architectures"


def test_every_tiny_model_was_judged() -> None:
    judged = {(arch, variant) for arch, found in RESULTS.items() for variant in found}
    missing = sorted({arch for arch, _ in set(tiny.every()) - judged})
    assert not missing, f"{COMMAND} {' '.join(missing)}"
    assert judged <= set(tiny.every()), f"{COMMAND} ARCH removes what is no more"


def test_the_page_is_what_was_found() -> None:
    assert tool.page(RESULTS) == tool.PAGE.read_text(encoding="utf-8"), COMMAND


def test_all_is_within_its_bound() -> None:
    assert [line for line in tool.rows(RESULTS) if "**" in line] == []


def test_what_is_beyond_a_bound_is_seen() -> None:
    good = next(iter(RESULTS["llama"].values()))
    for bad in ({"f32": 1e-3}, {"nodes": 0}, {"kept": 1.0}, {"tokens": good["tokens"] - 1}):
        assert "**" in tool.rows({"llama": {"dense": {**good, **bad}}})[2]
    assert "**no answer**" in tool.rows({"llama": {"dense": "no answer"}})[2]
