"""Messages as prompts: through the model's chat template, and where other prompts may go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ggml_py.errors import ModelError
from llama_py.chat import ChatTemplate
from llama_py.chat.messages import has_images
from llama_py.context import Context
from llama_py.decoding.prefix_cache.tree import common
from llama_py.loading.model import Loaded

Message = Mapping[str, Any]  # {"role": "user", "content": "..."}


def without_images(messages: Sequence[Message]) -> Sequence[Message]:
    """Messages with marks where images are, for a template."""
    if not has_images(messages):
        return messages
    from llama_py.vision.messages import marked

    return marked(messages)


def template_of(model: Loaded) -> ChatTemplate:
    """The model's chat template; a plain one, with a warning, if it has none."""
    return model.chat_template or model.default_template


def stops_of(end: str, stop: Sequence[str]) -> Sequence[str]:
    """Texts that end an answer besides the model's tokens: `stop`, the template's next turn."""
    return stop if not end or isinstance(stop, str) else (*stop, end)


def tokens_of(
    model: Loaded,
    prompt: str,
    messages: Sequence[Message] = (),
    media_path: str | Path | None = None,
    n_most: int | None = None,
) -> list[int]:
    """The tokens of a prompt that a template made: BOS is there once. Where the messages that it
    was made of have images, it is a `llama_py.vision.prompt.ImagePrompt`.

    media_path  a folder of whose files the messages may name images (file:NAME)
    n_most      cells that images may take; None: any number
    """
    bos = template_of(model).bos
    has_bos = bool(bos) and prompt.startswith(bos)
    if has_images(messages):
        from llama_py.vision.messages import PLACE, images_of
        from llama_py.vision.prompt import image_prompt

        return image_prompt(
            model.tokenizer,
            model.hparams,
            model.eyes,
            prompt,
            images_of(messages, media_path),
            marker=PLACE,
            add_special=not has_bos,
            n_most=n_most,
        )
    return model.tokenizer.tokenize(prompt, add_special=not has_bos)


def marks(
    ctx: Context,
    messages: Sequence[Message],
    ids: Sequence[int],
    variables: Mapping[str, Any] | None = None,
) -> list[int]:
    """Where other prompts may go on from the tokens of a conversation: before the text of its last
    message (behind its images), which may be another, and where the answer will be written
    differently once it is an earlier message (thinking is left out), or before the last token."""
    if ctx.memory.goes_back or not messages:
        return []
    seen, messages = has_images(messages[-1:]), without_images(messages)
    template, (*before, last) = template_of(ctx.model), messages
    said = str(last.get("content", ""))
    images, said = _behind_images(said) if seen else ("", said)
    other = {**last, "content": f"{images}{'>' if said.startswith('<') else '<'}{said}"}
    answered = [*messages, {"role": "assistant", "content": "x"}, last]
    more = variables or {}
    try:
        text = template.render(messages, **more)
        later = (
            template.render([*before, other], **more),
            template.render(answered, add_generation_prompt=False, **more),
        )
    except ModelError:  # it takes no such messages
        return []
    return [_token_at(ctx.model, ids, text[common(text, t) :]) for t in later]


def _behind_images(text: str) -> tuple[str, str]:
    """A text up to the end of its last image, and the rest."""
    from llama_py.vision.messages import PLACE

    head, place, rest = text.rpartition(PLACE)
    return head + place, rest


def _token_at(model: Loaded, ids: Sequence[int], rest: str) -> int:
    """The token in which the rest of a text begins; the last one, if there is no rest. Of what has
    images only what is behind the last is looked at."""
    left = len(rest.encode("utf-8", "surrogatepass"))
    for i in reversed(range(len(ids))):
        if ids[i] < 0:
            return i + 1
        left -= len(model.tokenizer.token_to_piece(ids[i], special=True))
        if left <= 0:
            return i
    return 0
