"""An architecture of one's own, from its hyperparameters to text.

    python -m examples.write_an_architecture       # in a checkout: `dev` is not installed

Attention and feed-forward read the same normed input, side by side. The class says what is new; the
rest comes with `Decoder`. The file is made here, of the tensors that the class declares.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import llama_py
from dev.tiny_models import Tiny, write_file
from ggml_py.ops import add
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import number
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.hparams import RMS_EPS, HParams
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models import register
from llama_py.models.trunks.decoder import Decoder
from llama_py.weights import Weights


class SideBySideHParams(HParams):
    rope_type = ROPE_NEOX
    required_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)  # <arch>.attention.layer_norm_rms_epsilon


@dataclass
class Layer:
    """x + attention(norm(x)) + feed_forward(norm(x))"""

    norm: Norm
    attention: Attention
    feed_forward: FeedForward

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        normed = self.norm(g, cur, "attn_norm", il)
        seen = self.attention(g, normed, il)
        if last:  # from here on only tokens whose logits are wanted
            cur, normed, seen = g.outputs(cur, normed, seen)
        return add(add(cur, seen), self.feed_forward(g, normed, il))


@register
class SideBySide(Decoder):
    arch = "side-by-side"
    HParams = SideBySideHParams

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            Attention(w, hp),
            FeedForward(w, hp.n_embd, hp.layers[il].n_ff),
        )


KEYS = {
    "block_count": 2,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
}


def main(device: str = "cpu") -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write_file(Path(folder) / "tiny.gguf", SideBySide.arch, Tiny(KEYS))
        with llama_py.load(path, device) as model:
            print(model, f"{model.n_params} parameters")
            prompt = [3, 1, 4, 1, 5, 9]
            print(model.generate(prompt, max_tokens=8, temp=0))
            at_once = model.context(n_ctx=256).decode(prompt)
            ctx = model.context(n_ctx=256)
            one_by_one = [ctx.decode([id]) for id in prompt][-1]
            print(f"largest difference, token by token: {np.abs(at_once - one_by_one).max():.1e}")


if __name__ == "__main__":
    main()
