"""Nodes that adapters add to a graph (llama-graph.cpp:build_lora_mm, build_lora_mm_id,
build_inp_embd).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ggml_py.ops import add, get_rows, mul_mat, mul_mat_id, scale
from ggml_py.tensor import Tensor
from llama_py.adapters.lora.adapter import Adapter, LoraPair


@dataclass(frozen=True, slots=True)
class Loras:
    """Adapters with their scales, without zeros. Equal adapters give graphs with equal nodes.

    Unlike llama.cpp's they apply to every weight that a graph multiplies or takes rows of, also
    if llama.cpp's graphs omit them there (latent attention, delta nets of Kimi).
    """

    used: tuple[tuple[Adapter, float], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.used)

    def _pairs(self, weight: Tensor, table: bool) -> Iterator[tuple[LoraPair, float]]:
        for adapter, factor in self.used:
            pair = adapter.pairs.get(weight.name)
            if pair is not None and pair.table == table:
                yield pair, adapter.scale(pair, factor)

    def add_terms(self, res: Tensor, weight: Tensor, x: Tensor) -> Tensor:
        """Add the adapters' terms to res = weight x: [n_in, n] -> [n_out, n].

        A change of token embeddings does not change a tied head.
        """
        for pair, factor in self._pairs(weight, False):
            res = add(res, scale(mul_mat(pair.b, mul_mat(pair.a, x)), factor))
        return res

    def add_to_experts(
        self, res: Tensor, weight: Tensor, x: Tensor, ids: Tensor, here: tuple[int, int] = (0, 0)
    ) -> Tensor:
        """Add the adapters' terms for each token's experts `ids`: [n_in, 1 or n_used, T] -> [n_out,
        n_used, T].

        here  the weight's first expert, and the total number of experts"""
        for pair, factor in self._pairs(weight, False):
            rows = mul_mat_id(pair.a, x, ids, first=here[0], of=here[1])
            delta = mul_mat_id(pair.b, rows, ids, first=here[0], of=here[1])
            res = add(res, scale(delta, factor))
        return res

    def add_to_rows(self, rows: Tensor, table: Tensor, ids: Tensor) -> Tensor:
        """Add the adapters' terms to rows = table[ids]: ids I32 [n] -> [n_embd, n]."""
        for pair, factor in self._pairs(table, True):
            rows = add(rows, scale(mul_mat(pair.b, get_rows(pair.a, ids)), factor))
        return rows


NO_LORAS = Loras()
