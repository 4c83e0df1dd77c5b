"""Types of requests and responses in the form of the OpenAI API, with llama-cpp-python's names."""

from __future__ import annotations

import sys
from typing import Any, Literal, TypedDict

if sys.version_info >= (3, 11):
    from typing import NotRequired
else:
    from typing_extensions import NotRequired

JsonType = None | int | str | bool | list[Any] | dict[str, Any]


class EmbeddingUsage(TypedDict):
    """Token counts of embeddings."""

    prompt_tokens: int
    total_tokens: int


class Embedding(TypedDict):
    """Embedding of a text: a vector, or one vector per token."""

    index: int
    object: str
    embedding: list[float] | list[list[float]]


class CreateEmbeddingResponse(TypedDict):
    """Result of `create_embedding`."""

    object: Literal["list"]
    model: str
    data: list[Embedding]
    usage: EmbeddingUsage


class CompletionTokenLogprobs(TypedDict):
    """Log probabilities of a completion's tokens."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class CompletionChoice(TypedDict):
    """Text of a completion, or of a chunk."""

    text: str
    index: int
    logprobs: CompletionTokenLogprobs | None
    finish_reason: Literal["stop", "length"] | None


class CompletionUsage(TypedDict):
    """Token counts of a response."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CreateCompletionResponse(TypedDict):
    """Result of `create_completion`; a chunk has no usage."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: NotRequired[CompletionUsage]


class ChatCompletionResponseFunctionCall(TypedDict):
    """Called function, with its arguments as JSON."""

    name: str
    arguments: str


class ChatCompletionMessageToolCallFunction(TypedDict):
    """Called function, with its arguments as JSON."""

    name: str
    arguments: str


class ChatCompletionMessageToolCall(TypedDict):
    """Tool call of a message."""

    id: str
    type: Literal["function"]
    function: ChatCompletionMessageToolCallFunction


class ChatCompletionResponseMessage(TypedDict):
    """Message of a response."""

    role: Literal["assistant", "function"]
    content: str | None
    tool_calls: NotRequired[list[ChatCompletionMessageToolCall]]
    function_call: NotRequired[ChatCompletionResponseFunctionCall]


class ChatCompletionFunction(TypedDict):
    """Function that a response may call."""

    name: str
    description: NotRequired[str]
    parameters: dict[str, Any]


class ChatCompletionTopLogprobToken(TypedDict):
    """Likely token with its log probability."""

    token: str
    logprob: float
    bytes: list[int] | None


class ChatCompletionLogprobToken(TypedDict):
    """Token of a response, with the most likely tokens."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[ChatCompletionTopLogprobToken]


class ChatCompletionLogprobs(TypedDict):
    """Log probabilities of a response's tokens."""

    content: list[ChatCompletionLogprobToken] | None
    refusal: list[ChatCompletionLogprobToken] | None


class ChatCompletionResponseChoice(TypedDict):
    """Response with its end."""

    index: int
    message: ChatCompletionResponseMessage
    logprobs: ChatCompletionLogprobs | None
    finish_reason: str | None


class CreateChatCompletionResponse(TypedDict):
    """Response of `create_chat_completion`: a message with its end."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatCompletionResponseChoice]
    usage: CompletionUsage


class ChatCompletionMessageToolCallChunkFunction(TypedDict):
    """Piece of a call: the name once, then arguments."""

    name: str | None
    arguments: str


class ChatCompletionMessageToolCallChunk(TypedDict):
    """Piece of a tool call."""

    index: int
    id: NotRequired[str]
    type: Literal["function"]
    function: ChatCompletionMessageToolCallChunkFunction


class ChatCompletionStreamResponseDelta(TypedDict):
    """Change of a message in a chunk; the last one is empty."""

    role: NotRequired[str | None]
    content: NotRequired[str | None]
    tool_calls: NotRequired[list[ChatCompletionMessageToolCallChunk] | None]


class ChatCompletionStreamResponseChoice(TypedDict):
    """Change of a response in a chunk."""

    index: int
    delta: ChatCompletionStreamResponseDelta
    finish_reason: str | None
    logprobs: NotRequired[ChatCompletionLogprobs | None]


class CreateChatCompletionStreamResponse(TypedDict):
    """Chunk of a chat completion."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatCompletionStreamResponseChoice]


class ChatCompletionRequestResponseFormat(TypedDict):
    """Format of a response."""

    type: Literal["text", "json_object", "json_schema"]
    schema: NotRequired[Any]
    json_schema: NotRequired[Any]


class ChatCompletionRequestMessageContentPartText(TypedDict):
    """Text in a message's content."""

    type: Literal["text"]
    text: str


class ChatCompletionRequestMessageContentPartImageImageUrl(TypedDict):
    """Address of an image."""

    url: str
    detail: NotRequired[Literal["auto", "low", "high"]]


class ChatCompletionRequestMessageContentPartImage(TypedDict):
    """Image in a message's content."""

    type: Literal["image_url"]
    image_url: str | ChatCompletionRequestMessageContentPartImageImageUrl


ChatCompletionRequestMessageContentPart = (
    ChatCompletionRequestMessageContentPartText | ChatCompletionRequestMessageContentPartImage
)


class ChatCompletionRequestSystemMessage(TypedDict):
    """Message with the system prompt."""

    role: Literal["system"]
    content: str | None


class ChatCompletionRequestUserMessage(TypedDict):
    """Message of the user."""

    role: Literal["user"]
    content: str | list[ChatCompletionRequestMessageContentPart] | None


class ChatCompletionRequestAssistantMessage(TypedDict):
    """Message with an earlier response."""

    role: Literal["assistant"]
    content: NotRequired[str | None]
    tool_calls: NotRequired[list[ChatCompletionMessageToolCall]]
    function_call: NotRequired[ChatCompletionResponseFunctionCall]


class ChatCompletionRequestToolMessage(TypedDict):
    """Result of a tool call."""

    role: Literal["tool"]
    content: str | None
    tool_call_id: str


class ChatCompletionRequestFunctionMessage(TypedDict):
    """Result of a function call."""

    role: Literal["function"]
    content: str | None
    name: str


class ChatCompletionRequestFunctionCallOption(TypedDict):
    """Function that the response must call."""

    name: str


class ChatCompletionToolFunction(TypedDict):
    """Function of a tool."""

    name: str
    description: NotRequired[str]
    parameters: dict[str, Any]


class ChatCompletionTool(TypedDict):
    """Tool that a response may call."""

    type: Literal["function"]
    function: ChatCompletionToolFunction


class ChatCompletionNamedToolChoiceFunction(TypedDict):
    """Function that the response must call."""

    name: str


class ChatCompletionNamedToolChoice(TypedDict):
    """Choice of one tool."""

    type: Literal["function"]
    function: ChatCompletionNamedToolChoiceFunction


ChatCompletionRequestMessage = (
    ChatCompletionRequestSystemMessage
    | ChatCompletionRequestUserMessage
    | ChatCompletionRequestAssistantMessage
    | ChatCompletionRequestToolMessage
    | ChatCompletionRequestFunctionMessage
)
ChatCompletionRequestFunctionCall = (
    Literal["none", "auto"] | ChatCompletionRequestFunctionCallOption
)
ChatCompletionToolChoiceOption = Literal["none", "auto", "required"] | ChatCompletionNamedToolChoice
CompletionLogprobs = CompletionTokenLogprobs
ChatCompletionMessageToolCalls = list[ChatCompletionMessageToolCall]
ChatCompletionFunctionParameters = dict[str, Any]
CreateCompletionStreamResponse = CreateCompletionResponse

# Former names of llama-cpp-python.
EmbeddingData = Embedding
Completion = CompletionChunk = CreateCompletionResponse
ChatCompletionMessage = ChatCompletionResponseMessage
ChatCompletionChoice = ChatCompletionResponseChoice
ChatCompletion = CreateChatCompletionResponse
ChatCompletionChunkChoice = ChatCompletionStreamResponseChoice
ChatCompletionChunkDelta = ChatCompletionStreamResponseDelta
ChatCompletionChunk = ChatCompletionStreamResponse = CreateChatCompletionStreamResponse
ChatCompletionFunctions = ChatCompletionResponseFunction = ChatCompletionFunction
ChatCompletionFunctionCall = ChatCompletionResponseFunctionCall
