"""Memory and planned graphs of a closed context, which the next context with its options uses."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

from ggml_py.backend import HostBuffer
from ggml_py.machine import host
from llama_py.context.runner import Runner
from llama_py.hparams.cparams import CParams
from llama_py.loading.model import LoadedModel
from llama_py.memory import MemoryGroup
from llama_py.params import ContextParams


@dataclass(slots=True)
class Spare:
    """Parts of a closed context.

    key      the context's options, and its devices with their threads
    cparams  parameters of its graphs before later settings
    runner   without a model, which would otherwise refer to itself
    """

    key: object
    cparams: CParams
    memory: MemoryGroup
    runner: Runner


def take_spare(model: LoadedModel, params: ContextParams) -> Spare | None:
    """Return the model's spare if a context with these options can use it; discard it if not."""
    spare = vars(model).pop("spare", None)  # atomic: contexts may be created in several threads
    if not isinstance(spare, Spare) or spare.key != _key(model, params):
        return None
    spare.runner.model = model
    return spare


def leave_spare(
    runner: Runner, params: ContextParams, cparams: CParams, memory: MemoryGroup
) -> None:
    """Keep the memory and graphs of a context that is closed, if Linux can take back their pages at
    any time. Their values become 0."""
    p, model = params, runner.model
    buffers = [b for part in memory.parts for _, b in part.buffers] + runner.sched.buffers
    offered = [b for b in buffers if isinstance(b, HostBuffer)]
    alone = host.SYSTEM == "linux" and len(offered) == len(buffers) and len(model.devices) == 1
    if not alone or p.target is not None or p.watch is not None or p.check:
        return
    for buffer in offered:
        buffer.offer()
    memory.clear(False)
    memory.intact = {}
    left = copy(runner)
    left.reset()
    del left.model
    model.spare = Spare(_key(model, p), cparams, memory, left)


def _key(model: LoadedModel, params: ContextParams) -> object:
    return params, [d.description for d in model.devices]
