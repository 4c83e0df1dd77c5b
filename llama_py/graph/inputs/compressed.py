"""Inputs of layers with compressed keys (llm_graph_input_dsv4)."""

from __future__ import annotations

from functools import partial

import numpy as np

from ggml_py.backend import set_tensor
from ggml_py.ops import view_4d
from ggml_py.tensor import Tensor
from ggml_py.types import F16, F32, I32, I64
from llama_py.batch import UBatch
from llama_py.graph.inputs.base import new_input, write
from llama_py.graph.params import GraphParams
from llama_py.memory.compressed import CompressedContext
from llama_py.memory.compressed_plan import Plan


class InputCompressed:
    """Inputs of one type of compressed keys: rows of states and of new keys, and a mask; see
    `Plan`.
    Inputs that no ubatch of the context needs are None.

    kq_mask  [n_kv, tokens of a sequence, 1, sequences], F16 for fused ops, else F32
    k_rot    rotation of keys
    """

    def __init__(self, params: GraphParams, kind: str, f16: bool) -> None:
        """Create the tensors; f16: the mask is F16."""
        self.kind = kind
        self.mctx = params.mctx.states(CompressedContext)
        self.tensors = self.mctx.mem.kinds[kind]
        ubatch = params.ubatch
        plan = self.mctx.plan(kind, ubatch)
        self.n_each = plan.n_each
        new = partial(_new, f"dsv4_{kind}_state_")
        self.state_pos = new("pos", plan.state_pos.size)
        self.persist_src = new("persist_src_idxs", plan.persist_src.size)
        self.persist_dst = new("persist_dst_idxs", plan.persist_dst.size)
        self.read = new("read_idxs", plan.read.size)
        self.write = new_input(f"dsv4_{kind}_state_write_idxs", I64, plan.write.size)
        self.write_pos = new("write_pos", plan.write_pos.size)
        self.restore: tuple[Tensor, Tensor] | None = None
        self.snapshot: tuple[Tensor, Tensor] | None = None
        if self.tensors.sizes.n_rs_seq:
            n = plan.restore_src.size
            self.restore = new("restore_src_idxs", n), new("restore_dst_idxs", n)
            n = plan.snapshot_src.size
            self.snapshot = new("snapshot_src_idxs", n), new("snapshot_dst_idxs", n)
        n_stream = ubatch.n_seqs_unq
        ne = plan.n_kv, ubatch.n_tokens // n_stream, 1, n_stream
        self.kq_mask = new_input(f"dsv4_{kind}_kq_mask", F16 if f16 else F32, *ne)
        rotation = self.tensors.rotation
        self.k_rot = rotation.build_input("attn_inp_k_rot", rotation.n_k)

    def get_k(self, il: int, ubatch: UBatch) -> Tensor:
        """Return the ubatch's keys that attention reads: [n_embd_head, 1, n_kv, n_stream]."""
        k = self.mctx.get_k(self.kind, il, ubatch)
        return view_4d(k, *k.ne[:2], self.kq_mask.ne[0], k.ne[3], *k.nb[1:], 0)

    def set_input(self, ubatch: UBatch) -> None:
        plan = self.mctx.plan(self.kind, ubatch)
        write(self.state_pos, plan.state_pos)
        write(self.persist_src, plan.persist_src)
        write(self.persist_dst, plan.persist_dst)
        write(self.read, plan.read)
        write(self.write, plan.write)
        write(self.write_pos, plan.write_pos)
        if self.restore is not None and self.snapshot is not None:
            write(self.restore[0], plan.restore_src)
            write(self.restore[1], plan.restore_dst)
            write(self.snapshot[0], plan.snapshot_src)
            write(self.snapshot[1], plan.snapshot_dst)
        if self.kq_mask.buffer is not None:
            set_tensor(self.kq_mask, _mask(plan, self.kq_mask))
        if self.k_rot is not None and self.k_rot.buffer is not None:
            self.tensors.rotation.set_input(self.k_rot)

    def can_reuse(self, params: GraphParams) -> bool:
        self.mctx = params.mctx.states(CompressedContext)
        return self.n_each == self.mctx.plan(self.kind, params.ubatch).n_each


def _new(stem: str, name: str, n: int) -> Tensor:
    return new_input(stem + name, I32, n)


def _mask(plan: Plan, mask: Tensor) -> np.ndarray:
    seen = np.arange(plan.n_kv)[None, :] < plan.n_visible[:, None]
    dtype = np.float16 if mask.type is F16 else np.float32
    return np.where(seen, dtype(0), dtype(-np.inf))
