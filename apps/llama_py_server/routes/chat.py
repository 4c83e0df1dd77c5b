"""Routes of chat: /v1/chat/completions, /v1/responses, /v1/messages, token counts,
/apply-template."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from starlette.requests import Request as HTTPRequest
from starlette.responses import Response

from llama_py.batch.prompts import MARKER, n_cells
from llama_py.chat.messages import has_images
from llama_py_server.schema import from_anthropic, from_responses
from llama_py_server.schema.chat import read_chat
from llama_py_server.schema.prompts import check_text
from llama_py_server.stream.response import respond
from llama_py_server.stream.writers import ReplyWriter
from llama_py_server.stream.writers.anthropic import AnthropicWriter
from llama_py_server.stream.writers.openai_chat import ChatWriter
from llama_py_server.stream.writers.responses import ResponsesWriter
from llama_py_server.wire import work
from llama_py_server.wire.body import Body, inner, read_object, text
from llama_py_server.wire.responses import as_json

if TYPE_CHECKING:
    from llama_py.serving import Request
    from llama_py.text.chat_prompt import ChatPrompt
    from llama_py_server.models.state import ModelState
    from llama_py_server.schema.completion import Delivery

Convert = Callable[[Body], Body]


def _identity(body: Body) -> Body:
    return body


async def _respond(
    http: HTTPRequest, state: ModelState, convert: Convert, writer: ReplyWriter
) -> Response:
    body = await read_object(http)

    def read() -> tuple[ChatPrompt, Request, Delivery]:
        return read_chat(state, convert(body))

    chat, request, delivery = await work.read(http, read)
    request = replace(request, prompt=await work.read(http, prompt_ids, state, chat))
    return await respond(http, state, [request], delivery, writer)


def prompt_ids(state: ModelState, chat: ChatPrompt) -> list[int]:
    """Return the ids of a conversation's prompt."""
    check_text(chat.text)
    if not has_images(chat.messages):
        return chat.ids()
    work.require(work.Work.DECODE)
    return chat.ids(n_most=state.engine.n_ctx)


async def chat(http: HTTPRequest, state: ModelState) -> Response:
    """Return a chat completion of OpenAI's API."""
    body = await read_object(http)
    forced = text(inner(body, "function_call"), "name")
    writer = ChatWriter(state, body.get("functions") is not None, forced)
    return await _respond(http, state, _identity, writer)


async def responses(http: HTTPRequest, state: ModelState) -> Response:
    """Return a response of OpenAI's newer API."""
    writer = ResponsesWriter(state, await read_object(http))
    return await _respond(http, state, from_responses.chat_body, writer)


async def messages(http: HTTPRequest, state: ModelState) -> Response:
    """Return a message of Anthropic's API."""
    return await _respond(http, state, from_anthropic.chat_body, AnthropicWriter(state))


async def _count_tokens(http: HTTPRequest, state: ModelState, convert: Convert) -> int:
    body = await read_object(http)

    def read() -> ChatPrompt:
        return read_chat(state, convert(body))[0]

    return n_cells(await work.read(http, prompt_ids, state, await work.read(http, read)))


async def count_chat(http: HTTPRequest, state: ModelState) -> Response:
    """Count the tokens of a chat completion's prompt."""
    n = await _count_tokens(http, state, _identity)
    return as_json({"input_tokens": n, "object": "response.input_tokens"})


async def count_responses(http: HTTPRequest, state: ModelState) -> Response:
    """Count the tokens of a response's prompt."""
    n = await _count_tokens(http, state, from_responses.chat_body)
    return as_json({"input_tokens": n, "object": "response.input_tokens"})


async def count_messages(http: HTTPRequest, state: ModelState) -> Response:
    """Count the tokens of a message's prompt."""
    return as_json({"input_tokens": await _count_tokens(http, state, from_anthropic.chat_body)})


async def apply_template(http: HTTPRequest, state: ModelState) -> Response:
    """Return the prompt of a conversation without a response; images become marks."""
    body = await read_object(http)
    found, *_ = await work.read(http, read_chat, state, body)
    prompt = found.text
    if has_images(found.messages):
        from llama_py.vision.messages import PLACE

        prompt = prompt.replace(PLACE, MARKER)
    return as_json({"prompt": prompt})
