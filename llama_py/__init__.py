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
    from llama_py.context import Context, ContextParams
    from llama_py.generate import Piece, stream
    from llama_py.model import Model
    from llama_py.sampler import Sampler, SamplingParams
    from llama_py.tokenizer import Tokenizer, load_tokenizer

__version__ = "0.1.0"
__all__ = [
    "Batch", "Context", "ContextParams", "Model", "Piece", "Sampler", "SamplingParams", "Tokenizer",
    "load", "load_tokenizer", "stream",
]  # fmt: skip

_HOME = {
    "Batch": "batch", "Context": "context", "ContextParams": "context", "Model": "model",
    "Piece": "generate", "Sampler": "sampler", "SamplingParams": "sampler",
    "Tokenizer": "tokenizer", "load_tokenizer": "tokenizer", "stream": "generate",
}  # fmt: skip


def load(path: str, device: Any = "cpu", **options: Any) -> Model:
    """A model on a device (`cpu`, `ref`, ...), or on a list of them.

    options are those of `llama_py.Model`.

    Raises GGUFError, UnknownArchitecture, HParamsError, WeightsError, or BackendError.
    """
    from llama_py.model import Model

    return Model(path, device, **options)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'llama_py' has no attribute {name!r}")
    return getattr(import_module(f"llama_py.{_HOME[name]}"), name)
