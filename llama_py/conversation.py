"""A conversation: messages through the model's chat template, answers kept."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ggml_py.errors import ContextError, ModelError
from llama_py.chat import ChatTemplate
from llama_py.chat.budget import Budget
from llama_py.chat.ends import turn_end
from llama_py.chat.messages import IMAGE, has_images, parts_of
from llama_py.chat.thinking import (
    Tags,
    Thoughts,
    begins_inside,
    control_tokens,
    parted,
    thinking_of,
)
from llama_py.context import Context
from llama_py.generate import Piece, stream
from llama_py.loaded import Loaded
from llama_py.prefix import Prefix
from llama_py.prompts import n_cells
from llama_py.reuse.tree import common
from llama_py.text_stream import TextStream

if TYPE_CHECKING:
    from llama_py.chat.stream import Parser
    from llama_py.vision.messages import Given

Message = Mapping[str, Any]  # {"role": "user", "content": "..."}
Pieces = Generator[Piece, None, None]
ROOM = 4  # this part of a context is left for an answer, if older turns can leave for it


class Conversation:
    """Turns of user and model in a sequence of a context.

    messages  all so far, the model's answers too; thoughts are in their `reasoning_content`
    prefix    what the memory has of them, which is not computed again; `prefix.told` says of the
              last turn how much that was, and why
    n_left    how many of the oldest messages left with the last turn: there was no room for them
    """

    def __init__(
        self, ctx: Context, system: str = "", seq_id: int = 0, *, thoughts: bool = True,
        budget: int = -1, budget_message: str = "", variables: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """system: what the model is to be.

        thoughts   take them out of the text of answers
        budget     how many tokens they may have (-1: any number); before the tag that then ends
                   them comes budget_message
        variables  for the template, such as {"enable_thinking": False}
        """
        self.ctx = ctx
        self.messages: list[Message] = []
        self.start: list[Message] = []
        self.system = system
        self.prefix = Prefix(ctx, seq_id)
        self.variables = dict(variables or {})
        self.budget, self.budget_message = budget, budget_message
        self.tags = template_of(ctx.model).thinking
        self._end = turn_end(template_of(ctx.model), ctx.model.tokenizer)
        self.thoughts = thoughts and self.tags is not None
        self.n_left = 0
        self._prompt = ""  # the last
        self._stops: Sequence[str] = ()  # of the last answer
        self._before: list[Message] = []  # the last message, but the system's
        self._answering: Pieces | None = None

    @property
    def system(self) -> str:
        """What the model is to be, which the template tells it; it may be set at any time."""
        return str(self.start[0]["content"]) if self.start else ""

    @system.setter
    def system(self, text: str) -> None:
        rest = self.messages[len(self.start) :]
        self.start = [{"role": "system", "content": text}] if text else []
        self.messages = [*self.start, *rest]

    def ask(self, text: str, images: Sequence[Given] = (), **options: Any) -> Pieces:
        """The answer to a message, piece by piece: `say`, then `answer`."""
        return self.answer(self.say(text, images), **options)

    def say(self, text: str, images: Sequence[Given] = ()) -> list[int]:
        """Add a message; the tokens of the conversation that the memory does not have.

        images  files, bytes of files or `llama_py.vision.Image`s that come before its text

        It ends the answer before. The oldest turns, but not what the system says, leave a context
        that has no room for all. Raises ContextError, with no message added, if it has none for
        this message alone; ModelError for an image that cannot be read, or that the model cannot
        see.
        """
        if not images:
            return self._say(text)
        from llama_py.vision.messages import with_images

        return self._say(with_images(text, images))

    def _say(self, content: Any) -> list[int]:
        self._stop()
        messages: list[Message] = [*self.messages, {"role": "user", "content": content}]
        n_all, (messages, prompt, ids) = len(messages), self._fitted(messages)
        self._before = self.messages[len(self.start) :]
        self.n_left, self.messages, self._prompt = n_all - len(messages), messages, prompt
        return self.prefix.start(ids, marks(self.ctx, messages, ids, self.variables))

    def again(self, text: str | None = None) -> list[int]:
        """`say` what was said last once more, or `text` instead of it: the answer to it leaves the
        conversation. ContextError, with nothing changed, if nothing was said, or as of `say`."""
        self._stop()
        before = self.messages
        asked = [i for i, m in enumerate(before) if m["role"] == "user"]
        if not asked:
            raise ContextError("nothing was said yet that could be answered again")
        self.messages = before[: asked[-1]]
        try:
            ids = self._say(_said_again(before[asked[-1]], text))
            self._before = before[len(self.start) :]
            return ids
        except BaseException:
            self.messages = before
            raise

    def resume(self, messages: Sequence[Message]) -> None:
        """Go on with these messages instead, the first of which may be the system's.

        Nothing is computed before the next `say`. Raises ModelError, with nothing changed, if the
        template does not take them.
        """
        self._stop()
        self.text(self.ctx.model, [*messages, {"role": "user", "content": "x"}], **self.variables)
        self.start = [m for m in messages[:1] if m["role"] == "system"]
        self.messages = list(messages)

    def _fitted(self, messages: list[Message]) -> tuple[list[Message], str, list[int]]:
        """As much of the end of a conversation as leaves room for an answer, and its prompt."""
        n_ctx = self.ctx.cparams.n_ctx_seq
        while True:
            prompt = self.text(self.ctx.model, messages, **self.variables)
            ids = tokens_of(self.ctx.model, prompt, messages)
            fewer = _without_oldest(messages)
            if fewer is None or n_cells(ids) <= n_ctx - n_ctx // ROOM:
                self._check_length(ids)
                return messages, prompt, ids
            messages = fewer

    def answer(self, ids: Sequence[int], **options: Any) -> Pieces:
        """What follows the tokens of `say`, piece by piece; options are those of GenerateParams.

        What was answered when the caller stops, or an error comes, is kept as the answer; where an
        error comes before any, the message leaves the conversation.
        """
        self._answering = self._answer(ids, options)
        return self._answering

    def _answer(self, ids: Sequence[int], options: dict[str, Any]) -> Pieces:
        answer: list[int] = []
        failed = False
        try:
            for piece in self._pieces(ids, options):
                if piece.token is not None:
                    answer.append(piece.token)
                yield piece
        except Exception:
            failed = True
            raise
        finally:
            self.prefix.add([*ids, *answer])
            if failed and not answer:
                self.messages = [*self.start, *self._before]
            else:
                self.messages.append(self._said(answer))

    def _pieces(self, ids: Sequence[int], options: dict[str, Any]) -> Iterator[Piece]:
        model, tags = self.ctx.model, self.tags
        self._stops = stops_of(self._end, options.get("stop", ()))
        options |= {"seq_id": self.prefix.seq_id, "stop": self._stops}
        if options.get("context_shift"):
            options["n_keep"] = self._n_keep(options.get("n_keep", 0))
        if tags is None:
            return stream(self.ctx, ids, **options)
        options["preserved_tokens"] = control_tokens(tags, model.tokenizer)
        options["thinking"] = thinking_of(tags, self._prompt)
        if self.budget >= 0:
            end = Budget(model.tokenizer, tags, self.budget, self._prompt, self.budget_message)
            options["logits_processors"] = [*options.get("logits_processors", ()), end]
        pieces = stream(self.ctx, ids, **options)
        if self.thoughts:
            return parted_pieces(pieces, tags, self._prompt)
        return opened(pieces, tags.start) if begins_inside(tags, self._prompt) else pieces

    def _n_keep(self, n_keep: int) -> int:
        """What the system says stays, whatever else leaves a full context."""
        if n_keep < 0 or not self.start:
            return n_keep
        other = [*self.start, {"role": "user", "content": "x"}]
        texts = [self.text(self.ctx.model, m, **self.variables) for m in (self.messages, other)]
        start = texts[0][: common(*texts)]
        return max(n_keep, len(tokens_of(self.ctx.model, start)))

    def _said(self, answer: Sequence[int]) -> Message:
        """The message that an answer is: its text up to where it was stopped."""
        tokenizer, tags = self.ctx.model.tokenizer, self.tags
        shown = () if tags is None else control_tokens(tags, tokenizer)
        stream = TextStream(tokenizer, self._stops, preserved=shown)
        text = "".join([*map(stream.push, answer), stream.flush()])
        if tags is None:
            return {"role": "assistant", "content": text}
        if not self.thoughts:
            start = tags.start if begins_inside(tags, self._prompt) else ""
            return {"role": "assistant", "content": start + text}
        thought, said = parted(text, tags, self._prompt)
        found = {"role": "assistant", "content": said}
        return found | ({"reasoning_content": thought} if thought else {})

    def clear(self) -> None:
        """Forget all but the system's message, which is not computed again."""
        self._stop()
        self.messages = list(self.start)
        self.prefix.clear()

    def _stop(self) -> None:
        if self._answering is not None:
            self._answering.close()

    @staticmethod
    def text(model: Loaded, messages: str | Sequence[Message], **variables: Any) -> str:
        """The prompt of a conversation, or of one question; `variables` are for the template."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return template_of(model).render(without_images(messages), **variables)

    @staticmethod
    def prompt(model: Loaded, messages: str | Sequence[Message], **variables: Any) -> list[int]:
        """The tokens of `text`."""
        said = () if isinstance(messages, str) else messages
        return tokens_of(model, Conversation.text(model, messages, **variables), said)

    def _check_length(self, ids: Sequence[int]) -> None:
        n_ctx = self.ctx.cparams.n_ctx_seq
        if n_cells(ids) > n_ctx:
            raise ContextError(
                f"the conversation has {n_cells(ids)} tokens, but the context {n_ctx}; use a larger"
                " n_ctx, or clear it"
            )


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
    """What ends an answer besides the model's own tokens: `stop`, and where the template goes on.
    """
    return stop if not end or isinstance(stop, str) else (*stop, end)


def tokens_of(
    model: Loaded, prompt: str, messages: Sequence[Message] = (),
    media_path: str | Path | None = None, n_most: int | None = None,
) -> list[int]:  # fmt: skip
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
            model.tokenizer, model.hparams, model.eyes, prompt, images_of(messages, media_path),
            marker=PLACE, add_special=not has_bos, n_most=n_most,
        )  # fmt: skip
    return model.tokenizer.tokenize(prompt, add_special=not has_bos)


def parted_pieces(pieces: Iterator[Piece], tags: Tags, prompt: str) -> Iterator[Piece]:
    """The pieces of an answer to a prompt, with thoughts in their `thought`."""
    parts = Thoughts(tags, prompt)
    for piece in pieces:
        thought, said = parts.push(piece.text, final=piece.finish_reason is not None)
        yield replace(piece, text=said, thought=thought)


def read_pieces(pieces: Iterator[Piece], parser: Parser) -> Iterator[Piece]:
    """The pieces of an answer that may call tools: what is said, thoughts, and calls."""
    for piece in pieces:
        deltas = parser.feed(piece.text)
        if piece.finish_reason is not None:
            deltas += parser.rest()
        yield replace(
            piece, text="".join(delta.content for delta in deltas),
            thought="".join(delta.reasoning for delta in deltas),
            calls=tuple(delta for delta in deltas if delta.index is not None),
        )  # fmt: skip


def opened(pieces: Iterator[Piece], start: str) -> Iterator[Piece]:
    """The pieces of an answer, with the tag before the first that the prompt ended with."""
    for piece in pieces:
        yield replace(piece, text=start + piece.text)
        start = ""


def _said_again(message: Message, text: str | None) -> Any:
    """The content of a message, or another text in place of its own; its images stay."""
    if text is None or not has_images([message]):
        return message["content"] if text is None else text
    images = [part for part in parts_of(message) if part.get("type") == IMAGE]
    return [*images, {"type": "text", "text": text}]


def _without_oldest(messages: list[Message]) -> list[Message] | None:
    """A conversation without its first turn; None if there is but one."""
    roles = [m["role"] for m in messages]
    first = 1 if roles[0] == "system" else 0
    later = [i for i in range(first + 1, len(roles)) if roles[i] == "user"]
    return [*messages[:first], *messages[later[0] :]] if later else None


def marks(
    ctx: Context, messages: Sequence[Message], ids: Sequence[int],
    variables: Mapping[str, Any] | None = None,
) -> list[int]:  # fmt: skip
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
