"""What a model remembers between ubatches: attention keys and values, recurrent states, or both."""

from __future__ import annotations

from ggml_py.backend import Device
from ggml_py.types import GGMLType
from llama_py.cparams import CParams
from llama_py.hparams import HParams
from llama_py.memory.base import Memory, MemoryContext
from llama_py.memory.hybrid import HybridMemory
from llama_py.memory.kv import KVCache
from llama_py.memory.kv_tensors import KVLayer
from llama_py.memory.recurrent import RecurrentMemory

__all__ = ["HybridMemory", "KVCache", "Memory", "MemoryContext", "RecurrentMemory", "create_memory"]


def create_memory(
    kind: str, hparams: HParams, cparams: CParams, device: Device, type_k: GGMLType,
    type_v: GGMLType, mtp: bool = False,
) -> Memory:  # fmt: skip
    """The memory of a context (llama_model::create_memory).

    kind   "kv", "recurrent" or "hybrid" (layers with is_recr are recurrent, the others attend)
    mtp    for the NextN layers instead of the trunk: they only attend
    """
    layers = range(hparams.n_layer)
    if mtp:
        kind, layers = "kv", range(hparams.n_layer, hparams.n_layer_all)
    recurrent = [il for il in layers if kind == "recurrent" or hparams.is_recr(il)]
    if kind == "kv":
        return _kv_cache(layers, hparams, cparams, device, type_k, type_v)
    recr = RecurrentMemory(
        [(il, device) for il in recurrent], n_embd_r=hparams.n_embd_r, n_embd_s=hparams.n_embd_s,
        size=cparams.n_seq_max, n_rs_seq=cparams.n_rs_seq,
    )  # fmt: skip
    if kind == "recurrent":
        return recr
    attending = [il for il in layers if il not in recurrent]
    return HybridMemory(_kv_cache(attending, hparams, cparams, device, type_k, type_v), recr)


def _kv_cache(
    layers: range | list[int], hparams: HParams, cparams: CParams, device: Device,
    type_k: GGMLType, type_v: GGMLType,
) -> KVCache:  # fmt: skip
    return KVCache(
        [
            KVLayer(il, hparams.n_head_kv(il), hparams.n_embd_head_k, hparams.n_embd_head_v, device)
            for il in layers
        ],
        kv_size=cparams.n_ctx_seq, n_seq_max=cparams.n_seq_max, unified=cparams.kv_unified,
        type_k=type_k, type_v=type_v, v_trans=not cparams.flash_attn, n_pos=hparams.n_pos_per_embd,
    )  # fmt: skip
