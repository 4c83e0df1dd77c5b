"""llama-py-server: models over HTTP, with the interfaces of OpenAI, Anthropic and llama-server.

`command` reads options, loads the model and starts the engine (`llama_py.serving`); `app` names the
paths. `stdio` serves the models to MCP clients without HTTP. A request passes these rooms, each of
which imports only rooms above it in this list:

    wire/    reads the request body, and has all code that only concerns HTTP
    models/  provides the model that the request names
    schema/  makes prompts and a task from the JSON, and then the engine's request
    stream/  makes a response from the engine's events, in the client's format
    routes/  has a handler for each path
"""

from __future__ import annotations

from types import ModuleType

_MOVED = {  # former modules (former:present) of this package by room, for one release
    "wire": "access body clients errors ids limits listen sse",
    "models": "catalog feed fetches fitting loss preset shelf:model_pool state",
    "schema": "blocks chat_messages constraints fetch fields from_anthropic from_responses media",
    "routes": "metrics slots streams tokens",
}


def __getattr__(name: str) -> ModuleType:
    for room, names in _MOVED.items():
        present = dict(one.partition(":")[::2] for one in names.split())
        if name in present:
            import warnings
            from importlib import import_module

            new = f"{__name__}.{room}.{present[name] or name}"
            warnings.warn(f"{__name__}.{name} is deprecated; import {new}", DeprecationWarning, 2)
            return import_module(new)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
