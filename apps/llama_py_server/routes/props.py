"""Routes /props and /lora-adapters: settings of a model, and of the server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from llama_py_server.models.state import build
from llama_py_server.routes.leases import find_summary
from llama_py_server.schema.completion import build_defaults, scales
from llama_py_server.stream.writers.settings import settings
from llama_py_server.wire.body import read_json
from llama_py_server.wire.errors import invalid, not_supported
from llama_py_server.wire.responses import GONE, as_json

if TYPE_CHECKING:
    from llama_py_server.models.model_pool import ModelPool
    from llama_py_server.models.state import ModelState


async def get(request: Request, pool: ModelPool) -> Response:
    """Return a model's settings; without a model's name, the router's settings."""
    ui: bool = request.app.state.ui
    if pool.several and not request.query_params.get("model"):
        return as_json(
            {
                "role": "router",
                "ui": ui,
                "max_instances": pool.models.most,
                "models_autoload": pool.autoload,
                "model_alias": "llama-py",
                "model_path": "none",
                "default_generation_settings": {"params": None, "n_ctx": 0},
                "ui_settings": {},
                "build_info": build(),
                "cors_proxy_enabled": False,
            }
        )
    known = await find_summary(request, pool)
    if known is None:
        return GONE
    entry, summary = known
    o = summary.options
    params = {"params": settings(*build_defaults(o), o), "n_ctx": summary.model["meta"]["n_ctx"]}
    found = {"default_generation_settings": params, **summary.props}
    return as_json({**found, "ui": ui, "is_sleeping": pool.info(entry).asleep})


async def post(request: Request, state: ModelState) -> Response:
    """Accept new settings of the server."""
    if not state.params.props:
        raise not_supported(
            "This server does not support changing global properties. Start it with `--props`"
        )
    return as_json({"success": True})


async def adapters(request: Request, state: ModelState) -> Response:
    """Return the LoRA adapters, with their default scales."""
    in_use = state.engine.loras
    found = []
    for id, adapter in enumerate(state.model.adapters):
        one: dict[str, Any] = {
            "id": id,
            "path": Path(adapter.path).name,
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


async def set_adapters(request: Request, state: ModelState) -> Response:
    """Change the default scales of LoRA adapters."""
    body = await read_json(request)
    if not isinstance(body, list):
        raise invalid("Request body must be an array")
    try:
        state.engine.set_loras(state.find_adapters(scales(body)))
    except ValueError as e:
        raise invalid(str(e)) from None
    return as_json({"success": True})
