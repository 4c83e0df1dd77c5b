"""The demonstration model's recipe: delta rule, training, the file it writes, the shipped file."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from dev.make.demo_model import data, delta, export, tokenizer, train
from dev.make.demo_model.model import Config, Model

SHIPPED = Path(__file__).parents[2] / "llama_py" / "data" / "demo.gguf"


def test_chunked_delta_rule_is_the_definition() -> None:
    assert delta.largest_difference() < 1e-14


@pytest.mark.parametrize("n_tokens", [1, 63, 64, 65])
def test_delta_rule_at_chunk_borders(n_tokens: int) -> None:
    rng = torch.Generator().manual_seed(n_tokens)
    q, k, v = torch.randn(3, 1, 2, n_tokens, 16, generator=rng, dtype=torch.float64) / 4
    g, beta = torch.rand(2, 1, 2, n_tokens, generator=rng, dtype=torch.float64)
    chunked, expected = (f(q, k, v, -g, beta) for f in (delta.chunked, delta.sequential))
    torch.testing.assert_close(chunked, expected)


def vocabulary_of(path: Path) -> tokenizer.Vocabulary:
    fields = gguf.GGUFReader(path).fields
    tokens, merges = (fields[f"tokenizer.ggml.{k}"].contents() for k in ("tokens", "merges"))
    return tokenizer.Vocabulary(tokens, merges, len(tokens) - 1)


@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0"])
def test_exported_file_is_read_back(tmp_path: Path, kind: str) -> None:
    model, path = Model(Config()), tmp_path / "model.gguf"
    export.write(model, vocabulary_of(SHIPPED), path, kind)
    tolerance = {"F32": 1e-6, "F16": 1e-3, "Q8_0": 1e-2}[kind]
    for (name, a), (_, b) in zip(export.views(model), export.views(export.load(path)), strict=True):
        a, b = a.detach(), b.detach()
        assert (a - b).abs().max() <= tolerance * a.abs().max(), name


def test_shipped_file_is_what_export_writes(tmp_path: Path) -> None:
    """Writing the shipped weights again gives the shipped bytes: Q8_0 of Q8_0 changes nothing."""
    path = tmp_path / "again.gguf"
    export.write(export.load(SHIPPED), vocabulary_of(SHIPPED), path, "Q8_0")
    again, shipped = (np.frombuffer(p.read_bytes(), np.uint8) for p in (path, SHIPPED))
    assert again.size == shipped.size
    assert (again != shipped).mean() < 1e-3  # a scale may move by one in its last place


def test_shipped_weights_continue_as_in_llama_cpp() -> None:
    """ "First Citizen: Before we proceed any further, hear me speak." and 12 greedy tokens."""
    prompt = [662, 1172, 268, 787, 557, 335, 590, 1779, 820, 273, 368, 716, 11, 688, 322, 632, 13]
    greedy = [220, 360, 1600, 198, 82, 984, 359, 823, 258, 269, 832, 67]
    with torch.no_grad():
        trunk, _ = export.load(SHIPPED).eval()(torch.tensor([prompt + greedy[:-1]]))
    assert trunk[0, len(prompt) - 1 :].argmax(-1).tolist() == greedy


def test_training_learns_and_repeats() -> None:
    def losses() -> list[float]:
        torch.manual_seed(1)
        ids = torch.arange(2000) % 50
        recipe = train.Recipe(stop=4, warmup=1, batch=1)
        return [text for _, (text, _, _) in train.steps(Model(Config()), ids, recipe)]

    first = losses()
    assert first[-1] < first[0] - 0.01
    assert losses() == first


def test_corpus_is_cut_between_speeches(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("speech one\n\n" * 20)
    corpus = data.read(path)
    assert corpus.train + corpus.held_out == path.read_text()
    assert corpus.train.endswith("\n\n")
    assert corpus.held_out == "speech one\n\n"[: len(corpus.held_out)]
    path.write_text("no empty line")
    with pytest.raises(ValueError, match="no empty line"):
        data.read(path)
