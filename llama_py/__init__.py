"""Run GGUF models.

    model = llama_py.load("model.gguf")
    ctx = model.context(n_ctx=4096)
    for piece in llama_py.stream(ctx, "Once upon a time", max_tokens=64):
        print(piece.text, end="", flush=True)

or, without text: `logits = ctx.decode([1, 2, 3])`, float32 [1, n_vocab].
Importing this package loads nothing; names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llama_py.batch import Batch
    from llama_py.context import Context
    from llama_py.generate import Piece, stream
    from llama_py.model import Model
    from llama_py.params import ContextParams, GenerateParams, ModelParams, SamplingParams
    from llama_py.sampler import Sampler

__version__ = "0.1.0"
__all__ = [
    "Batch", "Context", "ContextParams", "GenerateParams", "Model", "ModelParams", "Piece",
    "Sampler", "SamplingParams", "load", "stream",
]  # fmt: skip

_HOME = {
    "Batch": "batch", "Context": "context", "ContextParams": "params",
    "GenerateParams": "params", "Model": "model", "ModelParams": "params", "Piece": "generate",
    "Sampler": "sampler", "SamplingParams": "params", "stream": "generate",
}  # fmt: skip


def load(path: str, device: Any = "cpu", **options: Any) -> Model:
    """A model on a device (`cpu`, `ref`, ...), or on a list of them.

    options are the fields of `llama_py.ModelParams`.

    Raises GGUFError, UnknownArchitecture, HParamsError, WeightsError, or BackendError.
    """
    from llama_py.model import Model

    return Model(path, device, **options)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'llama_py' has no attribute {name!r}")
    return getattr(import_module(f"llama_py.{_HOME[name]}"), name)
