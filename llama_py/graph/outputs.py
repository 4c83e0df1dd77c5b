"""Results of a decode: rows of the graph's outputs, in batch order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_py.backend import HostBuffer
from ggml_py.tensor import Tensor
from llama_py.batch import F32, UBatch
from llama_py.batch.splitter import BatchSplitter
from llama_py.graph.result import GraphResult
from llama_py.hparams.cparams import CParams


def read_rows(t: Tensor, n: int, copy: bool = True) -> F32:
    """Read the first n rows of an F32 result [n_row, *] as (n, n_row).

    copy  False: return a view of the graph's memory if it is on the host
    """
    if n == 0:
        return np.empty((0, t.ne[0]), np.float32)
    assert t.buffer is not None
    where = t.offset, n * t.nb[1]
    if copy or not isinstance(t.buffer, HostBuffer):
        raw = t.buffer.read(*where)
    else:
        raw = t.buffer.view(*where)
    return raw.view(np.float32).reshape(n, t.ne[0])


class Rows:
    """`n` rows, which arrive by ubatch and are stored in the batch's order."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.values: F32 | None = None

    def put(self, place: npt.NDArray[np.intp], rows: F32) -> None:
        in_order = place.size == self.n and bool((place[1:] > place[:-1]).all())
        if self.values is None and in_order:
            self.values = rows
            return
        if self.values is None:
            self.values = np.empty((self.n, rows.shape[1]), np.float32)
        self.values[place] = rows

    def get(self, width: int) -> F32:
        return np.empty((0, width), np.float32) if self.values is None else self.values


class Outputs:
    """Logits and requested embeddings of a batch (llama_context::decode).

    logits, embd  one row per output of the batch, in the batch's order
    by_seq        one row per sequence, if they are pooled
    h_nextn       one row per token, or if masked per output
    layer_inp     by layer one row per token
    """

    def __init__(self, batch: BatchSplitter, cparams: CParams, copy: bool = True) -> None:
        """copy: of logits, see read_rows"""
        masked = cparams.embeddings_nextn_masked
        self.logits = Rows(batch.n_outputs)
        self.embd = Rows(batch.n_outputs)
        self.h_nextn = Rows(batch.n_outputs if masked else batch.n_tokens)
        self.layer_inp = {il: Rows(batch.n_tokens) for il in cparams.embeddings_layer_inp}
        self.by_seq: dict[int, F32] = {}
        self._rank = np.cumsum(batch.output) - 1  # the row of a token that is an output
        self._cparams, self._copy = cparams, copy

    def add(self, res: GraphResult, ubatch: UBatch) -> None:
        """Read the results that the graph has just computed for a ubatch."""
        cp = self._cparams
        place = self._rank[ubatch.batch_idxs[ubatch.output]]
        if place.size and res.t_logits is not None:
            self.logits.put(place, _output_rows(res.t_logits, ubatch, self._copy))
        reads = cp.embeddings or res.params.gtype == "encoder"
        pooled = cp.pooling != "none"
        plain = res.t_embd if pooled or res.t_embd_pooled is None else res.t_embd_pooled
        if reads and place.size and plain is not None:
            self.embd.put(place, _output_rows(plain, ubatch))
        if cp.embeddings and pooled and res.t_embd_pooled is not None:
            rows = read_rows(res.t_embd_pooled, ubatch.n_seqs_unq)
            self.by_seq |= dict(zip(ubatch.seq_id_unq, rows, strict=True))
        if cp.embeddings_nextn and res.t_h_nextn is not None:
            if cp.embeddings_nextn_masked:
                self.h_nextn.put(place, _output_rows(res.t_h_nextn, ubatch))
            else:
                self.h_nextn.put(ubatch.batch_idxs, _token_rows(res.t_h_nextn, ubatch.n_tokens))
        for il, found in self.layer_inp.items():
            found.put(ubatch.batch_idxs, read_rows(res.t_layer_inp[il], ubatch.n_tokens))


def _token_rows(t: Tensor, n: int) -> F32:
    """Read all values of each of n tokens: [..., n] -> (n, all)."""
    return read_rows(t, t.n_elements // t.ne[0]).reshape(n, -1)


def _output_rows(t: Tensor, ubatch: UBatch, copy: bool = True) -> F32:
    """Read the output rows of a result that has only these or one row per token."""
    n_outputs = int(np.count_nonzero(ubatch.output))
    if t.ne[1] == n_outputs:
        return read_rows(t, n_outputs, copy)
    return read_rows(t, ubatch.n_tokens, False)[ubatch.output]
