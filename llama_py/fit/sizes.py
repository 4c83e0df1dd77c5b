"""Memory of each layer of a model, on the host and on other devices."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from ggml_py.backend import SupportsRepacking
from ggml_py.inspection.dump import find_layer
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME
from llama_py.context.checks import resolve_cparams
from llama_py.fit.planning import PlannedModel
from llama_py.memory import Placing, create_memory
from llama_py.params import ContextParams
from llama_py.weights.placement import EXPERTS

if TYPE_CHECKING:
    from llama_py.fit.answer import FitAnswer

_LAYER = re.compile(r"blk\.(\d+)\.")


@dataclass(slots=True)
class LayerSizes:
    """Bytes of weights. dense, experts: on another device than the host; host_*: on the host, where
    a repacked layout may need more; widest_*: the largest tensor."""

    dense: int = 0
    experts: int = 0
    host_dense: int = 0
    host_experts: int = 0
    widest: int = 0
    widest_expert: int = 0

    def add(self, nbytes: int, on_host: int, expert: bool) -> None:
        if expert:
            self.experts += nbytes
            self.host_experts += on_host
            self.widest_expert = max(self.widest_expert, nbytes)
        else:
            self.dense += nbytes
            self.host_dense += on_host
            self.widest = max(self.widest, nbytes)


@dataclass(slots=True)
class ModelSizes:
    """Bytes of a model's weights and caches.

    layers   weights by layer, then the output's
    always   by device, weights that are always placed there
    caches   function from the context's cells to bytes by layer
    on_host  caches are on the host
    """

    layers: list[LayerSizes]
    always: list[int]
    caches: Any
    on_host: bool
    n_ctx_train: int
    alone: bool = False
    _seen: dict[int, Sequence[int]] = field(default_factory=dict)

    @property
    def n_layer(self) -> int:
        return len(self.layers) - 1

    def get_caches(self, n_ctx: int) -> Sequence[int]:
        if n_ctx not in self._seen:
            self._seen[n_ctx] = self.caches(n_ctx)
        return self._seen[n_ctx]

    def sum_sizes(self, answer: FitAnswer) -> list[int]:
        """Return bytes of weights and caches by device."""
        total, caches = [*self.always], self.get_caches(answer.n_ctx)
        for il, (layer, device) in enumerate(zip(self.layers, answer.devices, strict=True)):
            host = device == len(total) - 1
            total[device] += layer.host_dense if host and not self.alone else layer.dense
            keeps = len(total) - 1 if self.on_host else device
            total[keeps] += caches[il]
            stays = il in answer.on_host or host
            total[-1 if stays else device] += layer.host_experts if stays else layer.experts
        return total


def measure_model(model: PlannedModel, context: Mapping[str, Any]) -> ModelSizes:
    """Measure a model that was planned with everything on the devices before the host."""
    place, layers = model.placement, model.layer_devices
    found = [LayerSizes() for _ in layers]
    always = [0] * len(place.devices)
    number = {id(d): i for i, d in enumerate(place.devices)}
    host = place.host
    for t in model.weights:
        readers = model.readers.get(id(t), ())
        device, cause = place.choice(t, readers, layers)
        uses = tuple(dict.fromkeys(n.op for n in readers))
        on_host = _host_size(t, uses, host)
        if cause not in ("layer", "output", "first layer"):  # a rule, a table, an unsupported op
            always[number[id(device)]] += on_host if device is host else t.nbytes
            continue
        layer = _LAYER.search(t.name)
        il = int(layer[1]) if layer else -1 if cause == "output" else 0
        nbytes = on_host if len(place.devices) == 1 else t.nbytes
        found[il].add(nbytes, on_host, re.search(EXPERTS, t.name) is not None)
    p = ContextParams(**{**context, "n_ctx": None})
    return ModelSizes(
        found,
        always,
        cache(lambda n_ctx: _caches(model, replace(p, n_ctx=n_ctx))),
        not p.offload_kqv,
        model.hparams.n_ctx_train,
        len(place.devices) == 1,
    )


def _host_size(t: Tensor, uses: Sequence[str], host: Any) -> int:
    """Return the bytes of a weight on the host, which may repack it."""
    if t.layout and t.buffer is not None:
        return t.buffer.size
    if isinstance(host, SupportsRepacking):
        plain = Tensor(t.type, t.ne, name=t.name)
        if (laid_out := host.repacked_layout(plain, uses)) is not None:
            return laid_out[1]
    return t.nbytes


def _caches(model: PlannedModel, p: ContextParams) -> list[int]:
    """Return bytes of keys, values and states by layer."""
    arch, place = model.architecture, model.placement
    layers, cparams = model.hparams.kept_layers, resolve_cparams(model, p)
    how = Placing(
        cparams,
        lambda il: place.host,
        BY_NAME[p.type_k],
        BY_NAME[p.type_v],
        n_pos=model.hparams.n_pos_per_embd,
        parts=place.group,
    )
    memory = create_memory({il: arch.sharded_memory_spec(il) for il in layers}, how)
    found = [0] * len(model.layer_devices)
    for t in memory.tensors():
        il = find_layer(t)
        assert il is not None, f"tensor {t.name} belongs to no layer"
        found[il] += t.nbytes
    return found
