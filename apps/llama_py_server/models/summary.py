"""Summary of a model for /models and /props, also while it is unloaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_py.batch.prompts import MARKER
from llama_py.gguf.file_types import file_type_text, guess_type

if TYPE_CHECKING:
    from llama_py.serving import Now
    from llama_py_server.models.state import ModelOptions, ModelState


@dataclass(frozen=True)
class ModelSummary:
    """The facts about a model that responses contain.

    props  constant fields of /props;  path  of the model's file
    """

    options: ModelOptions
    model: dict[str, Any]
    props: dict[str, Any]
    now: Now
    arch: str
    path: str = ""

    @property
    def sees(self) -> bool:
        return bool(self.props["modalities"]["vision"])

    @property
    def capabilities(self) -> list[str]:
        return ["completion", "multimodal"] if self.sees else ["completion"]


def summarize(state: ModelState) -> ModelSummary:
    facts = (_model(state), _props(state), state.now(), state.model.arch, state.path)
    return ModelSummary(state.options, *facts)


def _model(state: ModelState) -> dict[str, Any]:
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


def _file_type(state: ModelState) -> str:
    file = state.model.file
    said = file.metadata.get("general.file_type")
    types = {name: info.type for name, info in file.tensors.items()}
    return file_type_text(said if isinstance(said, int) else guess_type(types))


def _props(state: ModelState) -> dict[str, Any]:
    t, file = state.tokenizer, state.model
    shown = {name: _token_text(state, name) for name in ("bos", "eos")}
    body = {
        "total_slots": state.engine.n_slots,
        "model_alias": state.name,
        "model_ftype": _file_type(state),
        "model_path": Path(state.path).name,
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


def _token_text(state: ModelState, name: str) -> str:
    id = state.tokenizer.special_ids.get(name)
    if id is None:
        return ""
    return state.tokenizer.token_to_piece(id, special=True).decode("utf-8", "replace")


def _caps(state: ModelState) -> dict[str, bool]:
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
