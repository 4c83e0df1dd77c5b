"""llama-py-perplexity: scores of windows, whichever way they are batched and computed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import llama_py
from llama_py.context import Context
from llama_py_tools.measure.perplexity import Estimate, main, score
from tests.support.commands import DEMO
from tests.support.live_models import live, tokens

WINDOW = 64
TEXT = "".join(f"Citizen {i}:\nSpeak, speak the {i}th time.\n\n" for i in range(24))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("perplexity") / "text.txt"
    path.write_text(TEXT)
    return str(path)


@pytest.fixture(scope="module")
def expected() -> Estimate:
    """Window after window, all of its logits, in float64."""
    model = llama_py.load(str(DEMO))
    ids, ctx, estimate = model.tokenizer.tokenize(TEXT[:-1]), model.context(256), Estimate()
    for start in range(0, len(ids) // WINDOW * WINDOW, WINDOW):
        window = ids[start : start + WINDOW]
        ctx.clear()
        p = np.exp(ctx.decode(window, logits="all").astype(np.float64))
        p /= p.sum(axis=1, keepdims=True)
        scored = range(WINDOW // 2 + 1, WINDOW)
        estimate.add(-np.log(np.array([p[i - 1, window[i]] for i in scored])))
    return estimate


def estimates(capsys: pytest.CaptureFixture[str], *args: str) -> list[float]:
    """After each window, then the final one and its error."""
    assert main(["-m", str(DEMO), "-c", str(WINDOW), *args]) == 0
    line, final, rest = capsys.readouterr().out.split("\n")
    found = re.fullmatch(r"Final estimate: PPL = (\d+\.\d{4}) \+/- (\d+\.\d{5})", final)
    assert found is not None and rest == ""
    running = re.findall(r"\[(\d+)\](\d+\.\d{4}),", line)
    assert "".join(f"[{i}]{x}," for i, x in running) == line
    assert [int(i) for i, _ in running] == list(range(1, len(running) + 1))
    return [*(float(x) for _, x in running), float(found[1]), float(found[2])]


@pytest.mark.parametrize("n_batch", [2048, 150, 64, 20])
def test_windows_are_scored_however_they_are_batched(
    n_batch: int, text: str, expected: Estimate, capsys: pytest.CaptureFixture[str]
) -> None:
    found = estimates(capsys, "-f", text, "-b", str(n_batch))
    assert len(found) - 2 == expected.count / (WINDOW // 2 - 1)
    assert found[-3] == found[-2] == pytest.approx(expected.perplexity, rel=1e-3)
    assert found[-1] == pytest.approx(expected.error, rel=1e-2)


@pytest.mark.parametrize("form", ["chunked", "blocks", "autoregressive"])
def test_forms_of_the_delta_net_agree(
    form: str, text: str, expected: Estimate, capsys: pytest.CaptureFixture[str]
) -> None:
    found = estimates(capsys, "-f", text, "--delta-net", form, "-b", "64", "-ub", "32")
    assert found[-2] == pytest.approx(expected.perplexity, rel=1e-3)


def test_bos_stands_in_place_of_the_first_token() -> None:
    ids = tokens(40)
    ctx = Context(live("llama-dense"), n_ctx=256)
    plain, with_bos = (next(iter(score(ctx, ids, 20, 20, bos))) for bos in (None, 5))
    replaced = next(iter(score(ctx, [5, *ids[1:]], 20, 20)))
    assert np.array_equal(with_bos, replaced)
    assert not np.allclose(with_bos, plain, rtol=1e-3)


def test_estimates() -> None:
    estimate = Estimate()
    losses = np.array([1.0, 2.0, 3.0, 2.0])
    for part in (losses[:1], losses[1:]):
        estimate.add(part)
    assert estimate.perplexity == pytest.approx(np.exp(2))
    assert estimate.error == pytest.approx(np.exp(2) * losses.std(ddof=1) / 2)


def test_what_cannot_be_scored(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-f", text, "-c", "5000"]) == 1
    assert "at least 10000 tokens for windows of 5000" in capsys.readouterr().err
    assert main(["-f", str(tmp_path / "none")]) == 1
    assert "No such file" in capsys.readouterr().err
    for args in ([], ["-f", text, "-c", "3"], ["-f", text, "-c", "x"]):
        with pytest.raises(SystemExit) as caught:
            main(args)
        assert caught.value.code == 2
    shown = capsys.readouterr().err
    assert "set a text with -f" in shown
    assert "must be an integer of at least 4, got 3" in shown
