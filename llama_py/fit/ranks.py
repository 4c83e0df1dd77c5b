"""Divide a model among processes on several machines so that it fits their memory.

    found = fit_ranks(open_header("model.gguf"), [64 << 30, 64 << 30], n_ctx=8192)
    found.use[1]          # bytes of rank 1: {"model": ..., "context": ..., "compute": ...}

The caller specifies the division: whole layers, split layers, or stages (`split_mode`, `parallel`).
Shares follow the memory of each rank. If a rank still has too little, and others have free memory,
its share is reduced. All sizes are planned (`llama_py.fit.planning`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llama_py.fit import MARGIN, N_CTX_MIN
from llama_py.fit.planning import PlannedContext, PlannedModel, stand_ins
from llama_py.gguf.file import GGUFFile
from llama_py.hparams.cparams import N_CTX_STEP
from llama_py.loading.model import create_placement
from llama_py.models import architecture
from llama_py.params import ModelParams
from llama_py.weights.placement import Placement, coarse

PREFIX = "mpi"  # prefix of the names of ranks' devices
MOST_PLANS = 8  # maximum number of plans with other shares

Use = dict[str, int]


def find_rank(device: str) -> int:
    """Return the rank of a device; the host and other local devices have rank 0."""
    number = device.removeprefix(PREFIX)
    return int(number) if number != device and number.isdigit() else 0


def by_rank(breakdown: Mapping[str, Mapping[str, int]]) -> list[Use]:
    """Sum a context's bytes by device and use into bytes by rank and use."""
    found: list[Use] = [{} for _ in range(1 + max(map(find_rank, breakdown)))]
    for device, uses in breakdown.items():
        use = found[find_rank(device)]
        for what, size in uses.items():
            use[what] = use.get(what, 0) + size
    return found


@dataclass(frozen=True, slots=True)
class RanksFit:
    """Result of `fit_ranks`: a division of the model, and the memory of each rank.

    options  fields of ModelParams for this result, without the devices
    ctx      the planned context
    use      bytes by rank and use
    left     remaining bytes of each rank's memory; negative if the model does not fit
    fits     True if every margin remains free
    """

    options: dict[str, Any]
    ctx: PlannedContext
    use: list[Use]
    left: list[int]
    fits: bool


def fit_ranks(
    file: GGUFFile,
    memory: Sequence[int],
    *,
    n_ctx: int | None = None,
    n_ctx_min: int = N_CTX_MIN,
    margin: int = MARGIN,
    model: Mapping[str, Any] | None = None,
    context: Mapping[str, Any] | None = None,
    repack: bool = True,
) -> RanksFit:
    """Plan the division of a model file among ranks; read only its metadata.

    memory     bytes available to each rank
    n_ctx      cells of the context; None: the maximum, at minimum n_ctx_min per sequence
    margin     bytes of each rank's memory that must remain free
    model, context   options of ModelParams and ContextParams; a missing `tensor_split` is chosen
    repack     True if weights are repacked

    Raises BackendError for a division that does not match the number of ranks. If no division
    fits, return the plan that lacks the least memory, with `fits` False.
    """
    plan = _Plans(file, memory, margin, dict(model or {}), dict(context or {}), repack)
    if n_ctx is not None:
        return plan.find_best(n_ctx)
    n_seqs = plan.context.get("n_seq_max", 1)
    most = plan.n_ctx_train * n_seqs
    smallest = plan.find_best(min(n_ctx_min * n_seqs, most))
    return plan.find_largest(smallest, most, N_CTX_STEP * n_seqs) if smallest.fits else smallest


class _Plans:
    def __init__(
        self,
        file: GGUFFile,
        memory: Sequence[int],
        margin: int,
        model: dict[str, Any],
        context: dict[str, Any],
        repack: bool,
    ) -> None:
        self.file, self.memory, self.margin = file, memory, margin
        self.model, self.context, self.repack = model, context, repack
        self._models: dict[tuple[float, ...], PlannedModel] = {}
        p = ModelParams(**self.model)
        if p.kv_overrides:
            file.override(p.kv_overrides)
        kind = architecture(file.architecture)
        self.hparams = kind.HParams(file.metadata, kind.arch)
        self.n_ctx_train = int(self.hparams.n_ctx_train)
        self.shares_layers = self._placement(()).shares_layers

    def _placement(self, shares: Sequence[float]) -> Placement:
        names = [*(f"{PREFIX}{i}" for i in range(len(self.memory))), "cpu"]
        devices = stand_ins(names, [*self.memory, self.memory[0]])
        for device in devices:
            device.repack = self.repack
        return create_placement(devices, ModelParams(**{**self.model, "tensor_split": shares}))

    def _model(self, shares: Sequence[float]) -> PlannedModel:
        """Return the planned model for the given shares; the last model is cached."""
        key = tuple(shares)
        if key not in self._models:
            self._models = {key: PlannedModel(self.file, self._placement(shares), **self.model)}
        return self._models[key]

    def plan(self, n_ctx: int, shares: Sequence[float]) -> RanksFit:
        ctx = PlannedContext(self._model(shares), **{**self.context, "n_ctx": n_ctx})
        use = by_rank(ctx.memory_breakdown())
        left = [n - sum(u.values()) for n, u in zip(self.memory, use, strict=True)]
        fits = all(n >= self.margin for n in left)
        return RanksFit({"tensor_split": tuple(shares)}, ctx, use, left, fits)

    def find_best(self, n_ctx: int) -> RanksFit:
        """Return the plan that lacks the least memory."""
        given = self.model.get("tensor_split")
        if given:
            return self.plan(n_ctx, given)
        room = [max(n - self.margin, 1) for n in self.memory]
        shares: Sequence[float] = coarse(room) if self.shares_layers else _round_shares(room)
        best = self.plan(n_ctx, shares)
        for _ in range(MOST_PLANS):
            if best.fits:
                break
            # part of a rank's memory does not depend on its share
            used = [max(sum(u.values()), 1) for u in best.use]
            moved = [s * r / u for s, r, u in zip(shares, room, used, strict=True)]
            shares = _round_shares(moved)
            found = self.plan(n_ctx, shares)
            if min(found.left) <= min(best.left):
                break
            best = found
        return self._use_layer_counts(best, n_ctx)

    def find_largest(self, fits: RanksFit, most: int, step: int) -> RanksFit:
        """Return a plan with nearly the largest context that fits, for the shares of `fits`."""
        shares = fits.options["tensor_split"]
        if (best := self.plan(most, shares)).fits:
            return best
        over, best = best, fits
        for _ in range(MOST_PLANS):
            low, high = best.ctx.n_ctx, over.ctx.n_ctx
            if high - low <= step:
                break
            slopes = [(a - b) / (high - low) for a, b in zip(best.left, over.left, strict=True)]
            rooms = zip(best.left, slopes, strict=True)
            n = low + min((int((a - self.margin) / k) for a, k in rooms if k > 0), default=0)
            n = min(max(n // step * step, low + step), high - 1)
            found = self.plan(n, shares)
            best, over = (found, over) if found.fits else (best, found)
            if found.fits and n == high - 1:
                break
        return best

    def _use_layer_counts(self, found: RanksFit, n_ctx: int) -> RanksFit:
        """Return shares as numbers of layers, plus one for the output, if the division is equal."""
        names = [d.name for d in found.ctx.model.layer_devices]
        counts = [names.count(f"{PREFIX}{i}") for i in range(len(self.memory))]
        if self.shares_layers or sum(counts) < len(names):
            return found
        layers = self._placement(counts).layers(self.hparams.n_layer_all)
        if [d.name for d in layers] != names:
            return self.plan(n_ctx, counts)
        return replace(found, options={"tensor_split": tuple(counts)})


def _round_shares(shares: Sequence[float]) -> list[float]:
    """Round shares to readable numbers; the largest becomes 100."""
    return [max(round(100 * s / max(shares)), 1) for s in shares]
