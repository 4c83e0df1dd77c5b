"""Chat completions through the model's chat template, in the form of the OpenAI API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ggml_py.errors import ModelError
from llama_py.batch.prompts import n_cells
from llama_py.chat.named import DEFAULT, template_source
from llama_py.chat.stream import AnswerDelta
from llama_py.compat.llama_cpp._arguments import ChatCompletionOptions
from llama_py.compat.llama_cpp._completions import LlamaCompletions
from llama_py.compat.llama_cpp._shapes import (
    ROLE,
    Body,
    Logprobs,
    ResponseFields,
    chat_logprobs,
    count_usage,
    finish_reason,
    read_tools,
)
from llama_py.compat.llama_cpp.llama_chat_format import find_handler
from llama_py.grammar.response_format import sampling_options
from llama_py.support.signature import describe
from llama_py.text.chat_prompt import ChatOptions, ChatPrompt, ChatReader
from llama_py.text.generate import Piece

if TYPE_CHECKING:
    from llama_py.compat.llama_cpp._options import LlamaOptions

FROM_FILE = "chat_template."  # prefix of the names of the file's templates
_NAMED = {  # llama-cpp-python's names of llama.cpp's templates
    "llama-2": "llama2",
    "llama-3": "llama3",
    "mistral-instruct": "mistral-v1",
    "chatml-function-calling": "chatml",
}


class LlamaChats(LlamaCompletions):
    """Chat completions with tools, response formats and images."""

    def __init__(self, model_path: str, options: LlamaOptions) -> None:
        """Load a model, and choose its chat template."""
        super().__init__(model_path, options)
        self.chat_handler = options.chat_handler
        default = f"{FROM_FILE}default" if "tokenizer.chat_template" in self.metadata else DEFAULT
        self.chat_format = options.chat_format or (None if self.chat_handler else default)
        self._format_in_use: str | None = None
        if self.chat_format and self._model is not None and find_handler(self.chat_format) is None:
            self._use_template(self.chat_format)

    def _use_template(self, name: str) -> None:
        """Set the model's chat template by its name. ModelError for an unknown name."""
        model = self.llama_py_model
        if name == self._format_in_use:
            return
        if name == f"{FROM_FILE}default":
            vars(model).pop("chat_template", None)  # the property reads the file again
        elif name.startswith(FROM_FILE):
            found = model.named_template(name.removeprefix(FROM_FILE))
            if found is None:
                raise ModelError(
                    f"the model's file has no chat template {name!r}; "
                    "omit chat_format to use its default"
                )
            model.chat_template = found
        else:
            model.set_chat_template(template_source(_NAMED.get(name, name)))
        self._format_in_use = name

    def load_vision(self, path: str) -> None:
        """Load an image encoder (mmproj file); messages may then have images."""
        self.llama_py_model.load_vision(path)

    def create_chat_completion(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Any:
        """Return the response to messages as a dictionary, or with `stream` an iterator of chunks.

        options are the fields of ChatCompletionOptions. `chat_handler`, or the handler registered
        for `chat_format`, replaces `template_chat`.
        """
        o = ChatCompletionOptions(**options)
        handler = self.chat_handler or (self.chat_format and find_handler(self.chat_format))
        if handler:
            return handler(llama=self, messages=messages, **vars(o))
        return self.template_chat(messages, **options)

    def create_chat_completion_openai_v1(self, *args: Any, **options: Any) -> Any:
        """Return `create_chat_completion` as an object of the `openai` package, which must be
        installed: ChatCompletion, or an iterator of ChatCompletionChunk."""
        from openai.types.chat import ChatCompletion, ChatCompletionChunk

        found = self.create_chat_completion(*args, **options)
        if options.get("stream"):
            return (ChatCompletionChunk(**chunk) for chunk in found)
        return ChatCompletion(**found)

    def template_chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Any:
        """Do `create_chat_completion` with the model's chat template."""
        o = ChatCompletionOptions(**options)
        self._use_template(self.chat_format or f"{FROM_FILE}default")
        tools, choice = read_tools(o.tools, o.tool_choice, o.functions, o.function_call)
        form = sampling_options(o.response_format)
        o = replace(o, grammar=None) if form else o
        schema = form.pop("json_schema", None) if tools else None
        how = ChatOptions(
            tool_choice="auto" if choice is None else choice,
            json_schema=None if schema is None else json.loads(schema),
            reasoning_format="none",
        )
        chat = ChatPrompt(self.llama_py_model, messages, tools, how)
        ids = chat.ids()
        self.check_length(n_cells(ids))
        n_top = (o.top_logprobs or 0) if o.logprobs else None
        p = self.response_params(
            o, o.temperature, o.max_tokens, n_cells(ids), logprobs=n_top, **form
        )
        p = chat.answer(p)
        self._restore(ids)
        reader, marks = chat.reader(), chat.marks(self.prefix.ctx, ids)
        pieces = chat.read(self.run(ids, p, marks=marks), p, reader)
        response, rows = ResponseFields(o.model or self.model_path), self._logprobs(n_top, 0)
        if o.stream:
            return self._chat_chunks(response, pieces, rows, reader)
        return self._chat_collect(response, pieces, rows, reader, n_cells(ids), bool(o.functions))

    def _chat_collect(
        self,
        response: ResponseFields,
        pieces: Iterator[Piece],
        rows: Logprobs | None,
        reader: ChatReader,
        n_prompt: int,
        legacy: bool,
    ) -> Body:
        n, reason = 0, None
        for piece in pieces:
            self.add_logprobs(rows, piece)
            n, reason = n + self.is_text(piece), finish_reason(piece) or reason
        self._store()
        message = reader.answer.message()
        if calls := message.get("tool_calls"):
            reason = "tool_calls"
            if legacy:
                message["function_call"] = calls[0]["function"]
        logprobs = chat_logprobs(None if rows is None else rows.take())
        return response.chat(message, reason, logprobs, count_usage(n_prompt, n))

    def _chat_chunks(
        self,
        response: ResponseFields,
        pieces: Iterator[Piece],
        rows: Logprobs | None,
        reader: ChatReader,
    ) -> Iterator[Body]:
        yield response.chat_chunk(ROLE)
        reason: str | None = "length"
        for piece in pieces:
            self.add_logprobs(rows, piece)
            reason = finish_reason(piece) or reason
            if piece.text:
                logprobs = chat_logprobs(None if rows is None else rows.take())
                yield response.chat_chunk({"content": piece.text}, None, logprobs)
            for delta in piece.tool_calls:
                yield response.chat_chunk({"tool_calls": [_call_chunk(delta)]})
        yield response.chat_chunk({}, "tool_calls" if reader.answer.tool_calls else reason)
        self._store()


def _call_chunk(delta: AnswerDelta) -> Body:
    """Return a piece of a tool call in the form of a chunk."""
    function = {"name": delta.name or None, "arguments": delta.arguments}
    found: Body = {"index": delta.index, "type": "function", "function": function}
    return {**found, "id": delta.id} if delta.id else found


describe(LlamaChats.create_chat_completion, ChatCompletionOptions)
describe(LlamaChats.template_chat, ChatCompletionOptions)
