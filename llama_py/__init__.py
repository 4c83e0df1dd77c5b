"""Library to run, inspect and change GGUF language models.

    print(llama_py.load().chat("hi"))                   # the demo model

    with llama_py.Model("model.gguf") as model:
        print(model.generate("Once upon a time", max_tokens=64))
        print(model.chat("What is a delta net?"))

or, one step lower:

    ctx = llama_py.Context(model, n_ctx=4096)
    logits = ctx.decode([1, 2, 3])                      # float32 [1, n_vocab]
    for piece in llama_py.stream(ctx, "Once upon a time", max_tokens=64):
        print(piece.text, end="", flush=True)

Importing this package does not load its modules; names are imported at their first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from llama_py._moved import install

if TYPE_CHECKING:
    __version__: str
    from collections.abc import Sequence
    from pathlib import Path

    from typing_extensions import Unpack

    from ggml_py.backend import Device
    from llama_py.batch import Batch
    from llama_py.context import Context
    from llama_py.decoding.speculator import Speculator
    from llama_py.loading.model import LoadOptions
    from llama_py.model import Model
    from llama_py.params import (
        AnswerParams,
        ContextParams,
        GenerateParams,
        ModelParams,
        SamplingParams,
    )
    from llama_py.params.speculative import SpeculativeParams
    from llama_py.sampler import Sampler
    from llama_py.text.conversation import Conversation
    from llama_py.text.generate import Piece, stream
    from llama_py.tokenizer import Tokenizer, load_tokenizer

install()

__all__ = [
    "AnswerParams",
    "Batch",
    "Context",
    "ContextParams",
    "Conversation",
    "GenerateParams",
    "Model",
    "ModelParams",
    "Piece",
    "Sampler",
    "SamplingParams",
    "SpeculativeParams",
    "Speculator",
    "Tokenizer",
    "load",
    "load_tokenizer",
    "stream",
]

_HOME = {
    "AnswerParams": "params",
    "Batch": "batch",
    "Context": "context",
    "ContextParams": "params",
    "Conversation": "text.conversation",
    "GenerateParams": "params",
    "Model": "model",
    "ModelParams": "params",
    "Piece": "text.generate",
    "Sampler": "sampler",
    "SamplingParams": "params",
    "SpeculativeParams": "params.speculative",
    "Speculator": "decoding.speculator",
    "Tokenizer": "tokenizer",
    "load_tokenizer": "tokenizer",
    "stream": "text.generate",
}


def load(
    path: str | Path | None = None,
    device: str | Device | Sequence[str | Device] = "cpu",
    **options: Unpack[LoadOptions],
) -> Model:
    """Load a model on a device (`cpu`, `ref`, ...), or on a list of devices; the demo model without
    a path.

    options are the fields of `llama_py.ModelParams`.

    Raises GGUFError, UnknownArchitecture, HParamsError, WeightsError, or BackendError.
    """
    from ggml_py.machine.garbage import collected_later

    with collected_later():
        from llama_py.model import Model

        return Model(path, device, **options)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from ggml_py.machine.release import VERSION

        return VERSION
    if name not in _HOME:
        from llama_py.support.hints import MODULE

        hint = f"; {MODULE[name]}" if name in MODULE else ""
        raise AttributeError(f"module 'llama_py' has no attribute {name!r}{hint}")
    return getattr(import_module(f"llama_py.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
