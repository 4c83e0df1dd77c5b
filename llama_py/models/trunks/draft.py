"""Common parts of draft-only models (models/eagle3.cpp, dflash.cpp)."""

from __future__ import annotations

import math

import numpy as np

from ggml_py.errors import ContextError, WeightsError
from ggml_py.ops import fill, mul_mat, reshape, set_rows
from ggml_py.tensor import Tensor
from ggml_py.types import F32, I64
from llama_py.gguf.keys import Keys, as_uint
from llama_py.graph.borrowed import TargetTensors
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Linear
from llama_py.hparams import MAX_LAYERS, HParams
from llama_py.weights import Weights

ROWS = "d2t"


def target_layers(keys: Keys, rule: str, n: int = 0) -> tuple[int, ...]:
    """Read the layers of the other model with the inputs that this model needs; n: required number,
    or 0 for any. `rule` describes it in the error."""
    key = "target_layers"
    count = keys.count(key)
    if not 0 < count <= MAX_LAYERS or n not in (0, count):
        raise keys.error(key, f"must have {rule}")
    found: tuple[int, ...] = keys.values(key, count, None, as_uint)
    return found


class PartialHead:
    """A head for some tokens only; all other tokens get logits of -inf.

    rows  I64 [n] token id of each row
    """

    def __init__(self, w: Weights, n_vocab: int) -> None:
        """Declare the rows; WeightsError for tokens outside the vocabulary."""
        info = w.info(ROWS)
        assert info is not None
        self.n, self.n_vocab = info.ne[0], n_vocab
        self.rows = w.tensor(ROWS, self.n)
        if info.type is not I64:
            raise WeightsError(
                f"{w.source}: tensor {ROWS!r} must be i64, got {info.type}; convert the model again"
            )
        ids = np.ascontiguousarray(info.data).reshape(-1).view("<i8")
        bad = ids[(ids < 0) | (ids >= n_vocab)]
        if bad.size:
            raise WeightsError(
                f"{w.source}: token ids in tensor {ROWS!r} must be in [0, {n_vocab}), got "
                f"{bad[0]}; convert the model again"
            )

    def __call__(self, g: GraphBuilder, cur: Tensor, outside: float = -math.inf) -> Tensor:
        """Scatter logits of some tokens to the vocabulary: [n, n_rows] -> [n_vocab, n_rows]."""
        n_rows = cur.ne[1]
        every = fill(Tensor(F32, (1, self.n_vocab, n_rows)), outside)
        rows = reshape(self.rows, self.n, 1, 1)
        cur = set_rows(every, reshape(cur, 1, self.n, n_rows), rows)
        return reshape(cur, self.n_vocab, n_rows)


class Ends:
    """Embeddings and head of a model, which may borrow either from the other model.

    n_tokens  number of tokens in its head
    """

    def __init__(self, w: Weights, hp: HParams) -> None:
        self.hp = hp
        self.some = PartialHead(w, hp.n_vocab) if w.has(ROWS) else None
        self.n_tokens = hp.n_vocab if self.some is None else self.some.n
        self.token_embd: Tensor | None = None
        self.output: Linear | None = None

    def declare_output(self, w: Weights) -> None:
        """Declare the model's own head, or its own embeddings as head."""
        n_embd = self.hp.n_embd
        self.output = w.optional_linear("output", n_embd, self.n_tokens, scaled=False)
        if self.output is None and self.token_embd is not None and self.some is None:
            self.output = Linear(w.tied_tensor("token_embd.weight"))
        if self.some is not None and self.output is None:
            raise WeightsError(
                f"{w.source}: tensor {ROWS!r} needs an LM head, which the file does not have; "
                "convert the model again"
            )

    def rows(self, g: GraphBuilder, ids: Tensor) -> Tensor:
        """Look up embeddings of tokens: I32 [n] -> [n_embd, n]."""
        table = self.token_embd
        if table is None:
            table = _fitting(g, g.params.target_tensors.token_embd, "embeddings")
        return g.rows(table, ids)

    def logits(self, g: GraphBuilder, cur: Tensor) -> Tensor:
        """Compute logits of the tokens that the head has: [n_embd, n] -> [n_tokens, n]."""
        if self.output is not None:
            return self.output(g, cur)
        head = g.params.target_tensors.output
        if head is None:
            raise ContextError(
                "the target model has no LM head that the draft model could use; use the model "
                "that it was trained with"
            )
        return head(g, cur)

    def placeholder_tensors(self) -> TargetTensors:
        table = Tensor(F32, (self.hp.n_embd, self.hp.n_vocab), name="token_embd.weight")
        head = Tensor(F32, (self.hp.n_embd, self.n_tokens), name="output.weight")
        return TargetTensors(table, lambda g, cur: mul_mat(head, cur), stands_in=True)


def _fitting(g: GraphBuilder, table: Tensor | None, what: str) -> Tensor:
    n_embd = g.hp.n_embd
    if table is None or table.ne[0] != n_embd:
        found = "none" if table is None else f"length {table.ne[0]}"
        raise ContextError(
            f"the draft model needs {what} of length {n_embd} from the target model, got "
            f"{found}; use the model that it was trained with"
        )
    return table
