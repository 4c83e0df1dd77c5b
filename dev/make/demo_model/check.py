"""Three checks of a finished file.

    python -m dev.make.demo_model.check --model OUT/demo.gguf --corpus tinyshakespeare.txt

1. the chunked delta rule against its definition, in float64;
2. held-out loss, perplexity and MTP acceptance of the weights in the file, computed by torch;
3. the logits of llama-py against torch's, on the first 64 held-out tokens.
"""

from __future__ import annotations

import argparse
import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import llama_py
from dev.make.demo_model import data, delta, export, tokenizer
from dev.make.demo_model.evaluate import WINDOW, evaluate
from dev.make.demo_model.model import Model

log = logging.getLogger("demo_model")

N_COMPARED = 64


@dataclass(frozen=True)
class Agreement:
    """Distance of logits [tokens, n_vocab] from the expected logits."""

    nmse: float
    largest: float
    same_top: int

    @classmethod
    def of(cls, got: np.ndarray, expected: np.ndarray) -> Agreement:
        difference = got.astype(np.float64) - expected
        return cls(
            nmse=float(np.square(difference).sum() / np.square(expected.astype(np.float64)).sum()),
            largest=float(np.abs(difference).max()),
            same_top=int((got.argmax(-1) == expected.argmax(-1)).sum()),
        )


@torch.no_grad()
def engine(model: Model, path: Path, ids: torch.Tensor) -> Agreement:
    """Compare llama-py with the file at `path` against `model` on the tokens `ids`."""
    model.eval()
    expected = model(ids[None])[0][0].numpy()
    context = llama_py.load(path).context(n_ctx=WINDOW)
    return Agreement.of(context.decode(ids.tolist(), logits="all"), expected)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--corpus", required=True, type=Path, help="the text it was trained on")
    args = parser.parse_args()
    log.setLevel(logging.INFO)
    log.addHandler(logging.StreamHandler())
    log.info(f"delta rule, largest difference: {delta.largest_difference():.1e}")
    model, corpus = export.load(args.model), data.read(args.corpus)
    bpe = tokenizer.train(corpus.train, model.c.n_vocab)
    held_out = torch.tensor(bpe.encode(corpus.held_out).ids)
    figures = evaluate(model, held_out, WINDOW)
    log.info(f"perplexity {figures.perplexity:.2f}, {figures}")
    log.info(f"llama-py against torch: {engine(model, args.model, held_out[:N_COMPARED])}")


if __name__ == "__main__":
    main()
