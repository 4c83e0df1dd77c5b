"""Tokens that are drawn at random have the same distribution with drafts."""

from __future__ import annotations

from functools import cache

import pytest

from dev.compare import judge_drafts as tool
from llama_py.batch import F32
from llama_py.decoding.sequences import Choose, Sequences

N_TEXTS = 12
exact = cache(tool.Exact)


def p_values(name: str) -> list[float]:
    """Return the p-values of one sequence and of the engine."""
    runs = [run(name, N_TEXTS, 0) for run in (tool.by_stream, tool.by_engine)]
    assert all(run.n_drafted for run in runs)
    assert all(run.texts.total() == N_TEXTS for run in runs)
    return [tool.p_value(run.texts, exact(tool.KINDS[name].target)) for run in runs]


@pytest.mark.parametrize("name", [name for name in tool.KINDS if name != "none"])
def test_drafted_tokens_have_the_exact_distribution(name: str) -> None:
    assert min(p_values(name)) > tool.BOUND
    assert tool.n_other(name, N_TEXTS, 0) == 0


@pytest.mark.parametrize("name", ["draft-simple", "ngram-cache"])
def test_a_draft_that_is_always_accepted_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Sequences.take

    def accept(self: Sequences, seq_id: int, choose: Choose) -> tuple[int, F32]:
        left = self._tracks[seq_id].draft[self._tracks[seq_id].n_taken :]
        return take(self, seq_id, (lambda row: left[0]) if left else choose)

    monkeypatch.setattr(Sequences, "take", accept)
    assert max(p_values(name)) < tool.BOUND
    assert tool.n_other(name, N_TEXTS, 0) > N_TEXTS
