"""Prompts from messages, and parsers of their responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ggml_py.errors import GrammarError, ModelError
from llama_py.chat import ChatTemplate
from llama_py.chat.budget import ThoughtBudget
from llama_py.chat.ends import turn_end
from llama_py.chat.families import warn_of_languages
from llama_py.chat.messages import has_images
from llama_py.chat.plain import PlainFormat, PlainReader
from llama_py.chat.thinking import control_tokens
from llama_py.context import Context
from llama_py.decoding.prefix_cache.tree import common
from llama_py.loading.model import LoadedModel
from llama_py.params import AnswerParams, SamplingParams
from llama_py.text.generate import Pieces, unenforced_schema

if TYPE_CHECKING:
    from llama_py.chat.answer import ChatAnswer, ToolCall
    from llama_py.chat.arguments import Arguments
    from llama_py.chat.stream import AnswerDelta
    from llama_py.chat.tools import ChatFormat
    from llama_py.sampler import Constraint

Message = Mapping[str, Any]  # {"role": "user", "content": "..."}
Tool: TypeAlias = Mapping[str, Any] | Callable[..., Any]


class ChatReader(Protocol):
    """Parser of one response, which receives its text in pieces."""

    def feed(self, text: str) -> list[AnswerDelta]: ...

    def rest(self) -> list[AnswerDelta]: ...

    @property
    def answer(self) -> ChatAnswer: ...


@dataclass(frozen=True, kw_only=True)
class ChatOptions:
    """Options for rendering messages as a prompt, and for parsing its responses.

    Attributes:
        tool_choice: "auto", "none", "required", or a function's name in OpenAI's form.
        parallel_tool_calls: A response may have several calls; None: if the template allows it.
        json_schema: JSON schema of the response; None: any text.
        reasoning_format: "none": reasoning is part of the content.
        add_generation_prompt: End the prompt with the start of a response.
            continue_final_message: Continue the last message: True, or the field to continue.
        budget: Maximum number of reasoning tokens (-1: no limit).
        budget_message: Text before the tag that ends reasoning over the budget.
        variables: Variables for the template, such as {"enable_thinking": False}.
        plain: Parse the whole response as content.
    """

    tool_choice: str | Mapping[str, Any] = "auto"
    parallel_tool_calls: bool | None = None
    json_schema: Mapping[str, Any] | bool | None = None
    reasoning_format: str = "auto"
    add_generation_prompt: bool = True
    continue_final_message: bool | str = False
    budget: int = -1
    budget_message: str = ""
    variables: Mapping[str, Any] = field(default_factory=dict)
    plain: bool = False


class ChatPrompt:
    """Prompt of a conversation, with methods to generate and parse its responses.

    Attributes:
        messages: The messages.
        tools: Functions that responses may call, in OpenAI's form; None: `PlainFormat`.
        options: Options of the prompt.
        format: Format of the responses.
        text: The prompt.
    """

    def __init__(
        self,
        model: LoadedModel,
        messages: Sequence[Message],
        tools: Sequence[Tool] | None = None,
        options: ChatOptions | None = None,
    ) -> None:
        """Render the prompt of a conversation.

        Args:
                model: The model that responds.
                messages: A conversation in the form of the OpenAI API.
                tools: Functions that responses may call; None: responses are text and reasoning,
                    and the options for calls, schemas and continued messages are ignored.
                options: Options of the prompt.

            Raises:
                ModelError: The template rejects the messages.
        """
        self.model, self.messages, self.options = model, messages, options or ChatOptions()
        self.tools = self._describe_tools(tools)
        self._tokenizer, template = model.tokenizer, get_template(model)
        self._tags = template.tags(self.options.variables)
        self._end = turn_end(template, model.tokenizer)
        warn_of_languages(template.source, messages, self.options.variables)
        self.format = self._format(template)
        self.text = self.format.prompt

    def _describe_tools(self, tools: Sequence[Tool] | None) -> list[Mapping[str, Any]] | None:
        if not tools:
            return None if tools is None else []
        from llama_py.chat.functions import convert_tools  # slow to import

        return convert_tools(tools)

    def _format(self, template: ChatTemplate) -> PlainFormat | ChatFormat:
        o, messages = self.options, replace_images(self.messages)
        if self.tools is None and not (self._tags and self._tags.spaced):
            return PlainFormat(
                template.render(messages, **o.variables),
                self._tags,
                bool(o.variables.get("enable_thinking", True)),
                o.reasoning_format != "none",
            )
        from llama_py.chat.tools import build_format

        return build_format(
            template,
            messages,
            tools=self.tools or None,
            tool_choice=o.tool_choice,
            parallel_tool_calls=o.parallel_tool_calls,
            json_schema=o.json_schema,
            reasoning_format=o.reasoning_format,
            add_generation_prompt=o.add_generation_prompt,
            continue_final_message=o.continue_final_message,
            **o.variables,
        )

    def ids(self, media_path: str | Path | None = None, n_most: int | None = None) -> list[int]:
        """Return the tokens of the prompt; see `tokenize_prompt`."""
        return tokenize_prompt(self.model, self.text, self.messages, media_path, n_most)

    def params(self, p: AnswerParams) -> AnswerParams:
        """Return the options of one response, completed by the template and the format."""
        f, tags = self.format, self._tags
        end = (self._end,) if self._end else ()
        shown = () if tags is None else control_tokens(tags, self._tokenizer)
        return replace(
            p,
            turn_ends=_unique(p.turn_ends, f.stops, end),
            preserved_tokens=_unique(
                p.preserved_tokens, f.list_shown_tokens(self._tokenizer), shown
            ),
            thinking=f.thinking if p.constraints or p.sampler is not None else p.thinking,
            logits_processors=(*p.logits_processors, *self._budget()),
        )

    def _budget(self) -> tuple[ThoughtBudget, ...]:
        o = self.options
        if o.budget < 0 or self._tags is None:
            return ()
        scan, message = self.format.call_scan(), o.budget_message
        return (ThoughtBudget(self._tokenizer, self._tags, o.budget, self.text, message, scan),)

    def constraint(self, max_tokens: int) -> Constraint | None:
        """Return the constraint of a response of at most `max_tokens` tokens (-1: no limit).

        Raises:
            GrammarError: The schema is unsupported.
        """
        return self.format.constraint(self._tokenizer, None if max_tokens < 0 else max_tokens)

    def answer(self, p: AnswerParams) -> AnswerParams:
        """Return `params` of one response, with the sampler that chooses its tokens.

        Raises:
            GrammarError: The format and the options both have a grammar.
            ModelError: The format has a grammar, and the caller passed a sampler.
        """
        from llama_py.sampler import Sampler

        constraint = self.constraint(p.max_tokens)
        if constraint is not None and p.constraints:
            given = " and ".join(p.constraints)
            raise GrammarError(f"tools cannot be combined with {given}; pass only one")
        if constraint is not None and p.sampler is not None:
            raise ModelError(
                "tool calls need a grammar, which the given sampler does not have; pass temp, "
                "top_p, ... instead of a sampler"
            )
        p, n_vocab = self.params(p), self.model.hparams.n_vocab
        sampling = p.part(SamplingParams)
        sampler = p.sampler or Sampler(sampling, n_vocab, self._tokenizer, constraint)
        return replace(p, sampler=sampler)

    def reader(self) -> ChatReader:
        """Return a reader of one response."""
        return PlainReader() if self.options.plain else self.format.parser()

    def read(self, pieces: Pieces, p: AnswerParams, reader: ChatReader) -> Pieces:
        """Yield the pieces of a response with its reasoning and calls separated from its text.

        The last piece has the error of content that does not meet its schema.
        """
        response = self.format.response or unenforced_schema(p.sampler)
        with closing(pieces):
            for piece in pieces:
                deltas, error = reader.feed(piece.text), ""
                if piece.finish_reason is not None:
                    deltas += reader.rest()
                    error = _problem(response, reader.answer)
                yield replace(
                    piece,
                    text="".join(delta.content for delta in deltas),
                    reasoning="".join(delta.reasoning for delta in deltas),
                    tool_calls=tuple(delta for delta in deltas if delta.index is not None),
                    error=error,
                )

    def marks(self, ctx: Context, ids: Sequence[int]) -> list[int]:
        """Return the positions where other prompts may diverge.

        * before the text of the last message (after its images), which the user may edit
        * before a response that a later prompt renders differently, without reasoning
        * before the last token, if a later prompt only continues this prompt
        """
        if ctx.memory.supports_rollback or not self.messages:
            return []
        messages = replace_images(self.messages)
        template, (*before, last) = get_template(self.model), messages
        said = str(last.get("content", ""))
        images, said = _split_images(said) if has_images(self.messages[-1:]) else ("", said)
        other = {**last, "content": f"{images}{'>' if said.startswith('<') else '<'}{said}"}
        answered = [*messages, {"role": "assistant", "content": "x"}, last]
        more = {**self.options.variables, "tools": self.tools or None}
        try:
            text = template.render(messages, **more)
            later = (
                template.render([*before, other], **more),
                template.render(answered, add_generation_prompt=False, **more),
            )
        except ModelError:  # the template rejects the messages
            return []
        return [_find_token(self.model, ids, text[common(text, t) :]) for t in later]


def _problem(response: Arguments | None, answer: ChatAnswer) -> str:
    """Return a response's violation of its schema, if no grammar enforces it fully, or ""."""
    is_call = answer.tool_calls and not answer.content
    if response is None or not response.left_out or is_call:
        return ""
    return response.problem(answer.content)


def _unique(*parts: Sequence[Any]) -> tuple[Any, ...]:
    """Return the items of several sequences without duplicates."""
    return tuple(dict.fromkeys(item for part in parts for item in part))


def message_calls(message: Mapping[str, Any]) -> list[ToolCall]:
    """Return the tool calls of a message."""
    from llama_py.chat.answer import ToolCall

    found = message.get("tool_calls") or ()
    return [
        ToolCall(call["function"]["name"], call["function"]["arguments"], call.get("id", ""))
        for call in found
    ]


def replace_images(messages: Sequence[Message]) -> Sequence[Message]:
    """Replace images in messages by markers, for a template."""
    if not has_images(messages):
        return messages
    from llama_py.vision.messages import mark_images

    return mark_images(messages)


def get_template(model: LoadedModel) -> ChatTemplate:
    """Return the model's chat template, or a plain one with a warning."""
    return model.chat_template or model.default_template


def tokenize_prompt(
    model: LoadedModel,
    prompt: str,
    messages: Sequence[Message] = (),
    media_path: str | Path | None = None,
    n_most: int | None = None,
) -> list[int]:
    """Tokenize a rendered prompt, with one BOS.

    If its messages have images, the result is a `llama_py.vision.prompt.ImagePrompt`.

    media_path  folder with files that messages may name as images (file:NAME)
    n_most      maximum number of cells for images; None: no limit
    """
    bos = get_template(model).bos
    has_bos = bool(bos) and prompt.startswith(bos)
    if has_images(messages):
        from llama_py.vision.messages import PLACE, collect_images
        from llama_py.vision.prompt import image_prompt

        return image_prompt(
            model.tokenizer,
            model.hparams,
            model.vision_encoder,
            prompt,
            collect_images(messages, media_path),
            marker=PLACE,
            add_special=not has_bos,
            n_most=n_most,
        )
    return model.tokenizer.tokenize(prompt, add_special=not has_bos)


def _split_images(text: str) -> tuple[str, str]:
    """Split a text after its last image."""
    from llama_py.vision.messages import PLACE

    head, place, rest = text.rpartition(PLACE)
    return head + place, rest


def _find_token(model: LoadedModel, ids: Sequence[int], rest: str) -> int:
    """Return the index of the token that has the start of `rest`, the end of a text.

    Return the last index if `rest` is empty. Search only the tokens after the last image.
    """
    left = len(rest.encode("utf-8", "surrogatepass"))
    for i in reversed(range(len(ids))):
        if ids[i] < 0:
            return i + 1
        left -= len(model.tokenizer.token_to_piece(ids[i], special=True))
        if left <= 0:
            return i
    return 0
