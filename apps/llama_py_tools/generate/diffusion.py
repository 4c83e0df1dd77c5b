"""Responses of diffusion models, for llama-py-cli."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from llama_py.params import ContextParams, GenerateParams, SamplingParams
from llama_py.params.diffusion import DiffusionParams
from llama_py_tools.command.options import read
from llama_py_tools.command.progress import Progress
from llama_py_tools.models import session

if TYPE_CHECKING:
    from llama_py import Model
    from llama_py.text.diffusion import Step

CLEAR = "\x1b[2J\x1b[H"


def write(args: argparse.Namespace, model: Model, ids: list[int]) -> None:
    """Write the response to a prompt; with --diffusion-visual every step. The text has -ub tokens
    with the prompt, or -n more than the prompt."""
    from llama_py.text.diffusion import diffuse

    how, wanted = read(args, DiffusionParams), read(args, GenerateParams).max_tokens
    length = len(ids) + wanted if wanted > 0 else read(args, ContextParams).n_ubatch
    progress = Progress("diffusing", after=0)
    try:
        for step in diffuse(model, ids, length, how, read(args, SamplingParams)):
            if how.visual:
                session.write(
                    f"{CLEAR}{step.done}/{step.total}\n{show_step(model, step, len(ids))}\n"
                )
            else:
                progress(step.done, step.total, f"step {step.done} of {step.total}")
    finally:
        progress.close()
    session.write(f"{CLEAR if how.visual else ''}{show_step(model, step, len(ids))}\n")


def show_step(model: Model, step: Step, n_prompt: int) -> str:
    """Return the current response; masked tokens are blank."""
    parts = (
        " " if id == step.mask else model.tokenizer.detokenize([int(id)])
        for id in step.tokens[n_prompt:]
    )
    if step.mask in step.tokens[n_prompt:]:
        return "".join(parts)
    return model.tokenizer.detokenize(step.tokens[n_prompt:].tolist())
