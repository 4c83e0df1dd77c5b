"""Paths of the server, their handlers, and the operation of each handler for /openapi.json.

Fields of a body have their declarations from the reader of the body (`schema`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from llama_py_server.routes import (
    chat,
    completions,
    decisions,
    embeddings,
    hub,
    metrics,
    models,
    ollama,
    ollama_create,
    ollama_manage,
    ollama_models,
    props,
    rerank,
    slots,
    streams,
    tei,
    tgi,
    tokens,
    vllm,
)
from llama_py_server.routes.leases import Handler
from llama_py_server.routes.operation import Features, Operation
from llama_py_server.schema import chat as chat_schema
from llama_py_server.schema import completion, from_anthropic, from_ollama, from_responses
from llama_py_server.schema import tgi as tgi_schema
from llama_py_server.schema.chat_messages import MESSAGES
from llama_py_server.schema.fields import Fields
from llama_py_server.schema.json_schemas import (
    ANY,
    FLAG,
    INTEGER,
    NUMBER,
    OBJECT,
    OBJECTS,
    STRING,
    STRINGS,
    TOKEN,
    Schema,
    array,
    constant,
    either,
    optional_fields,
    record,
)
from llama_py_server.wire.errors import HTTPError
from llama_py_server.wire.responses import as_tei_error, as_tgi_error

if TYPE_CHECKING:
    from llama_py_server.models.model_pool import ModelPool

OfAll = Callable[[Request, "ModelPool"], Awaitable[Any]]


ALWAYS: dict[tuple[str, str], OfAll] = {  # independent of loaded models
    ("GET", "/health"): models.health, ("GET", "/v1/health"): models.health,
    ("GET", "/models"): models.models, ("GET", "/v1/models"): models.models,
    ("GET", "/v1/models/{name:path}"): models.model,
    ("POST", "/models/load"): models.load, ("POST", "/models/unload"): models.unload,
    ("POST", "/models"): hub.fetch, ("DELETE", "/models"): hub.remove,
    ("GET", "/models/sse"): hub.events,
    ("GET", "/props"): props.get, ("GET", "/metrics"): metrics.get,
    ("GET", "/v1/stream"): streams.get, ("DELETE", "/v1/stream"): streams.delete,
    ("POST", "/v1/streams/lookup"): streams.lookup,
}  # fmt: skip

OLLAMA: dict[tuple[str, str], OfAll] = {  # Ollama's API
    ("POST", "/api/chat"): ollama.chat, ("POST", "/api/generate"): ollama.generate,
    ("POST", "/api/embed"): ollama.embed, ("POST", "/api/embeddings"): ollama.embeddings,
    ("GET", "/api/version"): ollama.version, ("GET", "/api/tags"): ollama_models.tags,
    ("POST", "/api/pull"): ollama_manage.pull, ("DELETE", "/api/delete"): ollama_manage.delete,
    ("POST", "/api/create"): ollama_create.create, ("POST", "/api/copy"): ollama_manage.copy,
    ("POST", "/api/blobs/{digest}"): ollama_create.post_blob,
    ("HEAD", "/api/blobs/{digest}"): ollama_create.head_blob,
    ("POST", "/api/push"): ollama_manage.push,
    ("GET", "/api/ps"): ollama_models.ps, ("POST", "/api/show"): ollama_models.show,
}  # fmt: skip

GET: dict[str, Handler] = {
    "/slots": slots.get, "/lora-adapters": props.adapters, "/info": tgi.info,
    "/tokenizer_info": tokens.tokenizer_info,
}  # fmt: skip

POST: dict[str, Handler] = {
    "/completion": completions.native, "/completions": completions.native,
    "/v1/completions": completions.openai, "/infill": completions.infill,
    "/chat/completions": chat.chat, "/v1/chat/completions": chat.chat,
    "/responses": chat.responses, "/v1/responses": chat.responses,
    "/v1/messages": chat.messages, "/v1/messages/count_tokens": chat.count_messages,
    "/chat/completions/input_tokens": chat.count_chat,
    "/v1/chat/completions/input_tokens": chat.count_chat,
    "/responses/input_tokens": chat.count_responses,
    "/v1/responses/input_tokens": chat.count_responses,
    "/apply-template": chat.apply_template,
    "/tokenize": tokens.tokenize, "/detokenize": tokens.detokenize,
    "/embedding": embeddings.native, "/embeddings": embeddings.native,
    "/v1/embeddings": embeddings.openai,
    "/rerank": rerank.rerank, "/reranking": rerank.rerank,
    "/v1/rerank": rerank.rerank, "/v1/reranking": rerank.rerank,
    "/embed": tei.embed, "/embed_all": tei.embed_all, "/similarity": tei.similarity,
    "/predict": tei.predict,
    "/generate": tgi.generate, "/generate_stream": tgi.generate_stream, "/": tgi.root,
    "/score": vllm.score, "/v1/score": vllm.score, "/pooling": vllm.pool,
    "/v1/systemone": decisions.systemone,
    "/props": props.post, "/slots/{id_slot}": slots.post,
    "/lora-adapters": props.set_adapters,
}  # fmt: skip

# Handlers of responses: a client may lose and resume their stream.
STREAMED = (
    completions.native, completions.openai, completions.infill, chat.chat, chat.responses,
    chat.messages, tgi.generate, tgi.generate_stream, tgi.root,
)  # fmt: skip

# Handlers of requests that compute without changing the server: all pages whose origin is in
# `--cors-origins` may send them. Other requests that are not GET are for known pages.
COMPUTE = (
    *STREAMED, chat.count_messages, chat.count_chat, chat.count_responses, chat.apply_template,
    tokens.tokenize, tokens.detokenize, embeddings.native, embeddings.openai, rerank.rerank,
    tei.embed, tei.embed_all, tei.similarity, tei.predict, vllm.score, vllm.pool,
    decisions.systemone, streams.lookup, ollama.chat, ollama.generate, ollama.embed,
    ollama.embeddings, ollama_models.show,
)  # fmt: skip


# Writers of the errors of other APIs than OpenAI's; the handlers of routes with several forms set
# `request.state.write_error`.
ERRORS: dict[Handler, Callable[[HTTPError], Response]] = {
    **dict.fromkeys((tei.embed, tei.embed_all, tei.similarity, tei.predict), as_tei_error),
    **dict.fromkeys((tgi.generate, tgi.generate_stream, tgi.root, tgi.info), as_tgi_error),
}


def list_schema(**properties: Schema) -> Schema:
    """Return the schema of OpenAI's list of objects."""
    return record(object=constant("list"), data=array(record(**properties)))


USAGE = record(prompt_tokens=INTEGER, total_tokens=INTEGER)
TEXT_OR_TOKENS = either(STRING, array(either(STRING, TOKEN)))
TEXTS = either(STRING, array(TOKEN, 1), array(either(STRING, array(TOKEN, 1)), 1))
PROMPT = either(
    TEXT_OR_TOKENS,
    array(TEXT_OR_TOKENS, 1),
    optional_fields(prompt_string=TEXT_OR_TOKENS, multimodal_data=STRINGS),
)
MODEL: Mapping[str, Schema] = {"model": STRING}
GENERATION: Fields = {**MODEL, **completion.FIELDS}
CHAT: Fields = {**MODEL, **chat_schema.FIELDS}
RESPONSES: Fields = {**MODEL, **from_responses.FIELDS}
ANTHROPIC: Fields = {**MODEL, **from_anthropic.FIELDS}
EMBEDDINGS: Mapping[str, Schema] = {
    **MODEL, "encoding_format": {"enum": ["float", "base64"]},
    "dimensions": {"type": "integer", "minimum": 1}, "embd_normalize": INTEGER,
}  # fmt: skip
VECTOR = array(NUMBER, most=1 << 24)
EVENTS = "text/event-stream"
SUCCESS = record(success=FLAG)
COUNT = record(input_tokens=INTEGER)
LINES = "application/x-ndjson"
TGI_FIELDS: Fields = {
    **MODEL,
    "inputs": STRING,
    "parameters": {"fields": {**tgi_schema.SAMPLING, **tgi_schema.OTHERS, "grammar": OBJECT}},
}
TGI_STREAM = record(index=INTEGER, token=record(id=INTEGER, text=STRING, special=FLAG))
TGI_ERROR: Schema = {"$ref": "#/components/schemas/HuggingFaceError"}
_BY_NAME: Mapping[str, Schema] = {"model": STRING, "autoload": STRING}


def is_embedding(features: Features) -> bool:
    return features.embedding


def _reranks(features: Features) -> bool:
    return features.reranking


def _reads(features: Features) -> bool:
    return features.reads


def _is_router(features: Features) -> bool:
    return features.several


def _generation(**fields: Any) -> Operation:
    return Operation(streams=True, **fields)


OPERATIONS: dict[object, Operation] = {
    completions.native: _generation(
        tag="completions", fields={**GENERATION, "prompt": PROMPT}, required=("prompt",),
        returns=either(OBJECT, OBJECTS),
    ),
    completions.openai: _generation(
        tag="completions", required=("prompt",),
        fields={
            **GENERATION, "prompt": PROMPT, "echo": FLAG, "suffix": STRING,
            "best_of": {"type": "integer", "minimum": 1, "maximum": 1},
        },
        returns=record(object=constant("text_completion"), choices=OBJECTS, usage=USAGE),
    ),
    completions.infill: _generation(
        tag="completions", required=("input_prefix", "input_suffix"),
        fields={
            **GENERATION, "input_prefix": STRING, "input_suffix": STRING, "prompt": STRING,
            "input_extra": array(record(text=STRING)),
        },
        returns=record(content=STRING), is_on=lambda features: features.infill,
    ),
    chat.chat: _generation(
        tag="chat", fields=CHAT, required=("messages",),
        returns=record(object=constant("chat.completion"), choices=OBJECTS, usage=USAGE),
    ),
    chat.responses: _generation(
        tag="chat", fields=RESPONSES, required=("input",),
        returns=record(object=constant("response"), output=OBJECTS, status=STRING),
    ),
    chat.messages: _generation(
        tag="chat", fields=ANTHROPIC, required=("messages",),
        returns=record(type=constant("message"), content=OBJECTS, usage=OBJECT),
    ),
    chat.count_chat: Operation(tag="chat", fields=CHAT, required=("messages",), returns=COUNT),
    chat.count_responses: Operation(
        tag="chat", fields=RESPONSES, required=("input",), returns=COUNT
    ),
    chat.count_messages: Operation(
        tag="chat", fields=ANTHROPIC, required=("messages",), returns=COUNT
    ),
    chat.apply_template: Operation(
        tag="chat", fields=CHAT, required=("messages",), returns=record(prompt=STRING)
    ),
    tokens.tokenize: Operation(
        tag="tokens", returns=record(tokens=array(ANY, most=1 << 24)),
        fields={
            **CHAT, "content": TEXT_OR_TOKENS, "add_special": FLAG, "parse_special": FLAG,
            "with_pieces": FLAG, "prompt": TEXT_OR_TOKENS, "add_special_tokens": FLAG,
            "return_token_strs": FLAG,
        },
    ),
    tokens.detokenize: Operation(
        tag="tokens", fields={**MODEL, "tokens": array(TOKEN)},
        returns=record(content=STRING, prompt=STRING),
    ),
    embeddings.native: Operation(
        tag="embeddings", fields={**EMBEDDINGS, "input": TEXTS, "content": TEXTS},
        returns=either(OBJECT, array(record(index=INTEGER, embedding=array(VECTOR)))),
        is_on=is_embedding,
    ),
    embeddings.openai: Operation(
        tag="embeddings", fields={**EMBEDDINGS, "input": TEXTS}, required=("input",),
        returns=either(list_schema(index=INTEGER, embedding=either(VECTOR, STRING)), OBJECTS),
        is_on=is_embedding,
    ),
    rerank.rerank: Operation(
        tag="embeddings", required=("query",), is_on=_reranks, hugging_face=True,
        fields={
            **MODEL, **tei.RERANK, "query": STRING, "texts": array(STRING, 1),
            "documents": array(either(STRING, record(text=STRING)), 1), "top_n": INTEGER,
        },
        returns=either(
            record(results=array(record(index=INTEGER, relevance_score=NUMBER))),
            array(record(index=INTEGER, score=NUMBER)),
        ),
    ),
    tei.embed: Operation(
        tag="text-embeddings-inference", fields={**MODEL, **tei.EMBED, "inputs": TEXTS},
        required=("inputs",), returns=array(VECTOR), is_on=is_embedding,
    ),
    tei.embed_all: Operation(
        tag="text-embeddings-inference", fields={**MODEL, **tei.TEXTS, "inputs": TEXTS},
        required=("inputs",), returns=array(array(VECTOR, most=1 << 24)), is_on=is_embedding,
    ),
    tei.similarity: Operation(
        tag="text-embeddings-inference", required=("inputs",), returns=VECTOR, is_on=is_embedding,
        fields={
            **MODEL, "inputs": record(source_sentence=STRING, sentences=array(STRING, 1)),
            "parameters": {"fields": tei.TEXTS},
        },
    ),
    tei.predict: Operation(
        tag="text-embeddings-inference", required=("inputs",), is_on=_reranks,
        fields={
            **MODEL, **tei.PREDICT,
            "inputs": either(STRING, array(STRING, 1, 2), array(array(STRING, 1, 2), 1)),
        },
        returns=array(ANY),
    ),
    tgi.generate: Operation(
        tag="text-generation-inference", fields=TGI_FIELDS, required=("inputs",),
        returns=record(generated_text=STRING),
    ),
    tgi.generate_stream: Operation(
        tag="text-generation-inference", fields=TGI_FIELDS, required=("inputs",),
        returns=either(TGI_STREAM, TGI_ERROR), media=EVENTS,
    ),
    tgi.root: _generation(
        tag="text-generation-inference", returns=array(ANY),
        fields={
            **TGI_FIELDS, "stream": FLAG, "query": STRING, "texts": array(STRING, 1),
            "inputs": either(TEXTS, record(source_sentence=STRING, sentences=array(STRING, 1))),
        },
    ),
    tgi.info: Operation(
        tag="text-generation-inference", query=_BY_NAME, returns=record(model_id=STRING)
    ),
    vllm.score: Operation(
        tag="vllm", is_on=_reads, returns=list_schema(index=INTEGER, score=NUMBER),
        fields={
            **MODEL, **vllm.SCORE,
            **{name: either(STRING, array(STRING, 1)) for pair in vllm.PAIRS for name in pair},
        },
    ),
    vllm.pool: Operation(
        tag="vllm",
        fields={
            **MODEL, **vllm.POOLING, "input": TEXTS, "messages": MESSAGES,
            "chat_template_kwargs": OBJECT,
        },
        returns=list_schema(index=INTEGER, data=either(STRING, array(ANY, most=1 << 24))),
        is_on=_reads,
    ),
    tokens.tokenizer_info: Operation(
        tag="tokens", query=_BY_NAME, returns=record(tokenizer_class=STRING)
    ),
    ollama.chat: Operation(
        tag="ollama", media=LINES, returns=ANY, fields=from_ollama.CHAT
    ),
    ollama.generate: Operation(
        tag="ollama", media=LINES, returns=ANY, fields=from_ollama.GENERATE
    ),
    ollama.embed: Operation(
        tag="ollama", required=("input",), returns=record(embeddings=array(VECTOR)),
        fields=from_ollama.EMBED, is_on=is_embedding,
    ),
    ollama.embeddings: Operation(
        tag="ollama", required=("prompt",), returns=record(embedding=VECTOR),
        fields=from_ollama.EMBEDDINGS, is_on=is_embedding,
    ),
    ollama.version: Operation(tag="ollama", returns=record(version=STRING)),
    ollama_models.tags: Operation(tag="ollama", returns=record(models=OBJECTS)),
    ollama_models.ps: Operation(tag="ollama", returns=record(models=OBJECTS)),
    ollama_models.show: Operation(
        tag="ollama", fields={**MODEL, "verbose": FLAG}, required=("model",)
    ),
    ollama_manage.pull: Operation(
        tag="ollama", fields={**MODEL, "stream": FLAG}, required=("model",), media=LINES,
        returns=ANY,
    ),
    ollama_manage.delete: Operation(
        tag="ollama", fields=MODEL, required=("model",), returns=None, status=200
    ),
    ollama_manage.push: Operation(
        tag="ollama", fields={**MODEL, "stream": FLAG}, required=("model",), media=LINES,
        returns=ANY,
    ),
    ollama_create.create: Operation(
        tag="ollama", required=("model",), media=LINES, returns=ANY,
        fields={
            **MODEL, "from": STRING, "files": OBJECT, "adapters": OBJECT, "quantize": STRING,
            "template": STRING, "system": STRING, "messages": OBJECTS, "parameters": OBJECT,
            "license": either(STRING, STRINGS), "stream": FLAG,
        },
    ),
    ollama_create.post_blob: Operation(tag="ollama", returns=None, status=201),
    ollama_create.head_blob: Operation(tag="ollama", returns=None, status=200),
    ollama_manage.copy: Operation(
        tag="ollama", fields={"source": STRING, "destination": STRING},
        required=("source", "destination"), returns=None, status=200,
    ),
    decisions.systemone: Operation(
        tag="decisions", required=("state", "questions"),
        fields={**MODEL, "state": ANY, "questions": OBJECT},
        returns=record(model=STRING, answers=OBJECT, usage=OBJECT),
    ),
    models.health: Operation(tag="server", returns=record(status=constant("ok"))),
    models.models: Operation(
        tag="models", query={"reload": STRING},
        returns=list_schema(id=STRING, object=constant("model"), created=INTEGER, owned_by=STRING),
    ),
    models.model: Operation(
        tag="models", returns=record(id=STRING, object=constant("model"), created=INTEGER)
    ),
    models.load: Operation(
        tag="models", fields=MODEL, required=("model",), returns=SUCCESS, is_on=_is_router
    ),
    models.unload: Operation(
        tag="models", fields=MODEL, required=("model",), returns=SUCCESS, is_on=_is_router
    ),
    hub.fetch: Operation(
        tag="models", fields=MODEL, required=("model",), returns=SUCCESS, is_on=_is_router
    ),
    hub.remove: Operation(
        tag="models", query=MODEL, needed=("model",), returns=SUCCESS, is_on=_is_router
    ),
    hub.events: Operation(tag="models", media=EVENTS, is_on=_is_router),
    props.get: Operation(tag="server", query=_BY_NAME),
    props.post: Operation(
        tag="server", body=ANY, returns=SUCCESS, is_on=lambda features: features.props
    ),
    props.adapters: Operation(tag="adapters", query=_BY_NAME, returns=OBJECTS),
    props.set_adapters: Operation(
        tag="adapters", body=array(record(id=TOKEN, scale=NUMBER)), returns=SUCCESS
    ),
    metrics.get: Operation(
        tag="server", query=_BY_NAME, media="text/plain", returns=STRING,
        is_on=lambda features: features.metrics,
    ),
    slots.get: Operation(
        tag="slots", query={**_BY_NAME, "fail_on_no_slot": STRING}, returns=OBJECTS,
        is_on=lambda features: features.slots,
    ),
    slots.post: Operation(
        tag="slots", query={"action": {"enum": ["save", "restore", "erase"]}},
        needed=("action",), fields={**MODEL, "filename": STRING},
        returns=record(id_slot=INTEGER), is_on=lambda features: features.slot_files,
    ),
    streams.get: Operation(
        tag="streams", query={"conv_id": STRING, "from": TOKEN}, needed=("conv_id",), media=EVENTS
    ),
    streams.delete: Operation(
        tag="streams", query={"conv_id": STRING}, needed=("conv_id",), returns=None
    ),
    streams.lookup: Operation(
        tag="streams", fields={"conversation_ids": STRINGS}, returns=ANY
    ),
}  # fmt: skip


PREDICTIONS = Operation(
    tag="server",
    summary="Return predictions for Vertex AI",
    fields={"instances": array(record(**{"@requestFormat": STRING}), most=128)},
    required=("instances",),
    returns=record(predictions=array(ANY)),
)
LIST_TOOLS = Operation(
    tag="tools", summary="List the tools of MCP servers", returns=record(tools=OBJECTS)
)
CALL_TOOL = Operation(
    tag="tools",
    summary="Call a tool of an MCP server",
    fields={"name": STRING, "arguments": OBJECT},
    required=("name",),
)
MCP = Operation(tag="server", summary="Serve the models as an MCP server", body=ANY, returns=ANY)
MCP_REFUSED = Operation(
    tag="server",
    summary="Refuse a stream of events and the end of a session",
    returns=None,
    status=405,
)


def page_file(media: str) -> Operation:
    """Return the operation of a file of the chat page."""
    summary = "Return a file of the chat page"
    return Operation(tag="page", summary=summary, media=media.partition(";")[0], returns=STRING)
