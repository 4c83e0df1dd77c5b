"""Inputs with one value per token: ids, embeddings, positions, outputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ggml_py.errors import ContextError
from ggml_py.types import F32, I32, I64
from llama_py.batch import UBatch
from llama_py.graph.inputs.base import new_input, read_numbers, write
from llama_py.graph.params import GraphParams, n_mixed_tokens

N_AHEAD = 256  # positions for which a factor is computed at once


class InputEmbd:
    """Token ids, and input embeddings that may replace them (llm_graph_input_embd)."""

    def __init__(self, n_embd: int, n_tokens: int, names: tuple[str, str]) -> None:
        self.tokens = new_input(names[0], I32, n_tokens)
        self.embd = new_input(names[1], F32, n_embd, n_tokens)

    def set_input(self, ubatch: UBatch) -> None:
        if ubatch.token is not None:
            mixed = ubatch.is_embd is not None
            write(self.tokens, np.maximum(ubatch.token, 0) if mixed else ubatch.token)
        if ubatch.embd is not None:
            write(self.embd, ubatch.embd)

    def follow(self, ubatch: UBatch) -> None:
        if self._ids is None or ubatch.token is None or ubatch.embd is not None:
            self.set_input(ubatch)
        else:
            self._ids[:] = ubatch.token.data

    @cached_property
    def _ids(self) -> memoryview | None:
        return None if self.tokens.buffer is None else read_numbers(self.tokens)

    def can_reuse(self, params: GraphParams) -> bool:
        return self.tokens.ne[0] == params.ubatch.n_tokens


class InputMixed:
    """Tokens of a mixed ubatch, and its embeddings (llm_graph_input_embd).

    tokens  I32 [n]: ids; slots I64 [n]: their entries in the ubatch
    embd    F32 [n_embd, n_tokens]: embeddings, 0 for tokens
    """

    def __init__(self, n_embd: int, ubatch: UBatch) -> None:
        self.n = n_mixed_tokens(ubatch)
        self.tokens = new_input("inp_mixed_tokens", I32, self.n)
        self.embd = new_input("inp_mixed_embd", F32, n_embd, ubatch.n_tokens)
        self.slots = new_input("inp_mixed_slots", I64, self.n)

    def set_input(self, ubatch: UBatch) -> None:
        assert ubatch.token is not None and ubatch.embd is not None
        slots = np.flatnonzero(~ubatch.embd_rows)
        write(self.tokens, ubatch.token[slots])
        write(self.embd, ubatch.embd)
        write(self.slots, slots)

    def can_reuse(self, params: GraphParams) -> bool:
        ubatch = params.ubatch
        return self.embd.ne[1] == ubatch.n_tokens and self.n == n_mixed_tokens(ubatch)


class InputScaleRows:
    """Factor of each entry of a mixed ubatch: `factor` of tokens, 1 of embeddings."""

    def __init__(self, factor: float, n_tokens: int) -> None:
        self.factor, self.rows = factor, new_input("inp_scale_rows", F32, 1, n_tokens)

    def set_input(self, ubatch: UBatch) -> None:
        factors = np.where(ubatch.embd_rows, 1.0, self.factor)
        write(self.rows, factors.astype(np.float32).reshape(-1, 1))

    def can_reuse(self, params: GraphParams) -> bool:
        return self.rows.ne[1] == params.ubatch.n_tokens


class InputEmbdH(InputEmbd):
    """Token ids, each with the hidden state before it, for a draft graph (llm_graph_input_embd_h).

    tokens  I32 [n_tokens]; embd F32 [n_embd, n_tokens] in their place; h F32 [n_hidden, n_tokens]
    """

    def __init__(
        self, n_embd: int, n_tokens: int, n_hidden: int = 0, name: str = "mtp_h_input"
    ) -> None:
        super().__init__(n_embd, n_tokens, ("", ""))
        self.h = new_input(name, F32, n_hidden or n_embd, n_tokens)

    def set_input(self, ubatch: UBatch) -> None:
        super().set_input(ubatch)
        if ubatch.embd is not None:
            write(self.h, ubatch.embd)


class InputPos:
    """Positions, section by section when RoPE has several axes (llm_graph_input_pos)."""

    def __init__(
        self,
        n_pos_per_embd: int,
        n_tokens: int,
        time_last: bool = False,
        axes: Sequence[int] = (0, 1, 2, 3),
    ) -> None:
        """Create the tensor; time_last: the fourth axis repeats the first axis's positions; axes:
        the axis of each section, if embeddings have four positions."""
        self.n_pos, self.n_same = n_pos_per_embd, 4 if time_last else 3
        self.axes = list(axes)
        self.pos = new_input("inp_pos", I32, n_tokens * n_pos_per_embd)

    def set_input(self, ubatch: UBatch) -> None:
        pos = ubatch.pos
        if self.n_pos == 4:
            text = pos[: ubatch.n_tokens]  # time, row and column are the same, no fourth axis
            pos = pos.reshape(4, -1)[self.axes]
            pos = np.where(ubatch.embd_rows, pos, (text, text, text, np.zeros_like(text)))
            pos = pos.reshape(-1)
        if self.n_same == 4:
            pos = np.concatenate((pos[: 3 * ubatch.n_tokens], pos[: ubatch.n_tokens]))
        write(self.pos, pos)

    def follow(self, ubatch: UBatch) -> None:
        values, n = self._values, ubatch.n_tokens
        if values is None:
            self.set_input(ubatch)
        elif self.n_pos == 4:  # a separate fourth axis is unchanged
            for axis in range(self.n_same):
                values[axis * n : (axis + 1) * n] = ubatch.pos[:n].data
        else:
            values[:] = ubatch.pos.data

    @cached_property
    def _values(self) -> memoryview | None:
        return read_numbers(self.pos)

    def can_reuse(self, params: GraphParams) -> bool:
        return self.pos.ne[0] == params.ubatch.n_tokens * self.n_pos


class InputConstant:
    """Values that are the same for every ubatch."""

    def __init__(self, name: str, values: npt.NDArray[np.float32]) -> None:
        self.given, self.values = values, new_input(name, F32, *values.shape[::-1])

    def set_input(self, ubatch: UBatch) -> None:
        write(self.values, self.given)

    def can_reuse(self, params: GraphParams) -> bool:
        return True


class PosLimit:
    """Check without a tensor that positions are below n_pos, the rows of a table."""

    def __init__(self, n_pos: int) -> None:
        self.n_pos = n_pos

    def set_input(self, ubatch: UBatch) -> None:
        largest = int(ubatch.pos.max())
        if largest >= self.n_pos:
            raise ContextError(
                f"position must be less than {self.n_pos}, the model's learned positions, got "
                f"{largest}; use shorter sequences"
            )

    def can_reuse(self, params: GraphParams) -> bool:
        return True


class OneSequence:
    """Check without a tensor that a batch has one sequence, since sequences would be mixed."""

    def set_input(self, ubatch: UBatch) -> None:
        n = len(ubatch.seq_id_unq)
        if n > 1:
            raise ContextError(
                "this model convolves over the batch, so a batch must have one sequence, got "
                f"{n}; decode one sequence at a time"
            )

    def can_reuse(self, params: GraphParams) -> bool:
        return True


class InputAttnTemp:
    """A factor on the queries that grows slowly with the position (llm_graph_input_attn_temp).

    1 + scale * ln(1 + floor((pos + offset) / length)); attn_scale F32 [1, 1, n_tokens]
    """

    def __init__(self, length: int, scale: float, offset: float, n_tokens: int) -> None:
        self.length, self.scale, self.offset = length, scale, offset
        self.attn_scale = new_input("inp_attn_scale", F32, 1, 1, n_tokens)
        self._ahead, self._first = np.zeros(0, np.float32), 0  # factors from position _first on

    def set_input(self, ubatch: UBatch) -> None:
        write(self.attn_scale, self._round_factors(ubatch.pos[: ubatch.n_tokens]))

    def follow(self, ubatch: UBatch) -> None:
        """Set the factor of a single token, which is computed together with factors of later
        positions."""
        pos, values = ubatch.pos.item(0), self._values
        if values is None or ubatch.n_tokens > 1:
            self.set_input(ubatch)
            return
        if not 0 <= pos - self._first < self._ahead.size:
            self._ahead, self._first = self._round_factors(pos + np.arange(N_AHEAD)), pos
        values[:] = self._ahead[pos - self._first : pos - self._first + 1].data

    @cached_property
    def _values(self) -> memoryview | None:
        return read_numbers(self.attn_scale)

    def _round_factors(self, pos: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        with np.errstate(over="ignore"):  # inf, like llama.cpp
            return self.factors(pos).astype(np.float32)

    def factors(self, pos: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the factors at integer positions (n,)."""
        shifted = pos.astype(np.float32) + np.float32(self.offset)
        steps = np.floor(shifted / np.float32(self.length))
        found: npt.NDArray[Any] = np.log(steps + 1) * self.scale + 1
        return found

    def can_reuse(self, params: GraphParams) -> bool:
        return self.attn_scale.ne[2] == params.ubatch.n_tokens


class InputAttnPower(InputAttnTemp):
    """The factor (1 + (pos + offset) / length) ^ scale, rounded once."""

    def factors(self, pos: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return (1 + (pos + self.offset) / self.length) ** float(np.float32(self.scale))


class InputOutIds:
    """Indices of the ubatch's output tokens (llm_graph_input_out_ids)."""

    def __init__(self, n_outputs: int) -> None:
        self.out_ids = new_input("out_ids", I32, n_outputs)

    def set_input(self, ubatch: UBatch) -> None:
        n_outputs = self.out_ids.ne[0]
        every = n_outputs == ubatch.n_tokens
        ids = np.arange(n_outputs) if every else np.flatnonzero(ubatch.output)
        write(self.out_ids, ids.astype(np.int32))

    def follow(self, ubatch: UBatch) -> None:
        """Keep the indices: all tokens are still outputs."""

    def can_reuse(self, params: GraphParams) -> bool:
        return self.out_ids.ne[0] == params.n_outputs
