"""Ways to draft that keep what they were asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from llama_py.decoding.drafting.drafter import Drafter, DraftRequest


class Watched:
    """texts, drafts   what was asked, and what was answered"""

    texts: list[list[int]]
    drafts: list[list[int]]


def watch(monkeypatch: pytest.MonkeyPatch, kind: type[Drafter]) -> type[Watched]:
    """From now on speculators draft this way, and what they ask is kept."""

    class Watching(Watched, kind):
        texts, drafts = [], []

        def draft(self, requests: Sequence[DraftRequest]) -> Mapping[int, list[int]]:
            found = super().draft(requests)
            for r in requests:
                self.texts.append(r.ids.tolist())
                self.drafts.append(found.get(r.seq_id, []))
            return found

    monkeypatch.setattr("llama_py.decoding.drafting.drafts.drafter", lambda _: Watching)
    return Watching
