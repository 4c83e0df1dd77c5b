"""llama-py-lm-eval: lm-evaluation-harness with the model `llama-py`, for GGUF files.

    llama-py-lm-eval --model llama-py --model_args path=model.gguf --tasks arc_easy

The options are lm_eval's. Its own command finds only the models of its package.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec


def main(argv: Sequence[str] | None = None) -> int:
    """Run lm_eval's command and return its exit code; 1 if lm_eval is not installed."""
    words = sys.argv[1:] if argv is None else argv
    if find_spec("lm_eval") is None:
        from ggml_py.machine.extras import install_hint

        if {"-h", "--help"} & {*words}:
            print(f"usage: llama-py-lm-eval [options of lm_eval]\n\n{__doc__}")
            return 0
        hint = install_hint("eval")
        print(f"error: llama-py-lm-eval needs lm_eval: {hint}", file=sys.stderr)
        return 1
    from lm_eval.__main__ import cli_evaluate

    from llama_py_tools.measure import lm_eval_model  # noqa: F401  # registers the model

    sys.argv[1:] = words
    cli_evaluate()
    return 0
