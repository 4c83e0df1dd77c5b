"""The two engines of runs: the real llama.cpp, and llama-py."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import llama_py
from dev.tiny_models import Tiny
from ggml_py.inspection.dump import Record, records
from llama_py.batch import Batch
from llama_py.blocks.known_forms import forms
from llama_py_tools.graph.peer import Peer
from llama_py_tools.graph.peer_nodes import Read

Floats = NDArray[np.float32]

N_SEQ = 256  # cells of a sequence
N_BATCH = 240  # a multiple of the numbers of sequences: llama.cpp's reserving can fail with others


def target_of(path: Path, made: Tiny) -> Path | None:
    """Return the file of a tiny draft model's target, in the same folder."""
    return None if made.drafts_for is None else path.with_name("-".join(made.drafts_for) + ".gguf")


class Engine(Protocol):
    """A model and a context. Batches have explicit positions, sequences and outputs.

    nodes   of all graphs since the start, if enabled
    """

    nodes: list[Record]

    def run(self, batch: Batch, encode: bool = False) -> None: ...

    def see_all(self) -> None:
        """Disable the causal mask, for models without a key for that."""

    def fill(self, batch: Batch) -> None:
        """Let the model that it drafts for read this."""

    def logits(self, n: int) -> Floats:
        """Return the logits of the last batch's n outputs."""

    def embeddings(self, n: int) -> Floats:
        """Return the embeddings of the last batch's n outputs."""

    def embeddings_seq(self, seq: int) -> Floats: ...

    def set_embeddings_nextn(self, masked: bool) -> None: ...

    def h_nextn(self, n: int) -> Floats: ...


class Open(Protocol):
    def __call__(self, **how: Any) -> AbstractContextManager[Engine]:
        """Create an engine for a run.

        n_seqs  1       number of sequences
        unified False   True if sequences share all cells
        flash   True    flash attention
        cache   "f16"   type of keys and values
        nodes   False   True to list the nodes; then values may be wrong
        unfused ""      a block (llama_py.blocks.known_forms) that is built without its one op
        mtp     False   the NextN layers instead of the trunk
        n_rs_seq 0      snapshots of recurrent states
        pooling ""      kind of embeddings; "": logits
        target  None    file of the target model, for a pure draft model
        """


class LlamaCpp(Peer):
    """Engine of the real llama.cpp."""

    def __init__(
        self,
        path: Path,
        *,
        n_seqs: int = 1,
        flash: bool = True,
        cache: str = "f16",
        nodes: bool = False,
        inputs: bool = False,
        unfused: str = "",
        mtp: bool = False,
        n_rs_seq: int = 0,
        pooling: str = "",
        unified: bool = False,
        target: Path | None = None,
    ) -> None:
        """inputs  store inputs of the graph as "values" in the sources of their nodes"""
        self.nodes: list[Record] = []
        super().__init__(
            str(path),
            n_ctx=N_SEQ * n_seqs,
            n_batch=N_BATCH,
            n_ubatch=N_BATCH,
            n_threads=1,
            flash_attn="on" if flash else "off",
            cache=cache,
            mtp=mtp,
            n_rs_seq=n_rs_seq,
            n_seq_max=n_seqs,
            kv_unified=unified,
            embeddings=bool(pooling),
            pooling=pooling or "unspecified",
            target=None if target is None else str(target),
            watch=(lambda record, _: self.nodes.append(record)) if nodes else None,
            watch_input=self._add_values if inputs else None,
        )
        if unfused:
            self.refuse_fused(unfused)

    def _add_values(self, _: int, name: str, read: Read) -> None:
        for source in self.nodes[-1]["src"]:
            if source["name"] == name:
                source["values"] = read()


class Ours:
    """Engine of llama-py on a device; "null" skips computing and compiling."""

    def __init__(
        self,
        path: Any,
        device: Any = "cpu",
        *,
        n_seqs: int = 1,
        flash: bool = True,
        cache: str = "f16",
        nodes: bool = False,
        unfused: str = "",
        mtp: bool = False,
        n_rs_seq: int = 0,
        pooling: str = "",
        unified: bool = False,
        target: Path | None = None,
        **options: Any,
    ) -> None:
        self.nodes: list[Record] = []
        self._graph = -1
        if unfused:
            options["forms"] = {**options.get("forms", {}), unfused: forms()[unfused].names[1]}
        if pooling:
            options |= {"embeddings": True, "pooling": pooling}
        options = {
            "n_ctx": N_SEQ * n_seqs,
            "n_batch": N_BATCH,
            "n_ubatch": N_BATCH,
            "n_seq_max": n_seqs,
            "kv_unified": unified,
            "n_rs_seq": n_rs_seq,
            "flash_attn": flash,
            "type_k": cache,
            "type_v": cache,
            **options,
        }
        self.target = None
        if target is not None:
            self.target = options["target"] = llama_py.load(str(target), device).context(**options)
        mtp = mtp and target is None
        self.ctx = llama_py.load(path, device, load_mtp=True).context(**options, mtp=mtp)
        if nodes:
            self.ctx.on_graph = self._list

    def __enter__(self) -> Ours:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _list(self, res: Any, _: Any) -> None:
        self._graph += 1
        self.nodes += records(res.graph, self._graph)

    def run(self, batch: Batch, encode: bool = False) -> None:
        ctx: Any = self.ctx
        self._logits = ctx.encode(batch) if encode else ctx.decode(batch)

    def see_all(self) -> None:
        assert not self.ctx.cparams.causal_attn

    def fill(self, batch: Batch) -> None:
        assert self.target is not None
        self.target.decode(batch)

    def logits(self, n: int) -> Floats:
        return self._logits[-n:]

    def embeddings(self, n: int) -> Floats:
        assert self.ctx.embd is not None and len(self.ctx.embd) == n
        return self.ctx.embd

    def embeddings_seq(self, seq: int) -> Floats:
        ctx: Any = self.ctx
        return ctx.embd_seq[seq]

    def set_embeddings_nextn(self, masked: bool) -> None:
        self.ctx.set_embeddings_nextn(True, masked)

    def h_nextn(self, n: int) -> Floats:
        assert self.ctx.h_nextn is not None and len(self.ctx.h_nextn) == n
        return self.ctx.h_nextn
