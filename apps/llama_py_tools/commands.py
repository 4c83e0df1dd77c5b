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
    "run": Command("llama_py_tools.generate.cli", "ask once, or talk: run [MODEL] [PROMPT]", True),
    "chat": Command("llama_py_tools.generate.cli", "talk with a model: chat [MODEL]", True),
    "serve": Command(
        "llama_py_server.command", "answer other programs: serve [MODEL]", True, "serve"
    ),
    "pull": Command(
        "llama_py_tools.models.pull", "fetch models of the hub: pull USER/MODEL[:TYPE]"
    ),
    "list": Command("llama_py_tools.models.listing", "the models that have a short name"),
    "bench": Command("llama_py_tools.bench.bench", "measure speed: bench [MODEL]", True),
    "perplexity": Command(
        "llama_py_tools.measure.perplexity", "how well a model knows a text", True
    ),
    "embedding": Command("llama_py_tools.measure.embedding", "vectors of texts", True),
    "graph": Command(
        "llama_py_tools.graph", "dump, view, profile and compare graphs", ranks="plan"
    ),
    "gguf": Command("llama_py_tools.gguf", "look into files, quantize, split and merge them"),
    "imatrix": Command(
        "llama_py_tools.measure.imatrix", "what matters to a model, for quantizing", True
    ),
    "cvector-generator": Command(
        "llama_py_tools.measure.cvector_generator", "train control vectors", True
    ),
    "debug": Command("llama_py_tools.measure.debug", "values of nodes", True),
    "warmup": Command("llama_py_tools.kernels.warmup", "compile what a model needs", True),
    "cache": Command("llama_py_tools.kernels.cache", "compiled kernels that are kept"),
    "test-backend-ops": Command("llama_py_tools.test_backend_ops"),
}
WORDS = {word: command for word, command in COMMANDS.items() if command.about}
LAUNCHER = Command("llama_py_tools.main")  # llama-py itself
