"""What is told of a model by /models and /props; /lora-adapters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from llama_py.batch.prompts import MARKER
from llama_py.gguf.file_types import guessed, words_of
from llama_py_server.answers import as_json
from llama_py_server.body import json_of
from llama_py_server.errors import invalid, not_supported
from llama_py_server.results.settings import settings
from llama_py_server.task import scales

if TYPE_CHECKING:
    from llama_py.serving import Now
    from llama_py_server.params import ServerParams
    from llama_py_server.state import State


@dataclass(frozen=True)
class Told:
    """What is told of a model, also while it is not in memory."""

    params: ServerParams
    model: dict[str, Any]
    props: dict[str, Any]
    now: Now
    arch: str

    @property
    def sees(self) -> bool:
        return bool(self.props["modalities"]["vision"])

    @property
    def capabilities(self) -> list[str]:
        return ["completion", "multimodal"] if self.sees else ["completion"]


def told_of(state: State) -> Told:
    return Told(state.params, _model(state), _props(state), state.now(), state.model.arch)


def one_model(told: Told) -> Response:
    """For OpenAI's clients, and for those of Ollama."""
    name, meta, n = told.model["id"], told.model["meta"], told.model["meta"]["n_params"]
    known = {
        "name": name,
        "model": name,
        "modified_at": "",
        "size": meta["size"],
        "digest": "",
        "type": "model",
        "description": "",
        "tags": told.model["tags"],
        "capabilities": told.capabilities,
        "parameters": "",
        "details": {
            "parent_model": "",
            "format": "gguf",
            "family": told.arch,
            "families": [told.arch],
            "parameter_size": f"{n / 1e9:.1f}B" if n >= 1e9 else f"{n / 1e6:.2f}M",
            "quantization_level": meta["ftype"],
        },
    }
    return as_json({"models": [known], "object": "list", "data": [told.model]})


def _model(state: State) -> dict[str, Any]:
    m = state.model
    return {
        "id": state.name,
        "aliases": sorted(state.names),
        "tags": sorted(state.params.tags),
        "object": "model",
        "created": int(state.record.started),
        "owned_by": "llama-py",
        "meta": {
            "vocab_type": m.tokenizer.kind,
            "n_vocab": m.hparams.n_vocab,
            "n_ctx": state.engine.n_ctx,
            "n_ctx_train": m.hparams.n_ctx_train,
            "n_embd": m.hparams.n_embd,
            "n_params": m.n_params,
            "size": m.n_bytes,
            "ftype": _file_type(state),
        },
    }


def _file_type(state: State) -> str:
    file = state.model.file
    said = file.metadata.get("general.file_type")
    types = {name: info.type for name, info in file.tensors.items()}
    return words_of(said if isinstance(said, int) else guessed(types))


def _props(state: State) -> dict[str, Any]:
    t, file = state.tokenizer, state.model
    shown = {name: _token_text(state, name) for name in ("bos", "eos")}
    body = {
        "default_generation_settings": {
            "params": settings(state.defaults, state, short=True),
            "n_ctx": state.engine.n_ctx,
        },
        "total_slots": state.engine.n_slots,
        "model_alias": state.name,
        "model_ftype": _file_type(state),
        "model_path": state.path,
        "modalities": {"vision": state.sees, "video": False, "audio": False},
        "media_marker": MARKER,
        "endpoint_slots": state.params.slots,
        "endpoint_props": state.params.props,
        "endpoint_metrics": state.params.metrics,
        "ui_settings": {},
        "chat_template": state.template.source,
        "chat_template_caps": _caps(state),
        "bos_token": shown["bos"],
        "eos_token": shown["eos"],
        "build_info": state.build,
        "is_sleeping": False,
        "cors_proxy_enabled": False,
    }
    if t.tool_use_template and file.chat_template is not None:
        body["chat_template_tool_use"] = t.tool_use_template
    return body


def _token_text(state: State, name: str) -> str:
    id = state.tokenizer.special_ids.get(name)
    if id is None:
        return ""
    return state.tokenizer.token_to_piece(id, special=True).decode("utf-8", "replace")


def _caps(state: State) -> dict[str, bool]:
    caps = state.template.caps
    return {
        "supports_string_content": caps.string_content,
        "supports_typed_content": caps.typed_content,
        "supports_system_role": caps.system_role,
        "supports_object_arguments": caps.object_arguments,
        "supports_parallel_tool_calls": caps.parallel_tool_calls,
        "supports_tools": "tools" in state.template.source,
        "supports_tool_calls": "tool_calls" in state.template.source,
        "supports_preserve_reasoning": "reasoning_content" in state.template.source,
    }


async def set_props(request: Request, state: State) -> Response:
    if not state.params.props:
        raise not_supported(
            "This server does not support changing global properties. Start it with `--props`"
        )
    return as_json({"success": True})


async def adapters(request: Request, state: State) -> Response:
    """The LoRA adapters and the scales of requests that say nothing of them."""
    in_use = state.engine.loras
    found = []
    for id, adapter in enumerate(state.model.adapters):
        one: dict[str, Any] = {
            "id": id,
            "path": adapter.path,
            "scale": in_use.get(adapter, 0.0),
            "task_name": adapter.task,
            "prompt_prefix": adapter.prompt_prefix,
        }
        if adapter.invocation_tokens:
            t = state.tokenizer
            ids = adapter.invocation_tokens
            data = b"".join(t.token_to_piece(id, special=True) for id in ids)
            one["alora_invocation_string"] = data.decode("utf-8", "replace")
            one["alora_invocation_tokens"] = list(ids)
        found.append(one)
    return as_json(found)


async def set_adapters(request: Request, state: State) -> Response:
    body = await json_of(request)
    if not isinstance(body, list):
        raise invalid("Request body must be an array")
    try:
        state.engine.set_loras(state.adapters_of(scales(body)))
    except ValueError as e:
        raise invalid(str(e)) from None
    return as_json({"success": True})
