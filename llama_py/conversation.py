"""A conversation: messages through the model's chat template, answers kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ggml_py.errors import ContextError, ModelError
from llama_py.chat import ChatTemplate
from llama_py.context import Context
from llama_py.generate import Piece, stream
from llama_py.loaded import Loaded
from llama_py.prefix import Prefix

Message = Mapping[str, Any]  # {"role": "user", "content": "..."}


class Conversation:
    """Turns of user and model in a sequence of a context.

    messages  all so far, the model's answers too
    prefix    what the memory has of them, which is not computed again
    """

    def __init__(self, ctx: Context, system: str = "", seq_id: int = 0) -> None:
        """system: what the model is to be. ModelError if the model has no chat template."""
        template_of(ctx.model)
        self.ctx = ctx
        self.start: list[Message] = [{"role": "system", "content": system}] if system else []
        self.messages = list(self.start)
        self.prefix = Prefix(ctx, seq_id)

    def ask(self, text: str, **options: Any) -> Iterator[Piece]:
        """The answer to a message, piece by piece; options are the fields of GenerateParams.

        What was answered when the caller stops is kept as the answer. Raises ContextError, before
        anything is computed, if the conversation does not fit the context.
        """
        self.messages.append({"role": "user", "content": text})
        ids = self.prompt(self.ctx.model, self.messages)
        self._check_length(ids)
        rest, answer = self.prefix.start(ids), []
        options |= {"seq_id": self.prefix.seq_id}
        try:
            for piece in stream(self.ctx, rest, **options):
                if piece.token is not None:
                    answer.append(piece.token)
                yield piece
        finally:
            self.prefix.add([*rest, *answer])
            said = self.ctx.model.tokenizer.detokenize(answer)
            self.messages.append({"role": "assistant", "content": said})

    def clear(self) -> None:
        """Forget all but the system's message."""
        self.messages = list(self.start)
        self.prefix.clear()

    @staticmethod
    def prompt(model: Loaded, messages: str | Sequence[Message], **variables: Any) -> list[int]:
        """The tokens of a conversation, or of one question; `variables` are for the template."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        template = template_of(model)
        text = template.render(messages, **variables)
        has_bos = bool(template.bos) and text.startswith(template.bos)
        return model.tokenizer.tokenize(text, add_special=not has_bos)

    def _check_length(self, ids: Sequence[int]) -> None:
        n_ctx = self.ctx.cparams.n_ctx_seq
        if len(ids) > n_ctx:
            self.messages.pop()
            raise ContextError(
                f"the conversation has {len(ids)} tokens, but the context {n_ctx}; use a larger"
                " n_ctx, or clear it"
            )


def template_of(model: Loaded) -> ChatTemplate:
    """The model's chat template; ModelError if it has none."""
    if model.chat_template is None:
        raise ModelError("the model has no chat template, so it cannot chat; use generate")
    return model.chat_template
