"""Tensors that a draft-only model borrows from its target model (llama_cparams::ctx_other)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ggml_py._moved import former_names
from ggml_py.tensor import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class TargetTensors:
    """token_embd  [n_embd, n_vocab];  output  (builder, [n_embd, n]) -> logits [n_vocab, n]
    stands_in   placeholder for graphs that are only inspected
    """

    token_embd: Tensor | None = None
    output: Callable[..., Tensor] | None = None
    stands_in: bool = False


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, Borrowed="TargetTensors")
