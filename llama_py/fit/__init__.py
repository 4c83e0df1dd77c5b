"""Planning of model and context options that fit into memory (common/fit.cpp).

`fit` searches for the best answer by sizes alone (`shares`), plans the model and the context of the
answer (`llama_py.fit.planning`), and searches again with the planned sizes: its result is planned,
not estimated.

If no placement fits, the host has a cache of experts, and reads other experts from the file.

Priorities: first, the whole model on the devices before the host; second, all except the experts of
a minimum of layers, from the first; third, the maximum number of layers, from the output. A context
of unspecified size is the largest that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ggml_py.backend.planned import PlanningDevice
from llama_py.fit.answer import FitAnswer
from llama_py.fit.planning import LimitedModel, PlannedContext, PlannedModel
from llama_py.fit.shares import LayerShares, find_best
from llama_py.fit.sizes import ModelSizes, measure_model
from llama_py.gguf.file import GGUFFile
from llama_py.hparams.cparams import N_CTX_STEP

MARGIN = 1 << 30  # bytes to leave free on each device (llama.cpp's fit_params_target)
N_CTX_MIN = 4096  # minimum tokens per sequence, preferred to more layers (fit_params_min_ctx)
MOST_PLANS = 6
GUESS = 1 << 29  # compute buffers before the first plan

Plan = Callable[[FitAnswer, int | None], tuple[PlannedContext, dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Fit:
    """Result of `fit` and its sizes.

    answer   layers by device, layers with experts on the host, cells of the context
    options  fields of ModelParams for this result, without the devices
    ctx      the planned context
    left     free bytes of each device; negative if the model does not fit
    fits     True if every margin remains free
    """

    answer: FitAnswer
    options: dict[str, Any]
    ctx: PlannedContext
    left: dict[str, int]
    fits: bool


def fit(
    file: GGUFFile,
    devices: Sequence[PlanningDevice],
    *,
    n_ctx: int | None = None,
    n_ctx_min: int = N_CTX_MIN,
    margins: Sequence[int] = (),
    model: Mapping[str, Any] | None = None,
    context: Mapping[str, Any] | None = None,
) -> Fit:
    """Return the best placement of a file; read only its metadata.

    devices    with memory, the last being the host
    n_ctx      cells of the context; None: the maximum, at minimum n_ctx_min per sequence
    margins    bytes to leave free on each device; default: MARGIN
    model, context   other options of ModelParams and ContextParams

    If no placement fits, return the plan with the smallest lack of memory, with `fits` False.
    """
    how, more = dict(model or {}), dict(context or {})
    every = [*margins, *[MARGIN] * len(devices)][: len(devices)]
    sizes = measure_model(PlannedModel(file, devices, **how), more)
    asked = _contexts(sizes, n_ctx, n_ctx_min, more)

    def plan(
        answer: FitAnswer, reserve: int | None = None
    ) -> tuple[PlannedContext, dict[str, Any]]:
        """Plan with all weights in memory, or with `reserve` bytes of the host not for weights."""
        for d in devices:
            d.asked = 0
        found = answer.options(devices[-1].name) if len(devices) > 1 else {}
        if rules := {**how.get("tensor_overrides", {}), **found.get("tensor_overrides", {})}:
            found["tensor_overrides"] = rules
        if reserve is None:
            model = PlannedModel(file, devices, **{**how, **found})
        else:
            model = LimitedModel(file, devices, **{**how, **found, "reserve": reserve})
        return PlannedContext(model, **{**more, "n_ctx": answer.n_ctx}), found

    return _Search(sizes, devices, every, asked, plan).run()


def _contexts(
    sizes: ModelSizes, n_ctx: int | None, n_ctx_min: int, context: Mapping[str, Any]
) -> Sequence[int]:
    """Return the context sizes to choose from, ascending."""
    if n_ctx is not None:
        return (n_ctx,)
    n_seqs = context.get("n_seq_max", 1)
    step, most = N_CTX_STEP * n_seqs, sizes.n_ctx_train * n_seqs
    least = min(n_ctx_min * n_seqs, most)
    return (*range(least, most, step), most)


class _Search:
    """Search for the best answer by sizes, corrected by each plan's real sizes."""

    def __init__(
        self,
        sizes: ModelSizes,
        devices: Sequence[PlanningDevice],
        margins: Sequence[int],
        contexts: Sequence[int],
        plan: Plan,
    ) -> None:
        self.sizes, self.devices, self.margins = sizes, devices, margins
        self.contexts, self.plan = contexts, plan
        self.memory = [d.memory()[0] for d in devices]
        self.other = [min(GUESS, n // 8) for n in self.memory]  # than weights and caches

    def run(self) -> Fit:
        answer, _ = find_best(self._shares(), self.contexts)
        chosen, tried = self._plan_answer(answer), {answer}
        for n in range(MOST_PLANS - 1):
            answer, may_fit = find_best(self._shares(), self.contexts)
            better = answer.rank > chosen.answer.rank
            hopeless = n > 0 and not may_fit  # the estimate missed twice
            if answer in tried or hopeless or (chosen.fits and not better):
                break
            tried.add(answer)
            this = self._plan_answer(answer)
            if this.fits or not chosen.fits:
                chosen = this
        return chosen if chosen.fits else self._cache_experts(chosen)

    def _cache_experts(self, chosen: Fit) -> Fit:
        """Plan the same answer with a cache of experts on the host, if that fits: mapped weights,
        such as embeddings, may exceed the host's memory."""
        use = chosen.ctx.memory_breakdown()[self.devices[-1].name]
        reserve = use["context"] + use["compute"] + self.margins[-1]
        found = self._plan_answer(chosen.answer, reserve)
        if found.ctx.model.expert_stats is None or self._misses_margins(found, -1):
            return chosen
        return replace(found, fits=True)

    def _misses_margins(self, found: Fit, end: int | None = None) -> bool:
        """Return True if a device, up to the device `end`, lacks memory or a large buffer."""
        return any(
            found.left[d.name] < margin or (d.largest is not None and d.asked > d.largest)
            for d, margin in [*zip(self.devices, self.margins, strict=True)][:end]
        )

    def _shares(self) -> LayerShares:
        room = [
            n - margin - other
            for n, margin, other in zip(self.memory, self.margins, self.other, strict=True)
        ]
        return LayerShares(self.sizes, room, [d.largest for d in self.devices])

    def _plan_answer(self, answer: FitAnswer, reserve: int | None = None) -> Fit:
        """Plan an answer and record the difference from the counted sizes."""
        ctx, options = self.plan(answer, reserve)
        use = [sum(ctx.memory_breakdown()[d.name].values()) for d in self.devices]
        counted = self.sizes.sum_sizes(answer)
        self.other = [n - known for n, known in zip(use, counted, strict=True)]
        left = [n - used for n, used in zip(self.memory, use, strict=True)]
        names = [d.name for d in self.devices]
        found = Fit(answer, options, ctx, dict(zip(names, left, strict=True)), False)
        return replace(found, fits=not self._misses_margins(found))
