"""The engine's request for one answer to a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from llama_py.batch.prompts import n_cells
from llama_py.params import AnswerParams, SamplingParams
from llama_py.serving import Request
from llama_py_server.wire.errors import invalid

if TYPE_CHECKING:
    from llama_py_server.models.state import ModelState
    from llama_py_server.schema.completion import ReplyTask


def request_of(state: ModelState, prompt: Sequence[int], task: ReplyTask) -> Request:
    """Return what the engine is asked for. HTTPError for a slot or an adapter that is none."""
    chat = task.chat
    if task.id_slot >= state.engine.n_slots:
        raise invalid(f"id_slot = {task.id_slot}: there are slots 0 to {state.engine.n_slots - 1}")
    params, constraint = _params(state, task), None
    if chat is not None:
        params = chat.params(params)
        room = state.engine.n_ctx - n_cells(prompt)
        if not params.constraints:
            constraint = chat.constraint(room if task.n_predict < 0 else task.n_predict)
    return Request(
        prompt=prompt,
        params=params,
        constraint=constraint,
        loras=None if task.lora is None else state.adapters_of(task.lora),
        id_slot=task.id_slot,
        cache_prompt=task.cache_prompt,
        marks=task.marks,
        prompt_logprobs=task.logprobs if task.echo else None,
        post_sampling_probs=task.post_sampling_probs,
        n_indent=task.n_indent,
        n_discard=task.n_discard,
        t_max_predict=max(task.t_max_predict_ms, 0) / 1000,
        t_max=float(state.options.listen.timeout),
    )


def _params(state: ModelState, task: ReplyTask) -> AnswerParams:
    """Return how the engine chooses tokens, and where it ends."""
    s = task.sampling
    return AnswerParams(
        **{f.name: getattr(s, f.name) for f in fields(SamplingParams)},
        max_tokens=task.n_predict,
        stop=task.stop,
        special=state.options.generate.special,
        preserved_tokens=task.preserved_tokens,
        context_shift=state.options.generate.context_shift,
        n_keep=task.n_keep,
        logprobs=task.logprobs,
    )
