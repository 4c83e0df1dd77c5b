"""llama-py-perplexity: scores of tasks with several answers, and of overlapping windows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import llama_py
from ggml_py.errors import ContextError
from llama_py.context import Context
from llama_py.sampler.mt19937 import Mt19937
from llama_py_tools.measure.choices import (
    ChoiceTask,
    log_probs,
    read_choices,
    read_winogrande,
    winogrande_scores,
)
from llama_py_tools.measure.perplexity import main
from tests.support.choices import pack_choices
from tests.support.commands import DEMO

ENDINGS = ["speak.", "hear the people", "a", "is gone and away"]
WINO = """0,The king was taller than Tom so _ was seen first.,king,Tom,1
1,"The crown, which is old, did fit the king as the _ is small.",crown,king,2
x,no choice here,a,b,1
2,Cut off at the end _ .,a,b,1"""


@pytest.fixture(scope="module")
def ctx() -> Iterator[Context]:
    with llama_py.load(DEMO) as model:
        yield model.context(512, n_seq_max=4, kv_unified=True, n_batch=16)


def alone(ctx: Context, text: str) -> np.ndarray:
    """Return the log probability of each token of a text but the first, in float64."""
    ids = ctx.model.tokenizer.tokenize(text)
    ctx.clear()
    rows = ctx.decode(ids, logits="all").astype(np.float64)
    rows -= np.log(np.exp(rows).sum(-1, keepdims=True))
    return rows[range(len(ids) - 1), ids[1:]]


def test_answers_share_what_is_common(ctx: Context) -> None:
    texts = [f"First Citizen: {ending}" for ending in ENDINGS]
    for text, found in zip(texts, log_probs(ctx, ChoiceTask(texts, [True] * 4)), strict=True):
        assert len(found) > 0 and np.allclose(found, alone(ctx, text)[-len(found) :], atol=2e-3)


def test_what_follows_a_choice(ctx: Context) -> None:
    """The choice is skipped, and the last token too."""
    task = read_winogrande(WINO.encode(), 0)[0]
    for text, base, found in zip(task.texts, task.bases, winogrande_scores(ctx, task), strict=True):
        n = len(ctx.model.tokenizer.tokenize(base))
        assert found == pytest.approx(alone(ctx, text)[n - 1 : -1].mean(), abs=2e-3)


def test_rows_of_winogrande() -> None:
    first, second = read_winogrande(WINO.encode(), 0)
    assert first.texts[1] == "The king was taller than Tom so Tom was seen first."
    assert second.bases[0] == "The crown, which is old, did fit the king as the crown"
    assert [first.right, second.right] == [[True, False], [False, True]]
    with pytest.raises(ContextError, match="WinoGrande file: no row"):
        read_winogrande(b"1,2\n", 0)


def test_binary_tasks() -> None:
    tasks = [(f"Who {i}?", ["a", "b", "c"][: 2 + i % 2], i % 2) for i in range(9)]
    data = pack_choices(tasks)
    assert [task.right.index(True) for task in read_choices(data, 0)] == [i % 2 for i in range(9)]
    assert read_choices(data, 0)[1].texts == ["Who 1? a", "Who 1? b", "Who 1? c"]
    chosen = [task.texts[0] for task in read_choices(data, 3)]  # 0.417, 0.997, 0.720 of 9, 8, 7
    assert chosen == ["Who 3? a", "Who 7? a", "Who 5? a"]
    for bad in (b"", data[:-1], pack_choices([("", ["a"], 0)])):
        with pytest.raises(ContextError, match="multiple-choice file: "):
            read_choices(bad, 0)


def test_numbers_below_a_bound() -> None:
    """Those of libstdc++'s uniform_int_distribution<size_t>."""
    values = [4, 8, 5, 2797672083, 0, 0, 0, 4]
    random = Mt19937(1)
    assert [random.uniform_int(n) for n in (10, 9, 8, 3_000_000_000, 3, 2, 1, 5)] == values


def test_hellaswag(tmp_path: Path, capsys: pytest.CaptureFixture[str], ctx: Context) -> None:
    texts = [f"First Citizen: {ending}" for ending in ENDINGS]
    ids = [ctx.model.tokenizer.tokenize(text) for text in texts]
    n = next(i for i, some in enumerate(zip(*ids, strict=False)) if len({*some}) > 1)
    best = int(np.argmax([alone(ctx, text)[n - 1 :].mean() for text in texts]))
    path = tmp_path / "hellaswag.txt"
    for right, share in ((best, "100"), ((best + 1) % 4, "0")):
        path.write_text("\n".join(["First Citizen:", str(right), *ENDINGS]) + "\n")
        assert main(["-m", str(DEMO), "-f", str(path), "--hellaswag", "-c", "128"]) == 0
        out = capsys.readouterr().out
        assert f"\n1\t{share}.00000000%\t[" in out
    path.write_text("a\nb\n")
    assert main(["-m", str(DEMO), "-f", str(path), "--hellaswag"]) == 1
    assert "must be a multiple of 6" in capsys.readouterr().err


def test_overlapping_windows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ctx: Context
) -> None:
    """Windows are as long as llama.cpp's context, a multiple of 256; the last 100 count."""
    path = tmp_path / "text.txt"
    path.write_text("".join(f"Citizen {i}: Speak the {i}th time.\n" for i in range(60)))
    args = ["-m", str(DEMO), "-f", str(path), "-c", "64", "--ppl-stride", "100", "--chunks", "2"]
    assert main(args) == 0
    found = [float(x) for x in re.findall(r"\](\d+\.\d+),", capsys.readouterr().out)]
    ids = ctx.model.tokenizer.tokenize(path.read_text()[:-1])
    losses = []
    for start, value in zip((0, 100), found, strict=True):
        window = ids[start : start + 256]
        ctx.clear()
        rows = ctx.decode(window, logits="all").astype(np.float64)
        rows -= np.log(np.exp(rows).sum(-1, keepdims=True))
        losses += [-rows[i - 1, window[i]] for i in range(156, 256)]
        assert value == pytest.approx(np.exp(np.mean(losses)), rel=1e-3)
