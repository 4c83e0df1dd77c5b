"""Conversation: messages rendered by the model's chat template, with stored responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ggml_py._moved import Former
from ggml_py.errors import ContextError
from llama_py.batch.prompts import n_cells
from llama_py.chat.messages import IMAGE, content_parts, has_images
from llama_py.context import Context
from llama_py.decoding.prefix import Prefix
from llama_py.decoding.prefix_cache.tree import common
from llama_py.loading.model import LoadedModel
from llama_py.params import AnswerParams, GenerateParams
from llama_py.params.other_names import resolve_aliases
from llama_py.text.chat_prompt import (
    ChatOptions,
    ChatPrompt,
    Message,
    Tool,
    get_template,
    message_calls,
    replace_images,
    tokenize_prompt,
)
from llama_py.text.generate import Pieces, stream

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from llama_py.chat.answer import ToolCall
    from llama_py.params.answer_options import AnswerOptions
    from llama_py.vision.messages import Given

ROUNDS = 8  # maximum number of responses with tool calls in `run`
ROOM = 4  # evict older turns to keep this part of a context free for a response


class Conversation:
    """Turns of user and model in a sequence of a context.

    messages  all messages including responses; reasoning is in their `reasoning_content`
    prefix    cached tokens of the messages; `prefix.last_match` is the match of the last turn
    n_evicted_messages  oldest messages that the last turn evicted because they did not fit
    """

    def __init__(
        self,
        ctx: Context,
        system: str = "",
        seq_id: int = 0,
        *,
        thoughts: bool = True,
        budget: int = -1,
        budget_message: str = "",
        variables: Mapping[str, Any] | None = None,
        tools: Sequence[Tool] = (),
        parallel_tool_calls: bool | None = None,
    ) -> None:
        """Start a conversation; system: system prompt.

        thoughts   remove reasoning from the text of responses
        budget     maximum number of reasoning tokens (-1: no limit); budget_message is inserted
                   before the tag that then ends reasoning
        variables  for the template, such as {"enable_thinking": False}
        tools      functions, or descriptions in the OpenAI form, that responses may call;
                   parallel_tool_calls: several in a response (None: if the template does)
        """
        self.ctx = ctx
        self.messages: list[Message] = []
        self.start: list[Message] = []
        self.system = system
        self.prefix = Prefix(ctx, seq_id)
        self.variables = dict(variables or {})
        self.tools, self.parallel_tool_calls = tools, parallel_tool_calls
        self.budget, self.budget_message = budget, budget_message
        self.tags = get_template(ctx.model).thinking
        self.thoughts = thoughts and self.tags is not None
        self.n_evicted_messages = 0
        self._chat: ChatPrompt | None = None  # the last
        self._before: list[Message] = []  # last messages, without the system prompt
        self._answering: Pieces | None = None

    @property
    def n_ctx(self) -> int:
        """Number of tokens that the conversation may have."""
        return int(self.ctx.cparams.n_ctx_seq)

    @property
    def system(self) -> str:
        """System prompt; it can be set at any time."""
        return str(self.start[0]["content"]) if self.start else ""

    @system.setter
    def system(self, text: str) -> None:
        rest = self.messages[len(self.start) :]
        self.start = [{"role": "system", "content": text}] if text else []
        self.messages = [*self.start, *rest]

    def ask(
        self,
        text: str,
        images: Sequence[Given] = (),
        *,
        tool_choice: str | Message = "auto",
        **options: Unpack[AnswerOptions],
    ) -> Pieces:
        """Add a user message and yield the response: `add_user_message`, then `answer`."""
        ids = self.add_user_message(text, images)
        return self.answer(ids, tool_choice=tool_choice, **options)

    def add_user_message(self, text: str, images: Sequence[Given] = ()) -> list[int]:
        """Add a message; return the tokens of the conversation that are not cached.

        images  files, bytes of files or `llama_py.vision.Image`s before its text

        This ends the previous response. If the context is too small, the oldest turns are evicted,
        except the system prompt. Raises ContextError, without adding the message, if the message
        alone does not fit; ModelError for an unreadable image, or without a vision encoder.
        """
        if not images:
            return self._add_content(text)
        from llama_py.vision.messages import with_images

        return self._add_content(with_images(text, images))

    def _add_content(self, content: Any) -> list[int]:
        return self._add([{"role": "user", "content": content}])

    def _add(self, more: Sequence[Message]) -> list[int]:
        self._stop()
        messages: list[Message] = [*self.messages, *more]
        n_all, (messages, chat, ids) = len(messages), self._fit(messages)
        self._before = self.messages[len(self.start) :]
        self.n_evicted_messages, self.messages, self._chat = n_all - len(messages), messages, chat
        return self.prefix.start(ids, chat.marks(self.ctx, ids))

    @property
    def calls(self) -> list[ToolCall]:
        """Tool calls of the last response; pass their results to `add_tool_results`."""
        return message_calls(self.messages[-1]) if self.tools and self.messages else []

    def add_tool_results(self, results: Sequence[Message]) -> list[int]:
        """Add results of calls, messages of the role "tool" from `call_function`, and return the
        tokens like `add_user_message`."""
        return self._add(results)

    def room(self) -> int:
        """Return the number of tokens that more messages of the current turn may have, so that
        the turn and a response fit into the context."""
        users = [i for i, m in enumerate(self.messages) if m["role"] == "user"]
        start = max(users[-1] if users else 0, len(self.start))
        chat, n_ctx = self._build_prompt([*self.start, *self.messages[start:]]), self.n_ctx
        return max(n_ctx - n_ctx // ROOM - n_cells(chat.ids()), 0)

    def run(
        self,
        text: str,
        images: Sequence[Given] = (),
        *,
        tool_choice: str | Message = "auto",
        **options: Unpack[AnswerOptions],
    ) -> Pieces:
        """Do `ask`. While a response calls functions in `tools`, up to ROUNDS times, call them and
        yield the next response, which gets the results. tool_choice applies to the first response
        only. Raises also the errors of `call_function`."""
        from llama_py.chat.functions import call_function

        yield from self.ask(text, images, tool_choice=tool_choice, **options)
        for _ in range(ROUNDS):
            functions = [tool for tool in self.tools if not isinstance(tool, Mapping)]
            known = {function.__name__ for function in functions}
            if not self.calls or not all(call.name in known for call in self.calls):
                return
            ids = self.add_tool_results([call_function(call, functions) for call in self.calls])
            yield from self.answer(ids, **options)

    def regenerate(self, text: str | None = None) -> list[int]:
        """Replace the last user message by `text` (None: keep it), discard its response, and return
        the prompt. ContextError, without a change, if it is missing; also the errors of
        `add_user_message`."""
        self._stop()
        before = self.messages
        asked = [i for i, m in enumerate(before) if m["role"] == "user"]
        if not asked:
            raise ContextError(
                "the conversation has no message to respond to again; send one first"
            )
        self.messages = before[: asked[-1]]
        try:
            ids = self._add_content(_replace_text(before[asked[-1]], text))
            self._before = before[len(self.start) :]
            return ids
        except BaseException:
            self.messages = before
            raise

    def resume(self, messages: Sequence[Message]) -> None:
        """Replace the conversation by these messages, with an optional system message first.

        The next `add_user_message` computes them. Raises ModelError, without a change, if the
        template rejects them.
        """
        self._stop()
        self.text(self.ctx.model, [*messages, {"role": "user", "content": "x"}], **self.variables)
        self.start = [m for m in messages[:1] if m["role"] == "system"]
        self.messages = list(messages)

    def _fit(self, messages: list[Message]) -> tuple[list[Message], ChatPrompt, list[int]]:
        """Return the end of a conversation that fits with a response, and its prompt."""
        n_ctx = self.n_ctx
        while True:
            chat = self._build_prompt(messages)
            ids = chat.ids()
            fewer = _without_oldest(messages)
            if fewer is None or n_cells(ids) <= n_ctx - n_ctx // ROOM:
                self._check_length(ids)
                return messages, chat, ids
            messages = fewer

    def _build_prompt(self, messages: Sequence[Message], choice: Any = "auto") -> ChatPrompt:
        how = ChatOptions(
            tool_choice=choice,
            parallel_tool_calls=self.parallel_tool_calls,
            reasoning_format="auto" if self.thoughts else "none",
            budget=self.budget,
            budget_message=self.budget_message,
            variables=self.variables,
        )
        return ChatPrompt(self.ctx.model, messages, self.tools or None, how)

    def answer(
        self,
        ids: Sequence[int],
        *,
        tool_choice: str | Message = "auto",
        **options: Unpack[AnswerOptions],
    ) -> Pieces:
        """Yield the response to the tokens of `add_user_message`; options are the fields of
        AnswerParams (with `temp` 0); tool_choice, with tools: auto, none, required, or a function
        in OpenAI's form.
        `Piece.tool_calls` has tool calls; `Piece.error` is a violation of `json_schema`.

        If the caller stops, or after an error, the generated part becomes the response. If it
        is empty, the message is removed from the conversation.
        """
        self._answering = self._answer(ids, tool_choice, options)
        return self._answering

    def _answer(
        self, ids: Sequence[int], choice: str | Message, options: Mapping[str, Any]
    ) -> Pieces:
        answer: list[int] = []
        failed, chat = False, self._chat
        reader = None if chat is None else chat.reader()
        try:
            if chat is None or choice != "auto":
                chat = self._build_prompt(self.messages, choice)
            p, reader = chat.answer(self._params(options)), chat.reader()
            pieces = stream(self.ctx, ids, **vars(p.part(GenerateParams)))
            for piece in chat.read(pieces, p, reader):
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
            elif reader is not None:
                reader.rest()
                self.messages.append(reader.answer.message())

    def _params(self, options: Mapping[str, Any]) -> AnswerParams:
        how = {"temp": 0.0} | resolve_aliases(options) | {"seq_id": self.prefix.seq_id}
        if how.get("context_shift"):
            how["n_keep"] = self._n_keep(how.get("n_keep", 0))
        return AnswerParams(**how)

    def _n_keep(self, n_keep: int) -> int:
        """Return n_keep, raised to keep the system prompt in a full context."""
        if n_keep < 0 or not self.start:
            return n_keep
        other = [*self.start, {"role": "user", "content": "x"}]
        texts = [self._build_prompt(m).text for m in (self.messages, other)]
        start = texts[0][: common(*texts)]
        return max(n_keep, len(tokenize_prompt(self.ctx.model, start)))

    def clear(self) -> None:
        """Forget all but the system's message, which is not computed again."""
        self._stop()
        self.messages = list(self.start)
        self.prefix.clear()

    def _stop(self) -> None:
        if self._answering is not None:
            self._answering.close()

    @staticmethod
    def text(model: LoadedModel, messages: str | Sequence[Message], **variables: Any) -> str:
        """Render the prompt of a conversation or question; `variables` are for the template."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return get_template(model).render(replace_images(messages), **variables)

    @staticmethod
    def prompt(
        model: LoadedModel, messages: str | Sequence[Message], **variables: Any
    ) -> list[int]:
        """Tokenize the prompt that `text` renders."""
        said = () if isinstance(messages, str) else messages
        return tokenize_prompt(model, Conversation.text(model, messages, **variables), said)

    def _check_length(self, ids: Sequence[int]) -> None:
        n_ctx = self.n_ctx
        if n_cells(ids) > n_ctx:
            raise ContextError(
                f"the conversation has {n_cells(ids)} tokens, but the context holds {n_ctx}; use "
                "a larger n_ctx, or clear the conversation"
            )

    say = Former("add_user_message")
    tell = Former("add_tool_results")
    again = Former("regenerate")
    n_left = Former("n_evicted_messages")


def _replace_text(message: Message, text: str | None) -> Any:
    """Return a message's content, with its text replaced by `text` if given; keep images."""
    if text is None or not has_images([message]):
        return message["content"] if text is None else text
    images = [part for part in content_parts(message) if part.get("type") == IMAGE]
    return [*images, {"type": "text", "text": text}]


def _without_oldest(messages: list[Message]) -> list[Message] | None:
    """Return a conversation without its first turn; None if it has only one."""
    roles = [m["role"] for m in messages]
    first = 1 if roles[0] == "system" else 0
    later = [i for i in range(first + 1, len(roles)) if roles[i] == "user"]
    return [*messages[:first], *messages[later[0] :]] if later else None
