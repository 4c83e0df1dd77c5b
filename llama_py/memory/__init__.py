"""What a model remembers between ubatches: attention keys and values, recurrent states, or both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ggml_py.backend import Device
from ggml_py.errors import ContextError
from ggml_py.types import GGMLType
from llama_py.cparams import N_CTX_STEP, CParams
from llama_py.hparams import HParams
from llama_py.memory.base import Memory, MemoryContext
from llama_py.memory.hybrid import HybridMemory
from llama_py.memory.kv import KVCache
from llama_py.memory.kv_iswa import KVCacheISWA
from llama_py.memory.kv_tensors import KVLayer
from llama_py.memory.recurrent import RecurrentMemory

__all__ = [
    "HybridMemory", "KVCache", "KVCacheISWA", "Memory", "MemoryContext", "RecurrentMemory",
    "create_memory",
]  # fmt: skip

DeviceOf = Callable[[int], Device]


def create_memory(
    kind: str, hparams: HParams, cparams: CParams, device_of: DeviceOf, type_k: GGMLType,
    type_v: GGMLType, mtp: bool = False,
) -> Memory:  # fmt: skip
    """The memory of a context (llama_model::create_memory).

    kind   "kv", "recurrent" or "hybrid" (layers with is_recr are recurrent, the others attend)
    device_of   the device that has the memory of a layer
    mtp    for the NextN layers instead of the trunk: they only attend
    """
    kv = _KV(hparams, cparams, device_of, type_k, type_v)
    if mtp:
        return kv.cache(range(hparams.n_layer, hparams.n_layer_all))
    layers = range(hparams.n_layer)
    if kind == "kv":
        windowed = [il for il in layers if hparams.is_swa(il)]
        return kv.two_caches(layers, windowed) if windowed else kv.cache(layers)
    recurrent = [il for il in layers if kind == "recurrent" or hparams.is_recr(il)]
    recr = RecurrentMemory(
        [(il, device_of(il)) for il in recurrent], n_embd_r=hparams.n_embd_r,
        n_embd_s=hparams.n_embd_s, size=cparams.n_seq_max, n_rs_seq=cparams.n_rs_seq,
    )  # fmt: skip
    if kind == "recurrent":
        return recr
    return HybridMemory(kv.cache([il for il in layers if il not in recurrent]), recr)


@dataclass(frozen=True, slots=True)
class _KV:
    """What all KV caches of a context have in common."""

    hparams: HParams
    cparams: CParams
    device_of: DeviceOf
    type_k: GGMLType
    type_v: GGMLType

    def cache(self, layers: Sequence[int], kv_size: int = 0, n_swa: int = 0) -> KVCache:
        """kv_size 0: a cell for each position; n_swa 0: no window."""
        hp, cp = self.hparams, self.cparams
        kept = [KVLayer(il, *hp.kv_heads(il), self.device_of(il)) for il in layers]
        if self.type_k is not self.type_v and any(not layer.n_embd_head_v for layer in kept):
            raise ContextError(
                f"type_k = {self.type_k} and type_v = {self.type_v} must be the same: this model's"
                " values are part of its keys"
            )
        return KVCache(
            kept,
            kv_size=kv_size or cp.n_ctx_seq, n_seq_max=cp.n_seq_max, unified=cp.kv_unified,
            type_k=self.type_k, type_v=self.type_v, v_trans=not cp.flash_attn,
            n_pos=hp.n_pos_per_embd, n_swa=n_swa,
        )  # fmt: skip

    def two_caches(self, layers: Sequence[int], windowed: list[int]) -> KVCacheISWA:
        """The window's cache has room for the window of each sequence and one ubatch."""
        n_swa, cp = self.hparams.n_swa, self.cparams
        size = min(cp.n_ctx_seq, n_swa * (cp.n_seq_max if cp.kv_unified else 1) + cp.n_ubatch)
        size = -(-size // N_CTX_STEP) * N_CTX_STEP
        base = self.cache([il for il in layers if il not in windowed])
        return KVCacheISWA(base, self.cache(windowed, size, n_swa))
