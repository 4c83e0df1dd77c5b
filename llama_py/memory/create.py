"""Create a context's memory from the specification of each layer (llama_model::create_memory)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from ggml_py.backend import Device
from ggml_py.errors import ContextError
from ggml_py.types import GGMLType
from llama_py.hparams.cparams import N_CTX_STEP, CParams
from llama_py.hparams.layer_shape import Window
from llama_py.memory.cache_types import check_types
from llama_py.memory.group import MemoryGroup
from llama_py.memory.kv import KVCache
from llama_py.memory.kv_slots import CellLayout
from llama_py.memory.kv_tensors import KVLayer, RowLayout
from llama_py.memory.part import StateMemory
from llama_py.memory.recurrent import RecurrentMemory, StateLayer
from llama_py.memory.slots import SlotMemory
from llama_py.memory.specs import (
    BASE,
    INDEX,
    CompressedSpec,
    Index,
    KVCacheSpec,
    MemorySpecs,
    SameAs,
    StateSpec,
    Tokens,
)

if TYPE_CHECKING:
    from llama_py.memory.compressed import CompressedMemory


@dataclass(frozen=True, slots=True)
class Placing:
    """Options and devices for creating the memory.

    device_of   device of a layer's memory
    parts       devices that share layers, by number
    """

    cparams: CParams
    device_of: Callable[[int], Device]
    type_k: GGMLType
    type_v: GGMLType
    n_pos: int = 1
    parts: Sequence[Device] = ()

    def device(self, il: int, part: int | None) -> Device:
        """Return the device of a layer's memory or of one part."""
        return self.device_of(il) if part is None else self.parts[part]

    def of_keys(self, il: int, part: int | None) -> Device:
        """Return the device of a layer's keys and values: the host unless `offload_kqv` is set."""
        return self.device(il, part if self.cparams.offload_kqv else None)


@dataclass
class _Cache:
    """A cache to create: `scored` for the keys of indexers, else like `Index` and `KVCache`."""

    scored: bool
    rotated: bool
    layers: list[KVLayer] = field(default_factory=list)
    window: Window | None = None
    pooled: bool = False
    kpool: int = 0
    by_order: bool = False
    with_ids: bool = False
    tag: str = ""

    def make(self, same_as: Mapping[int, int], n_embd_v_max: int, how: Placing) -> KVCache:
        """Allocate the cache described by this record."""
        cp, own = how.cparams, {layer.il for layer in self.layers}
        if how.type_k is not how.type_v and any(not x.n_embd_head_v for x in self.layers):
            raise ContextError(
                "type_k and type_v must be the same, because this model's values are part of its "
                f"keys, got {how.type_k} and {how.type_v}"
            )
        check_types(self.layers, how.type_k, how.type_v)
        return _kind(self.kpool, self.by_order)(
            self.layers,
            CellLayout(
                _cells(self.window, cp),
                cp.n_seq_max,
                cp.kv_unified,
                how.n_pos,
                self.window,
                self.with_ids,
            ),
            RowLayout(
                how.type_k,
                how.type_v,
                v_trans=not cp.flash_attn,
                same_as={il: other for il, other in same_as.items() if other in own},
                n_embd_v_max=0 if self.scored else n_embd_v_max,
                tag=self.tag,
            ),
            scored=self.scored,
            rotated=self.rotated,
        )


def create_memory(kept: Mapping[int, MemorySpecs], how: Placing) -> MemoryGroup:
    """Create a context's memory from the specification of each layer."""
    if any(isinstance(one, KVCacheSpec) and one.apart for what in kept.values() for one in what):
        how = replace(how, cparams=replace(how.cparams, kv_unified=False))
    found: dict[str, _Cache] = {}
    same_as: dict[int, int] = {}
    of: dict[int, str] = {}
    with_ids = False
    states: list[tuple[int, StateSpec]] = []
    compressed: list[tuple[int, CompressedSpec]] = []
    for il, what in kept.items():
        for one in what:
            if isinstance(one, KVCacheSpec):
                name = of[il] = _name(one.window)
                sizes = one.n_head_kv, one.n_embd_head_k, one.n_embd_head_v
                _add(found, name, il, one, sizes, how).window = one.window
            elif isinstance(one, Index):
                cache = _add(found, INDEX, il, one, (1, one.n_embd_head, 0), how)
                cache.pooled, cache.kpool, cache.by_order = one.pooled, one.kpool, one.by_order
            elif isinstance(one, SameAs):
                same_as[il] = one.il
            elif isinstance(one, Tokens):
                with_ids = True
            elif isinstance(one, CompressedSpec):
                compressed.append((il, one))
            else:
                states.append((il, one))
    of |= {il: of[other] for il, other in same_as.items()}
    if BASE in found:
        found[BASE].with_ids = with_ids
    if INDEX in found and (states or found[INDEX].kpool):
        found[INDEX].tag = "idx_"
    widest = max((x.n_embd_v_gqa for one in found.values() for x in one.layers), default=0)
    # caches without a window come first
    names = sorted(found, key=lambda name: (name != BASE, name))
    caches = {name: found[name].make(same_as, widest, how) for name in names}
    pooled = any(one.pooled for one in found.values())
    recr = _create_compressed(compressed, how) if compressed else _states(states, how)
    return MemoryGroup(caches, recr, of, pooled)


def _add(
    found: dict[str, _Cache],
    name: str,
    il: int,
    one: KVCacheSpec | Index,
    sizes: tuple[int, int, int],
    how: Placing,
) -> _Cache:
    """Add a layer to a cache."""
    cache = found.setdefault(name, _Cache(name == INDEX, one.rotated))
    cache.rotated = one.rotated
    device = how.of_keys(il, one.part)
    cache.layers.append(KVLayer(il, *sizes, device, one.rope, one.part, one.copied))
    return cache


def _name(window: Window | None) -> str:
    return BASE if window is None else f"{window.kind} window {window.size}"


def _kind(kpool: int, by_order: bool) -> Callable[..., KVCache]:
    """Return the cache class; `kpool`: number of keys that are pooled into one, or 0; `by_order`:
    like in Index."""
    if not kpool:
        return KVCache
    from llama_py.memory.kpool import KPoolCache

    return partial(KPoolCache, kpool, by_order=by_order)


def _cells(window: Window | None, cp: CParams) -> int:
    """Return the number of cells: one per position, or enough for the windows of all sequences and
    one ubatch (unless swa_full)."""
    if window is None or cp.swa_full:
        return cp.n_ctx_seq
    needed = window.size * (cp.n_seq_max if cp.kv_unified else 1) + cp.n_ubatch
    return -(-min(cp.n_ctx_seq, needed) // N_CTX_STEP) * N_CTX_STEP


def _states(states: Sequence[tuple[int, StateSpec]], how: Placing) -> StateMemory | None:
    if not states:
        return None
    cp = how.cparams
    layers = [StateLayer(il, how.device(il, s.part), s) for il, s in states]
    kind = SlotMemory if cp.in_slots else RecurrentMemory
    return kind(layers, size=cp.n_seq_max, n_rs_seq=cp.n_rs_seq, causal=cp.causal_attn)


def _create_compressed(
    found: Sequence[tuple[int, CompressedSpec]], how: Placing
) -> CompressedMemory:
    """Create memory for compressed keys, grouped by type in order of appearance."""
    from llama_py.memory.compressed import CompressedMemory
    from llama_py.memory.compressed_tensors import CompressedTensors

    cp, by_kind = how.cparams, dict[CompressedSpec, list[int]]()
    for il, one in found:
        by_kind.setdefault(one, []).append(il)
    kinds = [
        CompressedTensors(
            one,
            [(il, how.of_keys(il, None)) for il in layers],
            n_ctx=cp.n_ctx_seq,
            n_stream=cp.n_seq_max,
            n_rs_seq=cp.n_rs_seq,
            type_k=how.type_k,
        )
        for one, layers in by_kind.items()
    ]
    return CompressedMemory(kinds, size=cp.n_seq_max, n_ctx=cp.n_ctx_seq, n_rs_seq=cp.n_rs_seq)
