#!/usr/bin/env python3
"""Record completions of the real llama-cpp-python into tests/data/llama_cpp_python.json. Needs
llama-cpp-python: pip install '.[parity]'.

The model is the demo in F32, because quantized weights are multiplied with another rounding:

    llama-py-gguf quantize --allow-requantize llama_py/data/demo.gguf demo-f32.gguf F32
    python -m dev.record.record_completions demo-f32.gguf
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[2] / "tests" / "data" / "llama_cpp_python.json"
GBNF = 'root ::= [A-Z] [a-z]+ (" " [a-z]+)* "."'
PROMPTS = ("ROMEO:", "The king is", "Good night, good night!")
OPTIONS: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 0.8, "seed": 7},
    {"temperature": -1, "seed": 5},
    {"temperature": 1.2, "seed": 11, "top_k": 5, "top_p": 0.8, "typical_p": 0.9, "min_p": 0.1},
    {"temperature": 0, "repeat_penalty": 1.2, "presence_penalty": 0.3},
    {"temperature": 0.8, "seed": 7, "repeat_penalty": 1.3},
    {"temperature": 0.9, "seed": 4, "repeat_penalty": 1.2, "logit_bias": {"10": 3.0}},
    {"temperature": 0.9, "seed": 3, "mirostat_mode": 1},
    {"temperature": 0.9, "seed": 3, "mirostat_mode": 2, "frequency_penalty": 0.5},
    {"temperature": 0.8, "seed": 4, "grammar": GBNF},
)


def record(module: Any, path: str) -> list[dict[str, Any]]:
    """Return the completions of a model: objects with prompt, options and text.

    Args:
        module: `llama_cpp`, or a module with its interface.
        path: The model's file.
    """
    llm = module.Llama(path, n_ctx=256, verbose=False)
    found = []
    for options in OPTIONS:
        for prompt in PROMPTS:
            how = dict(options)
            if "grammar" in how:
                how["grammar"] = module.LlamaGrammar.from_string(how["grammar"], verbose=False)
            made = llm.create_completion(prompt, max_tokens=16, **how)
            text = made["choices"][0]["text"]
            found.append({"prompt": prompt, "options": options, "text": text})
    llm.close()
    return found


def main(path: str) -> None:
    """Write the file."""
    import llama_cpp

    lines = [json.dumps(one) for one in record(llama_cpp, path)]
    FILE.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main(sys.argv[1])
