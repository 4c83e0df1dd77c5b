"""Tools in conversations: what an answer that may call them is asked with, and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ggml_py.errors import AnswerError, GrammarError, ModelError
from llama_py.params import AnswerParams, GenerateParams, SamplingParams
from llama_py.sampler import Constraint, Sampler
from llama_py.text.generate import Piece, stream

if TYPE_CHECKING:
    from llama_py.chat.answer import ToolCall
    from llama_py.chat.arguments import Arguments
    from llama_py.chat.stream import AnswerParser
    from llama_py.chat.template import ChatTemplate
    from llama_py.chat.tools import ChatFormat
    from llama_py.context import Context
    from llama_py.tokenizer import Tokenizer

Pieces = Generator[Piece, None, None]
Tool = Mapping[str, Any] | Callable[..., Any]


class Tools:
    """What the answers of a conversation may call.

    given      in the form of the OpenAI API;  functions  those of Python among them
    parser     reads the answer that comes, or came last
    """

    def __init__(self, tools: Sequence[Tool], parallel: bool | None = None) -> None:
        """parallel: whether an answer may have several calls; None: as the template does."""
        from llama_py.chat.functions import tools_of  # it is not light

        self.given = tools_of(tools)
        self.functions = [tool for tool in tools if not isinstance(tool, Mapping)]
        self.parallel = parallel
        self.parser: AnswerParser | None = None

    def form(
        self,
        template: ChatTemplate,
        messages: Sequence[Mapping[str, Any]],
        choice: str | Mapping[str, Any] = "auto",
        **more: Any,
    ) -> ChatFormat:
        """How an answer to messages is asked for and read; see `format_of`."""
        from llama_py.chat.tools import format_of

        return format_of(
            template,
            messages,
            tools=self.given,
            tool_choice=choice,
            parallel_tool_calls=self.parallel,
            **more,
        )

    def pieces(
        self,
        ctx: Context,
        ids: Sequence[int],
        form: ChatFormat,
        options: Mapping[str, Any],
        end: str,
    ) -> Iterator[Piece]:
        """An answer; options are the fields of AnswerParams, but of the most likely tokens unless
        they say something else. end: where the template would go on."""
        tokenizer = ctx.model.tokenizer
        given = AnswerParams(**({"temp": 0.0} | dict(options)))
        p, constraint = asked_with(form, given, end, tokenizer)
        if p.sampler is not None and constraint is not None:
            raise ModelError(
                "calls of tools have a grammar, which a sampler that is given does not know; give"
                " temp, top_p, ... instead of it"
            )
        sampler = p.sampler or Sampler(p.part(SamplingParams), ctx.n_vocab, tokenizer, constraint)
        self.parser = form.parser()
        how = vars(p.part(GenerateParams)) | {"sampler": sampler}
        return read_pieces(stream(ctx, ids, **how), self.parser)


def asked_with(
    form: ChatFormat, p: AnswerParams, end: str, tokenizer: Tokenizer
) -> tuple[AnswerParams, Constraint | None]:
    """Options of an answer with what its format adds to them, and what it must be."""
    most = None if p.max_tokens < 0 else p.max_tokens
    constraint = form.constraint(tokenizer, most)
    if constraint is not None and p.constraints:
        given = " and ".join(p.constraints)
        raise GrammarError(f"tools and {given} are given; an answer can meet only one of them")
    stops = [p.stop] if isinstance(p.stop, str) else [*p.stop]
    stops += [*form.stops, *([end] if end and not form.ends_itself else [])]
    return replace(p, stop=stops, preserved_tokens=form.shown(tokenizer)), constraint


def calls_of(message: Mapping[str, Any]) -> list[ToolCall]:
    """Those of a message."""
    from llama_py.chat.answer import ToolCall

    found = message.get("tool_calls") or ()
    return [
        ToolCall(call["function"]["name"], call["function"]["arguments"], call.get("id", ""))
        for call in found
    ]


def read_pieces(pieces: Iterator[Piece], parser: AnswerParser) -> Iterator[Piece]:
    """The pieces of an answer that may call tools: what is said, thoughts, and calls."""
    for piece in pieces:
        deltas = parser.feed(piece.text)
        if piece.finish_reason is not None:
            deltas += parser.rest()
        yield replace(
            piece,
            text="".join(delta.content for delta in deltas),
            thought="".join(delta.reasoning for delta in deltas),
            calls=tuple(delta for delta in deltas if delta.index is not None),
        )


def check_pieces(pieces: Pieces, p: AnswerParams) -> Pieces:
    """Mark the last piece of an answer that does not meet its schema where no grammar enforces it.

    The server checks whole responses by the same `Arguments`.
    """
    from llama_py.chat.arguments import response_of

    response = response_of(p)
    return pieces if response is None or not response.left_out else _checked(pieces, response)


def _checked(pieces: Pieces, response: Arguments) -> Pieces:
    text = ""
    with closing(pieces):
        for piece in pieces:
            text += piece.text
            ends = piece.finish_reason is not None
            yield replace(piece, error=response.problem(text)) if ends else piece


def join_pieces(pieces: Iterator[Piece]) -> str:
    """Return the text of an answer. Raises AnswerError if it does not meet its schema."""
    text = error = ""
    for piece in pieces:
        text, error = text + piece.text, piece.error
    if error:
        raise AnswerError(f"the answer does not meet its JSON schema: {error}", text)
    return text
