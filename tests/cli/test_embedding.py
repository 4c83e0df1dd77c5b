"""llama-py-embedding: what it writes, by format; what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from llama_py_tools.measure import embedding
from llama_py_tools.measure.embedding import EmbeddingParams, TextRows, format_rows, read_texts

ROWS = np.array([[0.6, 0.8, 0.0], [1.0, 0.0, 0.0]], np.float32)


def shown(form: str = "", pooling: str = "mean", texts: int = 2, whole: bool = False) -> str:
    names = ["the first text", "b"][:texts]
    found = TextRows(ROWS, names, pooling, ["no", "yes", "2"], whole)
    return "".join(format_rows(found, form))


def test_for_people() -> None:
    assert shown() == (
        "\nembedding 0:  0.600000  0.800000  0.000000 \n"
        "embedding 1:  1.000000  0.000000  0.000000 \n"
        "\ncosine similarity matrix:\n\n"
        "the fi      b \n"
        "  1.00   0.60 the first \n"
        "  0.60   1.00 b\n\n"
    )
    assert shown(whole=True).startswith("\nembedding 0:      1      1      0 \n")


def test_rows_are_cut_where_there_are_several_texts() -> None:
    rows = np.zeros((2, 20), np.float32)
    found = TextRows(rows, ["a", "b"], "mean", [], False)
    assert "".join(format_rows(found, "")).splitlines()[1].count("0.000000") == 16
    one = TextRows(rows[:1], ["a"], "mean", [], False)
    assert "".join(format_rows(one, "")).count("0.000000") == 20
    tokens = TextRows(rows, ["a"], "none", [], False)
    assert "".join(format_rows(tokens, "")).splitlines()[2].split() == [
        "embedding",
        "1:",
        *["0.000000"] * 3,
        "...",
        *["0.000000"] * 3,
    ]


def test_scores() -> None:
    assert shown(pooling="rank").splitlines()[1:3] == [
        "rerank score 0:    0.600 [no]",
        "rerank score 0:    0.800 [yes]",
    ]
    one = TextRows(ROWS[:, :1], ["a", "b"], "rank", ["0"], False)
    assert (
        "".join(format_rows(one, "")) == "\nrerank score 0:    0.600\nrerank score 1:    1.000\n\n"
    )


def test_for_programs() -> None:
    assert json.loads(shown("array")) == [[0.6, 0.8, 0.0], [1.0, 0.0, 0.0]]
    found = json.loads(shown("json"))
    assert found["object"] == "list" and "cosineSimilarity" not in found
    assert found["data"][1] == {"object": "embedding", "index": 1, "embedding": [1.0, 0.0, 0.0]}
    assert json.loads(shown("json+"))["cosineSimilarity"] == [[1.0, 0.6], [0.6, 1.0]]
    assert "cosineSimilarity" not in json.loads(shown("json+", texts=1))
    assert shown("raw").splitlines()[0] == "0.6000000 0.8000000 0.0000000"


def test_texts_of_options(tmp_path: Path) -> None:
    assert read_texts(EmbeddingParams(prompt=r"a\nb")) == ["a", "b"]
    assert read_texts(EmbeddingParams(prompt=r"a\nb", escape=False)) == [r"a\nb"]
    file = tmp_path / "texts"
    file.write_text("x|y\n")
    assert read_texts(EmbeddingParams(file=str(file), separator="|")) == ["x", "y"]


def test_the_demo_model(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["-dev", "ref", "-p", "love\nhate", "--embd-output-format", "json+"]
    assert embedding.main([*args, "--pooling", "mean"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = np.array([item["embedding"] for item in found["data"]])
    assert rows.shape[0] == 2 and np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert found["cosineSimilarity"][0][1] == pytest.approx(float(rows[0] @ rows[1]), abs=0.006)


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["-p", "x", "--pooling", "rank"], "no classifier"),
        (["-p", "To be, or not to be", "-c", "2"], "a text has"),
        (["-p", "a\n\nb"], "text 1 has no tokens"),
        (["-f", "no-such-file"], "no-such-file"),
    ],
)
def test_errors(capsys: pytest.CaptureFixture[str], args: list[str], error: str) -> None:
    assert embedding.main(["-dev", "null", *args]) == 1
    out, err = capsys.readouterr()
    assert out == "" and error in err


@pytest.mark.parametrize("args", [[], ["-p", "x", "--embd-separator", ""]])
def test_wrong_usage(args: list[str]) -> None:
    with pytest.raises(SystemExit) as e:
        embedding.main(args)
    assert e.value.code == 2
