"""llama-py-perplexity: scores of tasks with several answers, and of overlapping windows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llama_py
from ggml_py.errors import ContextError
from llama_py.context import Context
from llama_py.sampler.mt19937 import Mt19937
from llama_py_tools.measure import choices
from llama_py_tools.measure.choices import (
    MAX_SEQUENCES,
    TRAILING,
    ChoiceTask,
    count_sequences,
    log_probs,
    read_choices,
    read_winogrande,
    winogrande_scores,
)
from llama_py_tools.measure.perplexity import main
from tests.support.choices import pack_choices
from tests.support.commands import DEMO
from tests.support.live_models import live

ENDINGS = ["speak.", "hear the people", "a", "is gone and away"]
WINO = """0,The king was taller than Tom so _ was seen first.,king,Tom,1
1,"The crown, which is old, did fit the king as the _ is small.",crown,king,2
x,no choice here,a,b,1
2,Cut off at the end _ .,a,b,1"""


@pytest.fixture(scope="module")
def ctx() -> Iterator[Context]:
    with llama_py.load(DEMO) as model:
        yield model.context(512, n_seq_max=4, kv_unified=True, n_batch=16)


def alone(ctx: Context, text: str, *more: int) -> np.ndarray:
    """Return the log probability of each token of a text but the first, in float64; more: tokens
    after the text."""
    ids = [*ctx.model.tokenizer.tokenize(text), *more]
    ctx.clear()
    rows = ctx.decode(ids, logits="all").astype(np.float64)
    rows -= np.log(np.exp(rows).sum(-1, keepdims=True))
    return rows[range(len(ids) - 1), ids[1:]]


def test_answers_share_what_is_common(ctx: Context) -> None:
    texts = [f"First Citizen: {ending}" for ending in ENDINGS]
    [scores] = log_probs(ctx, [ChoiceTask(texts, [True] * 4)])
    for text, found in zip(texts, scores, strict=True):
        assert len(found) > 0 and np.allclose(found, alone(ctx, text)[-len(found) :], atol=2e-3)


def test_what_follows_a_choice(ctx: Context) -> None:
    """The choice is skipped, and the last token too."""
    task = read_winogrande(WINO.encode(), 0)[0]
    [scores] = winogrande_scores(ctx, [task])
    for text, base, found in zip(task.texts, task.bases, scores, strict=True):
        n = len(ctx.model.tokenizer.tokenize(base))
        assert found == pytest.approx(alone(ctx, text)[n - 1 : -1].mean(), abs=2e-3)


def test_a_short_rest_is_scored_with_its_choice(ctx: Context) -> None:
    """The second choice's first token has the logits of the first text's end."""
    texts = ["The king is here.", "The king is a man."]
    task = ChoiceTask(texts, [True, False], ["The king is here", "The king is a man"])
    a, b = (ctx.model.tokenizer.tokenize(text) for text in texts)
    n = next(i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    assert min(len(a), len(b)) - n <= TRAILING
    [found] = winogrande_scores(ctx, [task])
    end = alone(ctx, texts[0], b[n])[-1]
    wanted = [alone(ctx, texts[0])[n - 1 : -1], [end, *alone(ctx, texts[1])[n:-1]]]
    assert found == pytest.approx([np.mean(one) for one in wanted], abs=2e-3)


TASKS = [
    ChoiceTask([f"{i} The {name}: {end}" for end in ENDINGS[: 2 + i % 3]], [True] * 4)
    for i, name in enumerate(["king", "First Citizen", "people", "man of Rome", "sea", "a"])
]


@pytest.mark.parametrize(
    "how, n_batches",
    [({"n_seq_max": 64}, 2), ({"n_seq_max": 10}, None), ({"n_seq_max": 5, "n_batch": 4}, None)],
)
def test_scores_do_not_depend_on_the_batch(
    ctx: Context, how: dict[str, int], n_batches: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With enough sequences the contexts are one batch, and all endings another."""
    made = ctx.model.context(512, **{"kv_unified": True, "cache_ram": 0, **how})
    decode, sizes = made.decode, list[int]()

    def note(batch: Any, *args: Any, **more: Any) -> Any:
        sizes.append(len(getattr(batch, "tokens", batch)))
        return decode(batch, *args, **more)

    monkeypatch.setattr(made, "decode", note)
    found = [*log_probs(made, TASKS)]
    assert n_batches in (None, len(sizes))
    for task, scores in zip(TASKS, found, strict=True):
        for text, own in zip(task.texts, scores, strict=True):
            assert np.allclose(own, alone(ctx, text)[-len(own) :], atol=2e-3)
    assert sum(sizes) < sum(
        len(ctx.model.tokenizer.tokenize(t)) for one in TASKS for t in one.texts
    )


def test_sequences_of_tasks() -> None:
    """All, but states of sequences have a limit, and separate caches are for one task."""
    tasks = [ChoiceTask(["a", "b"], [True, False])] * 40 + [ChoiceTask(["a"] * 4, [True] * 4)]
    with llama_py.load(DEMO) as model:
        assert count_sequences(model, tasks) == 40 * 3 + 5
        assert count_sequences(model, 2 * tasks) == MAX_SEQUENCES
    states = live("mamba2-dense", "cpu")
    assert count_sequences(states, tasks) == 40 * 3 + 5
    size = 4 * sum(
        one.n_embd_states
        for il in states.hparams.kept_layers
        for one in states.architecture.memory_spec(il)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choices, "STATE_BYTES", 7 * size)
        assert count_sequences(states, tasks) == 7
        patch.setattr(choices, "STATE_BYTES", size)
        assert count_sequences(states, tasks) == 5
    assert count_sequences(live("deepseek4-moe", "cpu"), tasks) == 5


def test_rows_of_winogrande() -> None:
    first, second = read_winogrande(WINO.encode(), 0)
    assert first.texts[1] == "The king was taller than Tom so Tom was seen first."
    assert second.bases[0] == "The crown, which is old, did fit the king as the crown"
    assert [first.right, second.right] == [[True, False], [False, True]]
    with pytest.raises(ContextError, match="WinoGrande file: each row must have an index"):
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
