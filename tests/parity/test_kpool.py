"""Pools of tokens whose keys are kept: what is made anew after sequences were changed is what
llama.cpp makes anew, and gives the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest

pytest.importorskip("llama_cpp")

from dev.record.golden.engines import LlamaCpp, Ours
from dev.record.golden.runs import batch, joined
from ggml_py.inspection.dump import diff
from tests.support.commands import tiny_model
from tests.support.live_models import nmse, tokens

NAME = "glm5-next-moe"
N_SEQS, N_BACK = 3, 3


class Step(NamedTuple):
    """A change of the memory (its name, and arguments), or tokens: (sequence, position, how many)
    together."""

    change: tuple[Any, ...] = ()
    decode: Sequence[tuple[int, int, int]] = ()


def decoded(*parts: tuple[int, int, int]) -> Step:
    return Step(decode=parts)


def changed(*what: Any) -> Step:
    return Step(what)


# Prompts are longer than what is gathered; pools are of 4 tokens.
ALONE = [
    decoded((0, 0, 37)),
    decoded((0, 37, 5)),
    changed("seq_rm", 0, 40, -1),
    decoded((0, 40, 1)),
    changed("seq_add", 0, 0, -1, 3),
    decoded((0, 44, 4)),
    decoded((1, 0, 30)),
    decoded((0, 48, 1), (1, 30, 1)),
    changed("seq_rm", 0, -1, -1),
    decoded((1, 31, 2)),
    decoded((0, 5, 22)),
]
SHARED = [
    decoded((0, 0, 38)),
    changed("seq_cp", 0, 1, -1, -1),
    decoded((0, 38, 2), (1, 38, 2)),
    decoded((1, 40, 20)),
    changed("seq_rm", 1, 58, -1),
    decoded((1, 58, 3)),
    changed("seq_cp", 1, 2, -1, -1),
    decoded((2, 61, 1)),
    changed("seq_rm", 1, -1, -1),
    decoded((2, 62, 1)),
    changed("seq_rm", 0, -1, -1),
    decoded((2, 63, 20)),
    changed("seq_rm", 2, -1, -1),
    decoded((0, 0, 19), (1, 0, 19)),
]
# Not of caches apart: there llama.cpp keeps the other sequences.
KEPT = [
    decoded((0, 0, 21)),
    changed("seq_cp", 0, 1, -1, -1),
    decoded((1, 21, 18)),
    changed("seq_keep", 1),
    decoded((1, 39, 2)),
]


# With caches of their own or not, with flash attention or not.
RUNS = [
    (ALONE, True, True),
    (ALONE, False, False),
    (SHARED, True, False),
    (SHARED, False, True),
    (KEPT, True, True),
]


@pytest.mark.parametrize(("steps", "unified", "flash"), RUNS)
def test_after_each_change(
    steps: Sequence[Step], unified: bool, flash: bool, tmp_path: Path
) -> None:
    how: dict[str, Any] = {
        "n_seqs": N_SEQS,
        "unified": unified,
        "n_rs_seq": N_BACK,
        "nodes": True,
        "cache": "f32",
        "flash": flash,
    }
    path = tiny_model(tmp_path, NAME)
    ours = Ours(path, **how, forms={"pool_attention": "gathered"})
    with LlamaCpp(path, **how) as theirs:
        for i, step in enumerate(steps):
            if step.change:
                what, *args = step.change
                changes_of(theirs)(what)(*args)
                getattr(ours.ctx.memory, what)(*args)
                continue
            parts = [batch(tokens(n, seed=i + s), first, "all", s) for s, first, n in step.decode]
            n_rows = sum(n for *_, n in step.decode)
            for engine in (theirs, ours):
                engine.nodes.clear()
                engine.run(joined(parts))
            assert str(diff(ours.nodes, theirs.nodes) or "") == "", f"step {i}"
            rows = zip(theirs.logits(n_rows), ours.logits(n_rows), strict=True)
            # of a row or two another expert may be chosen by a rounding
            assert median(nmse(x, y) for x, y in rows) < 3e-6, f"step {i}"


def changes_of(theirs: LlamaCpp) -> Callable[[str], Callable[..., Any]]:
    api, memory = theirs.api, theirs.api.llama_get_memory(theirs.ctx)
    return lambda what: lambda *args: getattr(api, f"llama_memory_{what}")(memory, *args)
