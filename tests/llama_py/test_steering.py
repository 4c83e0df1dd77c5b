"""Control vectors that are trained: the direction, the file, what they do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llama_py
from ggml_py.errors import ContextError, GGUFError
from llama_py.gguf.file import GGUFFile
from llama_py.model import Model
from llama_py.steering import ControlVector, Pair, template_pairs, train
from llama_py.steering.reduce import mean, pca
from llama_py_tools.measure.cvector_generator import main
from tests.support.commands import DEMO
from tests.support.live_models import live

PAIRS = template_pairs(
    "{}:\nMy", ["ROMEO", "JULIET"], ["GLOUCESTER", "WARWICK"], suffixes=["", " heart is"]
)


@pytest.fixture(scope="module")
def model() -> Model:
    return llama_py.load(str(DEMO))


@pytest.mark.parametrize("shape", [(40, 12), (7, 30), (1, 9), (64, 64)])
def test_the_first_principal_direction(shape: tuple[int, int]) -> None:
    rows = np.random.default_rng(sum(shape)).standard_normal(shape) + 0.2
    want = np.linalg.svd(rows)[2][0]
    found = pca(rows.astype(np.float32))
    assert abs(want @ found) > 1 - 1e-9
    assert np.linalg.norm(found) == pytest.approx(1)
    assert found @ rows.mean(0) > 0
    np.testing.assert_allclose(pca(-rows), -found, atol=1e-6)


def test_the_mean() -> None:
    rows = np.random.default_rng(3).standard_normal((5, 8))
    np.testing.assert_allclose(mean(rows), rows.mean(0) / np.linalg.norm(rows.mean(0)))


@pytest.mark.parametrize("method", ["pca", "mean"])
def test_a_direction_is_that_of_the_differences(method: str, model: Model) -> None:
    """Of what layers read, token by token, the shorter prompt with spaces at its end."""
    pair = Pair("ROMEO:\nMy heart", "WARWICK:\nMy heart is gone")
    found = train(model, [pair], method)
    assert (found.model_hint, found.directions.shape) == ("qwen35moe", (3, 256))
    a, b = (model.tokenize(text) for text in pair)
    space = model.tokenize(" ")[-1:]
    ctx, rows = model.context(n_ctx=64), []
    for ids in (a + space * (len(b) - len(a)), b):
        ctx.clear()
        with ctx.capture("l_out-1") as values:
            ctx.decode(ids)
        rows.append(values["l_out-1"])
    same = np.abs(rows[0] - rows[1]).max(1) < 1e-6
    differences = (rows[0] - rows[1])[~same]
    want = np.linalg.svd(differences)[2][0] if method == "pca" else differences.mean(0)
    want = want / np.linalg.norm(want)
    assert abs(want @ found[2]) > 0.9999
    assert found[2] @ differences.mean(0) > 0


def test_of_the_last_tokens(model: Model) -> None:
    found = train(model, PAIRS, "mean", tokens="last")
    ctx = model.context(n_ctx=64)
    total = np.zeros(256)
    for pair in PAIRS:
        for text, sign in zip(pair, (1, -1), strict=True):
            ctx.clear()
            with ctx.capture("blocks.3.hook_resid_pre") as values:
                ctx.decode(model.tokenize(text))
            total += sign * values["blocks.3.hook_resid_pre"][-1]
    np.testing.assert_allclose(found[3], total / np.linalg.norm(total), atol=1e-4)


def test_it_moves_what_comes_next(model: Model) -> None:
    """Towards what comes after the positive prompts, the more so the larger the factor."""
    vector, ctx = train(model, PAIRS, "mean", tokens="last"), model.context(n_ctx=64)

    def after(text: str, factor: float = 0.0) -> Any:
        ctx.clear()
        ctx.set_control_vector(factor * vector if factor else None)
        logits = ctx.decode(model.tokenize(text))[0].astype(np.float64)
        return logits - np.log(np.exp(logits).sum())

    leads = np.mean([after(a) - after(b) for a, b in PAIRS], axis=0)
    moved = [
        float((after("First Citizen:\nMy", f) - after("First Citizen:\nMy")) @ leads)
        for f in (-4, 1, 4)
    ]
    assert moved == sorted(moved) and moved[0] < 0 < moved[-1], moved


def test_its_file(tmp_path: Path) -> None:
    rng, path = np.random.default_rng(0), tmp_path / "v.gguf"
    vector = ControlVector(rng.standard_normal((3, 8)), "llama")
    vector.save(path)
    with GGUFFile.open(path) as file:
        keys = {k: (file.metadata.kind(k), file.metadata[k]) for k in file.metadata.stored_values}
        assert {n: t.ne[:2] for n, t in file.tensors.items()} == {
            f"direction.{i}": (8, 1) for i in (1, 2, 3)
        }
    assert keys == {
        "general.architecture": ("str", "controlvector"),
        "controlvector.model_hint": ("str", "llama"),
        "controlvector.layer_count": ("i32", 3),
    }
    found = ControlVector.load(path)
    np.testing.assert_array_equal(found.directions, vector.directions)
    assert found.model_hint == "llama"
    with pytest.raises(GGUFError, match=r"tensor 'output_norm\.weight'"):
        ControlVector.load(DEMO)


def test_vectors_are_counted_with() -> None:
    a = ControlVector(np.full((3, 2), 2.0))
    b = ControlVector(np.ones((1, 2)), "llama")
    found = 2 * a - b / 0.5 + -a
    assert found.directions.tolist() == [[0, 0], [2, 2], [2, 2]]
    assert found.model_hint == "llama"
    assert found.select_layers(range(2, 3)).directions.tolist() == [[0, 0], [2, 2], [0, 0]]
    np.testing.assert_array_equal(np.asarray(a), a.directions)
    for wrong in (lambda: a + ControlVector(np.ones((3, 4))), lambda: a[0], lambda: a[4]):
        with pytest.raises(ContextError):
            wrong()


REFUSED: list[tuple[Any, dict[str, str], str]] = [
    ([], {}, "no pairs"),
    ([("a", "a")], {}, "have the same activations at blocks.1.hook_resid_pre"),
    ([("a", "b")], {"method": "umap"}, "known: pca, mean"),
    ([("a", "b")], {"tokens": "first"}, "'all' or 'last'"),
]


@pytest.mark.parametrize(("pairs", "options", "message"), REFUSED)
def test_what_cannot_be_trained(
    pairs: Any, options: dict[str, str], message: str, model: Model
) -> None:
    with pytest.raises(ContextError, match=message):
        train(model, pairs, **options)


def test_pairs_that_are_none() -> None:
    with pytest.raises(ContextError, match=r"must contain \{\}"):
        template_pairs("no place", ["a"], ["b"])
    with pytest.raises(ContextError, match="2 positive and 1 negative"):
        template_pairs("{}", ["a", "b"], ["c"])


def test_the_command(tmp_path: Path, model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    files = {
        "positive": "ROMEO\n\nLADY\\x20CAPULET\n",
        "negative": "WARWICK\nYORK\n",
        "suffix": ":\\nMy\n:\\nMy heart",
    }
    args = []
    for kind, text in files.items():
        (tmp_path / kind).write_text(text)
        args += [f"--{kind}-file", str(tmp_path / kind)]
    out = tmp_path / "v.gguf"
    assert main([*args, "--template", "{}", "--method", "mean", "-o", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: 3 directions of 4 pairs, by mean\n"
    pairs = template_pairs(
        "{}", ["ROMEO", "LADY CAPULET"], ["WARWICK", "YORK"], [":\nMy", ":\nMy heart"]
    )
    want, found = train(model, pairs, "mean"), ControlVector.load(out)
    np.testing.assert_allclose(found.directions, want.directions, atol=1e-6)
    (tmp_path / "negative").write_text("one")
    assert main([*args, "-o", str(out)]) == 1
    assert "2 positive and 1 negative prompts" in capsys.readouterr().err


def test_a_model_with_several_streams_has_no_place() -> None:
    with pytest.raises(ContextError, match=r"shape \[n_tokens, n_embd\]"):
        train(live("gemma3n-few"), [([1, 2], [3, 4])])
