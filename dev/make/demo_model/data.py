"""Text for training, held-out text, and random windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

TRAIN_PERCENT = 95


@dataclass(frozen=True)
class Corpus:
    """Text in two parts; training and the tokenizer exclude `held_out`."""

    train: str
    held_out: str


def read(path: Path) -> Corpus:
    """Cut the UTF-8 text at `path` after 95 %, moved on to the next empty line: whole speeches."""
    text = path.read_text(encoding="utf-8")
    gap = text.find("\n\n", len(text) * TRAIN_PERCENT // 100)
    if gap < 0:
        raise ValueError(f"{path}: no empty line in the last 5 % to cut at; give a longer text")
    return Corpus(text[: gap + 2], text[gap + 2 :])


def windows(ids: Tensor, batch: int, length: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield endless random (inputs, targets), both [batch, length]; targets are one token later."""
    rng = torch.Generator().manual_seed(seed)
    while True:
        at = torch.randint(len(ids) - length, (batch,), generator=rng)
        window = ids[at[:, None] + torch.arange(length + 1)]
        yield window[:, :-1], window[:, 1:]
