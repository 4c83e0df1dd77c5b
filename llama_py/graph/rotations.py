"""Rotation of the inputs of folded weights, and of rows of a folded table
(see `llama_py.hparams.hadamard`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ggml_py.errors import ContextError
from ggml_py.ops import cont, mul, permute, reshape
from ggml_py.tensor import Tensor
from ggml_py.types import F32
from llama_py.batch import UBatch
from llama_py.graph.inputs.base import new_input, write
from llama_py.graph.params import GraphParams
from llama_py.graph.result import GraphResult
from llama_py.hparams.hadamard import HEADS_OUT, TABLE, Hadamard
from llama_py.memory.kv_rot import hadamard, rotate


class ConstantInput:
    """A tensor with the same values in every run."""

    def __init__(self, name: str, values: npt.NDArray[np.float32]) -> None:
        self.tensor = new_input(name, F32, *values.shape[::-1])
        self.values = values

    def set_input(self, ubatch: UBatch) -> None:
        write(self.tensor, self.values)

    def follow(self, ubatch: UBatch) -> None:
        pass

    def can_reuse(self, params: GraphParams) -> bool:
        return True


class Rotations:
    """Rotations in one graph. Weights that read the same tensor share its rotation."""

    def __init__(self, how: Hadamard, res: GraphResult) -> None:
        self.how, self.res, self.hp = how, res, res.params.hparams
        self._constants: dict[str, Tensor] = {}
        self._made: dict[tuple[int, bool], tuple[Tensor, Tensor]] = {}

    def rotate(self, weight: Tensor, x: Tensor) -> Tensor:
        """Return the weight's input for x: [n_in, ...] -> same shape."""
        if weight.name not in self.how.products:
            return x
        grouped = self.how.grouped and weight.name.endswith(HEADS_OUT)
        key = id(x), grouped
        if key not in self._made:  # storing x prevents another tensor with its id
            cur = self._group_heads(x) if grouped else x
            self._made[key] = x, rotate(self._apply_signs(cur), self._matrix())
        return self._made[key][1]

    def restore_rows(self, table: Tensor, rows: Tensor) -> Tensor:
        """Return the embeddings from rows of a table: [n_embd, n] -> same shape."""
        if not self.how.table or table.name != TABLE:
            return rows
        self.res.graph.insert(rows)
        return self._apply_signs(rotate(rows, self._matrix()))

    def check(self) -> None:
        """Raise ContextError if a node reads a folded weight without its rotation."""
        rotated = {id(y) for _, y in self._made.values()}
        for node in self.res.graph.nodes:
            weight, x = (*node.src, None, None)[:2]
            if node.op not in ("MUL_MAT", "MUL_MAT_ID") or weight is None:
                continue
            if weight.name in self.how.products and id(x) not in rotated:
                raise ContextError(
                    f"{weight.name} is folded (prism.hadamard.weight_names), but this graph "
                    "multiplies it without the rotation; use a file without folded weights"
                )

    def _matrix(self) -> Tensor:
        n = self.how.block
        return self._constant(f"prism.hadamard.{n}", lambda: hadamard(n))

    def _apply_signs(self, x: Tensor) -> Tensor:
        width, signs = x.ne[0], self.how.signs
        if not signs:
            return x
        return mul(x, self._constant(f"prism.hadamard.signs.{width}", lambda: signs[width]))

    def _group_heads(self, x: Tensor) -> Tensor:
        """Permute value heads: the groups of keys become the last: [value_dim, ...] -> same."""
        hp: Any = self.hp  # of a model with delta nets
        size, n_group, n_head = hp.ssm_d_state, hp.ssm_n_group, hp.ssm_dt_rank
        heads = reshape(x, size, n_group, n_head // n_group, x.n_rows)
        return reshape(cont(permute(heads, 0, 2, 1, 3)), *x.ne)

    def _constant(self, name: str, values: Callable[[], npt.NDArray[np.float32]]) -> Tensor:
        if name not in self._constants:
            self._constants[name] = self.res.add_input(ConstantInput(name, values())).tensor
        return self._constants[name]
