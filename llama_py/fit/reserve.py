"""Memory of the host that a context will need, computed before the weights are loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ggml_py.backend import Device
from llama_py.gguf.parts import file_bytes
from llama_py.params import ContextParams, ModelParams

ENOUGH = 4  # a file smaller than this part of the free memory needs no plan


def context_reserve(
    path: str | Path, devices: Sequence[Device], model: ModelParams, context: ContextParams
) -> int | None:
    """Return the bytes of caches and computation on the host, which is the last device; None for a
    model that certainly fits, and for weights that are converted in memory.

    Raises the errors of loading and of `Context`.
    """
    from llama_py.fit.planning import PlannedContext, PlannedModel, open_header, stand_ins

    free = devices[-1].memory()[0]
    free = min(free, model.max_memory or free)
    if model.quantize or Path(path).is_dir() or ENOUGH * file_bytes(Path(path)) < free:
        return None
    how = replace(model, device=stand_ins(devices), progress=False)
    planned = PlannedModel(open_header(path), **vars(how))
    ctx = PlannedContext(planned, **vars(replace(context, progress=False)))
    use = ctx.memory_breakdown()[ctx.devices[-1].name]
    return use["context"] + use["compute"]
