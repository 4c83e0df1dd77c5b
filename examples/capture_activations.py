"""The values of named nodes while a model reads a prompt.

    python examples/capture_activations.py       # the demo model, the result of each layer
    python examples/capture_activations.py -m model.gguf -n 'ffn_norm-*' -o norms.npz

A context with `watch` calls a function with each node once its value is there. Nodes have
llama.cpp's names: `llama-py-graph dump` lists them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

import llama_py
from ggml_py.backend import get_tensor
from ggml_py.tensor import Tensor

Values = dict[str, Any]  # arrays of float32 by the node's name


def capture(model: llama_py.Model, prompt: str, pattern: str) -> Values:
    """The float32 nodes whose names fit, each [n_tokens, n] or [n_tokens, n_head, n_embd_head]."""
    found: Values = {}

    def keep(node: Tensor) -> None:
        if fnmatchcase(node.name, pattern) and node.type.name == "f32":
            found[node.name] = get_tensor(node).squeeze()  # [ne3, ne2, ne1, ne0], a copy

    ids = model.tokenize(prompt)
    with model.context(n_ctx=max(len(ids), 1), watch=keep) as ctx:
        ctx.decode(ids, logits="all")  # "last" would cut the last layer down to one row
    return found


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-m", "--model", help="GGUF file (default: the demo model)")
    parser.add_argument("-d", "--device", default="cpu")
    parser.add_argument("-p", "--prompt", default="ROMEO:\nBut soft, what light")
    parser.add_argument("-n", "--names", default="l_out-*", help="pattern of the nodes' names")
    parser.add_argument("-o", "--output", help="write them all to this .npz file")
    p = parser.parse_args(args)
    with llama_py.load(p.model, p.device) as model:
        found = capture(model, p.prompt, p.names)
    print(f"{'node':<20} {'shape':<14} {'rms':>8} {'largest':>8}")
    for name, values in found.items():
        rms, most = np.sqrt(np.square(values).mean()), np.abs(values).max()
        print(f"{name:<20} {values.shape!s:<14} {rms:8.3f} {most:8.3f}")
    if p.output:
        np.savez(p.output, **found)


if __name__ == "__main__":
    main()
