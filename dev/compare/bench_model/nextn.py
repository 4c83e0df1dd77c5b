"""A NextN layer that drafts the trunk's greedy token after a known share of the tokens.

Greedy text goes round a cycle of tokens. Embeddings are so large that the branches of the layers
hardly change the state, and the row of the head that fits best to token k's is that of its
successor. The two halves of a row say so twice: the trunk's last norm keeps the first half, the
NextN layer's own the second, where rows of tokens that it shall not agree on have changed places.
"""

from __future__ import annotations

import numpy as np
from gguf import GGMLQuantizationType, TokenType
from numpy.typing import NDArray

from dev.compare.bench_model.blocks import RandomMatrix
from dev.compare.bench_model.spec import TensorSpec
from dev.compare.bench_model.vocabulary import Vocabulary
from ggml_py.types import TYPES
from ggml_ref.quants import quantizer

Content = NDArray[np.float32] | RandomMatrix
STRENGTH = 64  # of an embedding against the output of a branch, which is about 1
LONGEST = 4096  # tokens of the cycle
FREQUENT, RARE = 28672, 0.03  # ids that texts are made of, and the share of all others
GROUP = 20  # of them have as many that the layer is wrong about as any others


class Cycle:
    """Contents of the tensors that make the trunk go round, and the layer agree at `rate`.

    tokens  ids in the order of the cycle, normal tokens only
    agrees  whether the layer names the same successor, for each of them
    """

    def __init__(self, vocab: Vocabulary, n_embd: int, rate: float, seed: int) -> None:
        if not 0 <= rate <= 1:
            raise ValueError(f"a layer cannot agree at a rate of {rate}; give one from 0 to 1")
        rng = np.random.default_rng([seed, n_embd])
        normal = np.flatnonzero(np.array(vocab.types) == TokenType.NORMAL)
        if len(normal) < 2:
            raise ValueError(f"{len(normal)} normal tokens make no cycle; give another --vocab")
        self.tokens = words(normal, rng)
        n = len(self.tokens)
        differs = spread(n, 1 - rate, rng)
        self.agrees = ~np.isin(np.arange(n), differs)
        self._states = rng.standard_normal((n, n_embd), np.float32)
        self._drafts = np.arange(n)
        self._drafts[differs] = np.roll(differs, 1)
        self._half = np.arange(n_embd) < n_embd // 2
        self._n_vocab = len(vocab.tokens)

    def content(
        self, t: TensorSpec, dtype: GGMLQuantizationType, random: Content
    ) -> NDArray[np.uint8] | Content:
        """The data of `t`: `random`, but where the cycle needs something else."""
        part = t.name.removesuffix(".weight").split(".", 2)[-1]
        match part:
            case "token_embd":  # a token outside of the cycle is like one in it
                at = np.arange(self._n_vocab) % len(self.tokens)
                at[self.tokens] = np.arange(len(self.tokens))
                return encoded(self._states * STRENGTH, dtype)[at]
            case "output" if isinstance(random, RandomMatrix):
                rows = np.where(self._half, self._states, self._states[self._drafts])
                data = np.concatenate(
                    [piece.reshape(-1).view(np.uint8) for piece in random.pieces()]
                )
                data = data.reshape(self._n_vocab, -1)
                data[np.roll(self.tokens, -1)] = encoded(rows * t.std, dtype)
                return data
            case "output_norm":
                return self._half.astype(np.float32)
            case "nextn.shared_head_norm":
                return (~self._half).astype(np.float32)
            case "nextn.eh_proj":  # the token's half of what it gets
                return encoded(np.eye(t.ne[1], t.ne[0]) * STRENGTH, dtype)
        return random


def words(normal: NDArray[np.integer], rng: np.random.Generator) -> NDArray[np.integer]:
    """The tokens of a text, each once: mostly of the first ids, which are made in the order of
    frequency. (Of the tokens of llama.cpp's documentation, by a vocabulary of 248,320, 3%
    are neither among the first 28,672 nor were in the text before.)"""
    first, others = (rng.permutation(part) for part in np.split(normal, [FREQUENT]))
    n_rare = min(round(RARE * LONGEST), others.size)
    return rng.permutation(np.concatenate((first[: LONGEST - n_rare], others[:n_rare])))


def spread(n: int, share: float, rng: np.random.Generator) -> NDArray[np.integer]:
    """That share of 0..n-1, at random, but as many of each GROUP: a short text has the rate too."""
    groups = [np.arange(start, min(start + GROUP, n)) for start in range(0, n, GROUP)]
    counts = [round(share * (g[-1] + 1)) - round(share * g[0]) for g in groups]
    return np.concatenate([rng.permutation(g)[:c] for g, c in zip(groups, counts, strict=True)])


def encoded(x: NDArray[np.floating], dtype: GGMLQuantizationType) -> NDArray[np.uint8]:
    """`x` in that type: uint8 [rows, bytes of a row]."""
    quantize = quantizer(TYPES[dtype])
    if quantize is None:
        raise ValueError(f"no weights can be made in {dtype.name}; give another --type")
    return np.frombuffer(quantize(x.astype(np.float32)), np.uint8).reshape(len(x), -1)
