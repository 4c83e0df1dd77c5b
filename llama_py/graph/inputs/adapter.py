"""Inputs that mark tokens that switch to a built-in adapter
(models/granite-switch.cpp:llm_graph_input_switch)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ggml_py.types import F32, I32
from llama_py.batch import UBatch
from llama_py.graph.inputs.base import new_input, write
from llama_py.graph.params import GraphParams


class Switches:
    """Control tokens of a vocabulary: the i-th switches to adapter i + 1, and is replaced.

    slot      by token, its adapter; 0: not a control token
    read_as   by token, the token with the embedding to use
    """

    def __init__(self, n_vocab: int, tokens: Sequence[int], read_as: Sequence[int]) -> None:
        self.slot = np.zeros(n_vocab, np.float32)
        self.read_as = np.arange(n_vocab, dtype=np.int32)
        for i, (token, other) in enumerate(zip(tokens, read_as, strict=True)):
            if token < n_vocab:
                self.slot[token], self.read_as[token] = i + 1, other


class InputSwitch:
    """Inputs for finding each token's adapter: token ids, and a query, key and value per token.

    tokens I32 [n_tokens]; q F32 [n_tokens] is 1; k F32 [n_tokens] is `gain` for control tokens,
    else -gain; v F32 [n_tokens] is the adapter's number, else 0
    """

    def __init__(self, switches: Switches, gain: float, n_tokens: int) -> None:
        self.switches, self.gain = switches, np.float32(gain)
        self.tokens = new_input("", I32, n_tokens)
        self.k, self.v, self.q = (new_input("", F32, n_tokens) for _ in range(3))

    def set_input(self, ubatch: UBatch) -> None:
        assert ubatch.token is not None
        ids = ubatch.token
        slot = self.switches.slot[ids]
        write(self.tokens, self.switches.read_as[ids])
        write(self.k, np.where(slot > 0, self.gain, -self.gain))
        write(self.v, slot)
        write(self.q, np.ones_like(slot))

    def can_reuse(self, params: GraphParams) -> bool:
        return self.tokens.ne[0] == params.ubatch.n_tokens
