"""Operations of the routes for /openapi.json: fields, parameters and responses of each handler.

Fields that a table of `schema` declares have their types from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from llama_py_server.routes import (
    chat,
    completions,
    decisions,
    embeddings,
    hub,
    metrics,
    models,
    ollama,
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
from llama_py_server.schema import tgi as tgi_schema
from llama_py_server.schema.completion import DELIVERY, PARAMS, REQUEST
from llama_py_server.schema.constraints import CONSTRAINT_NAMES
from llama_py_server.schema.fields import INTEGER, STRING, STRINGS, RequestField
from llama_py_server.wire.body import MAX_ITEMS

Schema = Mapping[str, Any]
ANY: Schema = {}
OBJECT: Schema = {"type": "object"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}


@dataclass(frozen=True)
class Features:
    """Features of a server. Each is on if a model may have it."""

    embedding: bool = True
    reranking: bool = True
    infill: bool = True
    slots: bool = True
    slot_files: bool = True
    metrics: bool = True
    props: bool = True
    images: bool = True
    several: bool = True

    @property
    def reads(self) -> bool:
        return self.embedding or self.reranking


def _always(features: Features) -> bool:
    return True


@dataclass(frozen=True, kw_only=True, eq=False)
class Operation:
    """One operation of the document.

    Attributes:
        fields: Fields of the body; `required` names fields that must be present.
        body: Schema of a body that is no object of fields.
        query: Parameters of the query; `needed` names parameters that must be present.
        returns: Schema of the response; None for a response without a body.
        status: Status of the response; 0: 200, or 204 without a body.
        media: Media type of the response.
        streams: The response may be a stream of events.
        hugging_face: Errors may have the form of Hugging Face's servers.
        is_on: Whether a server serves it.
    """

    tag: str
    summary: str = ""
    fields: Mapping[str, RequestField | Schema] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    body: Schema | None = None
    query: Mapping[str, Schema] = field(default_factory=dict)
    needed: tuple[str, ...] = ()
    returns: Schema | None = field(default_factory=lambda: OBJECT)
    status: int = 0
    media: str = "application/json"
    streams: bool = False
    hugging_face: bool = False
    is_on: Callable[[Features], bool] = _always


def array(items: Schema, least: int = 0, most: int = MAX_ITEMS) -> Schema:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


def either(*schemas: Schema) -> Schema:
    return {"anyOf": [*schemas]}


def record(**properties: Schema) -> Schema:
    """Return the schema of an object that has at least these properties."""
    return {"type": "object", "properties": properties, "required": [*properties]}


def optional_fields(**properties: Schema) -> Schema:
    """Return the schema of an object that may have these properties."""
    return {"type": "object", "properties": properties}


def list_schema(**properties: Schema) -> Schema:
    """Return the schema of OpenAI's list of objects."""
    return record(object={"const": "list"}, data=array(record(**properties)))


OBJECTS = array(OBJECT)
USAGE = record(prompt_tokens=INTEGER, total_tokens=INTEGER)
TOKEN: Schema = {"type": "integer", "minimum": 0}
TEXT_OR_TOKENS = either(STRING, array(either(STRING, TOKEN)))
TEXTS = either(STRING, array(TOKEN, 1), array(either(STRING, array(TOKEN, 1)), 1))
PROMPT = either(
    TEXT_OR_TOKENS,
    array(TEXT_OR_TOKENS, 1),
    optional_fields(prompt_string=TEXT_OR_TOKENS, multimodal_data=STRINGS),
)
IMAGE_PART = record(type={"const": "image_url"}, image_url=record(url=STRING))
PART = either(record(type={"const": "text"}, text=STRING), IMAGE_PART)
MESSAGE: Schema = {
    "type": "object",
    "properties": {
        "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
        "content": either(STRING, array(PART), {"type": "null"}),
        "tool_calls": OBJECTS,
        "tool_call_id": STRING,
    },
    "required": ["role"],
}
MESSAGES = array(MESSAGE, 1)
TOOLS = array(record(type={"const": "function"}, function=record(name=STRING)), most=512)

MODEL: Mapping[str, Schema] = {"model": STRING}
CONSTRAINTS: Mapping[str, Schema] = dict.fromkeys((*CONSTRAINT_NAMES, "response_format"), ANY)
GENERATION: Mapping[str, RequestField | Schema] = {
    **MODEL, **PARAMS, **REQUEST, **DELIVERY, **CONSTRAINTS,
    "n": {"type": "integer", "minimum": 1}, "n_cmpl": {"type": "integer", "minimum": 1},
    "stream_options": optional_fields(include_usage=FLAG),
    "logit_bias": either(OBJECT, array({"type": "array"})),
    "lora": array(record(id=TOKEN, scale=NUMBER)), "preserved_tokens": STRINGS,
}  # fmt: skip
CHAT: Mapping[str, RequestField | Schema] = {
    **GENERATION,
    "messages": MESSAGES, "tools": TOOLS, "tool_choice": either(STRING, OBJECT),
    "parallel_tool_calls": FLAG, "reasoning_format": STRING, "reasoning_effort": STRING,
    "reasoning_budget_tokens": INTEGER, "reasoning_budget_message": STRING,
    "add_generation_prompt": FLAG, "continue_final_message": either(FLAG, STRING),
    "chat_template_kwargs": OBJECT, "logprobs": either(FLAG, INTEGER), "top_logprobs": INTEGER,
    "functions": OBJECTS, "function_call": either(STRING, OBJECT), "modalities": STRINGS,
}  # fmt: skip
RESPONSES: Mapping[str, Schema] = {
    **MODEL,
    "input": either(STRING, OBJECTS), "instructions": STRING, "tools": OBJECTS,
    "tool_choice": either(STRING, OBJECT), "max_output_tokens": INTEGER, "stream": FLAG,
    "temperature": NUMBER, "top_p": NUMBER, "text": OBJECT, "reasoning": OBJECT,
    "top_logprobs": INTEGER, "include": STRINGS, "parallel_tool_calls": FLAG, "metadata": OBJECT,
    "user": STRING, "prompt_cache_key": STRING, "safety_identifier": STRING,
}  # fmt: skip
ANTHROPIC: Mapping[str, Schema] = {
    **MODEL,
    "messages": array(
        record(role={"enum": ["user", "assistant"]}, content=either(STRING, OBJECTS))
    ),
    "max_tokens": INTEGER, "system": either(STRING, OBJECTS), "tools": OBJECTS,
    "tool_choice": OBJECT, "stop_sequences": STRINGS, "stream": FLAG, "temperature": NUMBER,
    "top_k": INTEGER, "top_p": NUMBER, "thinking": OBJECT, "output_config": OBJECT,
    "output_format": OBJECT,
}  # fmt: skip
EMBEDDINGS: Mapping[str, Schema] = {
    **MODEL, "encoding_format": {"enum": ["float", "base64"]},
    "dimensions": {"type": "integer", "minimum": 1}, "embd_normalize": INTEGER,
}  # fmt: skip
VECTOR = array(NUMBER, most=1 << 24)
EVENTS = "text/event-stream"
SUCCESS = record(success=FLAG)
COUNT = record(input_tokens=INTEGER)
LINES = "application/x-ndjson"
OLLAMA: Mapping[str, Schema] = {
    **MODEL, "stream": FLAG, "options": OBJECT, "format": either(STRING, OBJECT),
    "keep_alive": either(STRING, NUMBER), "think": either(FLAG, STRING), "truncate": FLAG,
    "logprobs": FLAG, "top_logprobs": INTEGER,
}  # fmt: skip
OLLAMA_EMBED: Mapping[str, Schema] = {
    name: OLLAMA[name] for name in ("model", "options", "keep_alive", "truncate")
} | {"dimensions": INTEGER}
TGI_FIELDS: Mapping[str, RequestField | Schema] = {
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
        returns=record(object={"const": "text_completion"}, choices=OBJECTS, usage=USAGE),
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
        returns=record(object={"const": "chat.completion"}, choices=OBJECTS, usage=USAGE),
    ),
    chat.responses: _generation(
        tag="chat", fields=RESPONSES, required=("input",),
        returns=record(object={"const": "response"}, output=OBJECTS, status=STRING),
    ),
    chat.messages: _generation(
        tag="chat", fields=ANTHROPIC, required=("messages",),
        returns=record(type={"const": "message"}, content=OBJECTS, usage=OBJECT),
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
            **MODEL, "content": TEXT_OR_TOKENS, "add_special": FLAG, "parse_special": FLAG,
            "with_pieces": FLAG, "prompt": TEXT_OR_TOKENS, "messages": MESSAGES,
            "add_special_tokens": FLAG, "return_token_strs": FLAG, "tools": TOOLS,
            "add_generation_prompt": FLAG, "chat_template_kwargs": OBJECT,
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
        tag="vllm", fields={**MODEL, **vllm.POOLING, "input": TEXTS}, required=("input",),
        returns=list_schema(index=INTEGER, data=either(STRING, array(ANY, most=1 << 24))),
        is_on=_reads,
    ),
    tokens.tokenizer_info: Operation(
        tag="tokens", query=_BY_NAME, returns=record(tokenizer_class=STRING)
    ),
    ollama.chat: Operation(
        tag="ollama", media=LINES, returns=ANY,
        fields={**OLLAMA, "messages": OBJECTS, "tools": OBJECTS},
    ),
    ollama.generate: Operation(
        tag="ollama", media=LINES, returns=ANY,
        fields={
            **OLLAMA, "prompt": STRING, "suffix": STRING, "system": STRING, "raw": FLAG,
            "images": STRINGS, "context": array(TOKEN),
        },
    ),
    ollama.embed: Operation(
        tag="ollama", required=("input",), returns=record(embeddings=array(VECTOR)),
        fields={**OLLAMA_EMBED, "input": either(STRING, STRINGS)}, is_on=is_embedding,
    ),
    ollama.embeddings: Operation(
        tag="ollama", required=("prompt",), returns=record(embedding=VECTOR),
        fields={**OLLAMA_EMBED, "prompt": STRING}, is_on=is_embedding,
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
    ollama_manage.create: Operation(
        tag="ollama", required=("model", "from"), media=LINES, returns=ANY,
        fields={
            **MODEL, "from": STRING, "template": STRING, "system": STRING, "messages": OBJECTS,
            "parameters": OBJECT, "license": either(STRING, STRINGS), "stream": FLAG,
        },
    ),
    ollama_manage.copy: Operation(
        tag="ollama", fields={"source": STRING, "destination": STRING},
        required=("source", "destination"), returns=None, status=200,
    ),
    decisions.systemone: Operation(
        tag="decisions", required=("state", "questions"),
        fields={**MODEL, "state": ANY, "questions": OBJECT},
        returns=record(model=STRING, answers=OBJECT, usage=OBJECT),
    ),
    models.health: Operation(tag="server", returns=record(status={"const": "ok"})),
    models.models: Operation(
        tag="models", query={"reload": STRING},
        returns=list_schema(id=STRING, object={"const": "model"}, created=INTEGER, owned_by=STRING),
    ),
    models.model: Operation(
        tag="models", returns=record(id=STRING, object={"const": "model"}, created=INTEGER)
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
