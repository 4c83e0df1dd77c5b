"""The values of named nodes while a model reads a prompt.

    python examples/capture_activations.py       # the demo model, the result of each layer
    python examples/capture_activations.py -m model.gguf -n 'ffn_norm-*' -o norms.npz

`Context.capture` keeps values of nodes while all others stay fused. Nodes have llama.cpp's names:
`llama-py-graph dump` lists them; TransformerLens's are known, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np

import llama_py

Values = dict[str, Any]  # arrays of float32 by the node's name


def capture(model: llama_py.Model, prompt: str, pattern: str) -> Values:
    """The nodes whose names fit, each [n_tokens, n] or [n_tokens, n_head, n_embd_head]."""
    ids = model.tokenize(prompt)
    n = max(len(ids), 1)
    with model.context(n_ctx=n, n_ubatch=n) as ctx, ctx.capture(pattern) as values:
        ctx.decode(ids, logits="all")  # "last" would cut the last layer down to one row
        return {name: value for name, value in values.items() if value.dtype == np.float32}


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
