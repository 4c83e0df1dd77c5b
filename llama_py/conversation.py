"""A conversation: messages through the model's chat template, answers kept."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from ggml_py.errors import ContextError, ModelError
from llama_py.chat import ChatTemplate
from llama_py.context import Context
from llama_py.generate import Piece, stream
from llama_py.loaded import Loaded
from llama_py.prefix import Prefix
from llama_py.reuse.tree import common

Message = Mapping[str, Any]  # {"role": "user", "content": "..."}
Pieces = Generator[Piece, None, None]


class Conversation:
    """Turns of user and model in a sequence of a context.

    messages  all so far, the model's answers too
    prefix    what the memory has of them, which is not computed again; `prefix.told` says of the
              last turn how much that was, and why
    """

    def __init__(self, ctx: Context, system: str = "", seq_id: int = 0) -> None:
        """system: what the model is to be. ModelError if the model has no chat template."""
        template_of(ctx.model)
        self.ctx = ctx
        self.start: list[Message] = [{"role": "system", "content": system}] if system else []
        self.messages = list(self.start)
        self.prefix = Prefix(ctx, seq_id)
        self._answering: Pieces | None = None

    def ask(self, text: str, **options: Any) -> Pieces:
        """The answer to a message, piece by piece: `say`, then `answer`."""
        return self.answer(self.say(text), **options)

    def say(self, text: str) -> list[int]:
        """Add a message; the tokens of the conversation that the memory does not have.

        It ends the answer before. Raises ContextError, with no message added, if the conversation
        does not fit the context.
        """
        self._stop()
        messages: list[Message] = [*self.messages, {"role": "user", "content": text}]
        ids = self.prompt(self.ctx.model, messages)
        self._check_length(ids)
        self.messages = messages
        return self.prefix.start(ids, marks(self.ctx, messages, ids))

    def answer(self, ids: Sequence[int], **options: Any) -> Pieces:
        """What follows the tokens of `say`, piece by piece; options are those of GenerateParams.

        What was answered when the caller stops is kept as the answer.
        """
        self._answering = self._answer(ids, options)
        return self._answering

    def _answer(self, ids: Sequence[int], options: dict[str, Any]) -> Pieces:
        answer: list[int] = []
        options |= {"seq_id": self.prefix.seq_id}
        try:
            for piece in stream(self.ctx, ids, **options):
                if piece.token is not None:
                    answer.append(piece.token)
                yield piece
        finally:
            self.prefix.add([*ids, *answer])
            said = self.ctx.model.tokenizer.detokenize(answer)
            self.messages.append({"role": "assistant", "content": said})

    def clear(self) -> None:
        """Forget all but the system's message, which is not computed again."""
        self._stop()
        self.messages = list(self.start)
        self.prefix.clear()

    def _stop(self) -> None:
        if self._answering is not None:
            self._answering.close()

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
            raise ContextError(
                f"the conversation has {len(ids)} tokens, but the context {n_ctx}; use a larger"
                " n_ctx, or clear it"
            )


def template_of(model: Loaded) -> ChatTemplate:
    """The model's chat template; ModelError if it has none."""
    if model.chat_template is None:
        raise ModelError("the model has no chat template, so it cannot chat; use generate")
    return model.chat_template


def marks(ctx: Context, messages: Sequence[Message], ids: Sequence[int]) -> list[int]:
    """Where other prompts may go on from the tokens of a conversation: before the text of its last
    message, which may be another, and where the answer will be written differently once it is an
    earlier message (thinking is left out), or before the last token."""
    if ctx.memory.goes_back or not messages:
        return []
    template, (*before, last) = template_of(ctx.model), messages
    said = str(last.get("content", ""))
    other = {**last, "content": f"{'>' if said.startswith('<') else '<'}{said}"}
    answered = [*messages, {"role": "assistant", "content": "x"}, last]
    try:
        text = template.render(messages)
        later = template.render([*before, other]), template.render(answered, False)
    except ModelError:  # it takes no such messages
        return []
    return [_token_at(ctx.model, ids, text[common(text, t) :]) for t in later]


def _token_at(model: Loaded, ids: Sequence[int], rest: str) -> int:
    """The token in which the rest of a text begins; the last one, if there is no rest."""
    left = len(rest.encode("utf-8", "surrogatepass"))
    for i in reversed(range(len(ids))):
        left -= len(model.tokenizer.token_to_piece(ids[i], special=True))
        if left <= 0:
            return i
    return 0
