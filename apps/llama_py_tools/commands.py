"""Every command, declared once: console scripts, `llama-py`, completion and docs read this table.

Entry points of the installed package would need `importlib.metadata`, which a start must not load.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Literal, NamedTuple


class Command(NamedTuple):
    """Entry of the table of commands.

    Attributes:
        module: Module with the command's `main` and `parser`.
        about: Line in `llama-py --help`; a command without one has a console script only.
        model: A model may follow the command's word.
        ranks: Task of MPI ranks: compute, serve (restart after a lost rank), or plan (idle).
    """

    module: str
    about: str = ""
    model: bool = False
    ranks: Literal["compute", "serve", "plan"] = "compute"

    def load(self) -> Any:
        """Import the command's module."""
        return import_module(self.module)

    def plans(self, words: Sequence[str]) -> bool:
        """Return True if these arguments only plan; a profile computes."""
        return self.ranks == "plan" and words[:1] != ["profile"] and "--profile" not in words


COMMANDS = {
    "run": Command(
        "llama_py_tools.generate.cli", "answer a prompt, or chat: run [MODEL] [PROMPT]", True
    ),
    "chat": Command("llama_py_tools.generate.cli", "chat with a model: chat [MODEL]", True),
    "serve": Command(
        "llama_py_server.command", "serve a model over HTTP: serve [MODEL]", True, "serve"
    ),
    "mcp": Command(
        "llama_py_server.stdio", "serve a model to MCP clients over stdin: mcp [MODEL]", True
    ),
    "pull": Command("llama_py_tools.models.pull", "download models: pull USER/MODEL[:TYPE]"),
    "list": Command("llama_py_tools.models.listing", "list models by short name"),
    "bench": Command("llama_py_tools.bench.bench", "measure speed: bench [MODEL]", True),
    "perplexity": Command(
        "llama_py_tools.measure.perplexity", "measure how well a model predicts a text", True
    ),
    "embedding": Command("llama_py_tools.measure.embedding", "compute embeddings of texts", True),
    "graph": Command(
        "llama_py_tools.graph", "dump, view, profile and compare graphs", ranks="plan"
    ),
    "gguf": Command("llama_py_tools.gguf", "inspect, convert, quantize and split GGUF files"),
    "imatrix": Command(
        "llama_py_tools.measure.imatrix", "compute an importance matrix for quantization", True
    ),
    "cvector-generator": Command(
        "llama_py_tools.measure.cvector_generator", "train control vectors", True
    ),
    "debug": Command("llama_py_tools.measure.debug", "print values of nodes", True),
    "warmup": Command("llama_py_tools.kernels.warmup", "compile the kernels of a model", True),
    "cache": Command("llama_py_tools.kernels.cache", "list or clear compiled kernels"),
    "test-backend-ops": Command("llama_py_tools.test_backend_ops"),
}
OUTER = {"lm-eval": Command("llama_py_tools.measure.lm_eval")}  # programs with their own options
WORDS = {word: command for word, command in COMMANDS.items() if command.about}
LAUNCHER = Command("llama_py_tools.main")  # llama-py itself
