"""NextN layer that drafts the trunk's greedy token for a chosen share of the tokens.

Greedy text repeats a cycle of tokens. Embeddings are large, so that the layers' branches hardly
change the state, and the LM head's best row for token k is its successor's row. Both halves of a
row encode the successor. The trunk's last norm keeps the first half; the NextN layer's norm keeps
the second half. Tokens that must disagree have exchanged second halves.

Since a state is nearly its token's embedding, the embeddings also decide which experts routers
choose. Without `RouterBias` all tokens choose independently.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from gguf import GGMLQuantizationType, TokenType
from numpy.typing import NDArray

from dev.compare.bench_model.blocks import RandomMatrix
from dev.compare.bench_model.spec import TensorSpec
from dev.compare.bench_model.vocabulary import Vocabulary
from ggml_py.types import TYPES
from ggml_ref.quants import quantizer

Content = NDArray[np.float32] | RandomMatrix
STRENGTH = 64  # ratio of an embedding to the output of a branch, which is about 1
LONGEST = 4096  # tokens of the cycle
FREQUENT, RARE = 28672, 0.03  # ids of most text tokens, and the share of all others
TOPIC = 32  # tokens of the cycle with the same topic
GROUP = 20  # each group has the same number of wrong drafts


@dataclass(frozen=True)
class RouterBias:
    """Shares of the variance of routers' logits.

    The defaults were chosen, not measured: a model's paper reports which experts it prefers per
    topic (arXiv:2409.02060).

    skew   equal for all tokens: routers prefer some experts
    local  equal for TOPIC consecutive tokens of the cycle
    """

    skew: float = 0.15
    local: float = 0.35

    def mix(self, own: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        """Return states [n, n_embd] with a common part, a topic's part, and a part of `own`."""
        n, n_embd = own.shape
        common = rng.standard_normal((1, n_embd), np.float32)
        topics = rng.standard_normal((-(-n // TOPIC), n_embd), np.float32)
        shares = np.sqrt([self.skew, self.local, 1 - self.skew - self.local], dtype=np.float32)
        return shares[0] * common + shares[1] * topics[np.arange(n) // TOPIC] + shares[2] * own


class Cycle:
    """Tensor contents that make the trunk repeat the cycle, and the layer agree at `rate`.

    tokens  ids in the order of the cycle, normal tokens only
    agrees  for each token: True if the layer drafts the same successor
    """

    def __init__(
        self,
        vocab: Vocabulary,
        n_embd: int,
        rate: float,
        seed: int,
        routing: RouterBias | None = None,
    ) -> None:
        if not 0 <= rate <= 1:
            raise ValueError(f"a layer cannot agree at a rate of {rate}; give one from 0 to 1")
        rng = np.random.default_rng([seed, n_embd])
        normal = np.flatnonzero(np.array(vocab.types) == TokenType.NORMAL)
        if len(normal) < 2:
            raise ValueError(f"{len(normal)} normal tokens: a cycle needs 2; give another --vocab")
        self.tokens = words(normal, rng)
        n = len(self.tokens)
        differs = spread(n, 1 - rate, rng)
        self.agrees = ~np.isin(np.arange(n), differs)
        self._states = rng.standard_normal((n, n_embd), np.float32)
        if routing is not None:
            self._states = routing.mix(self._states, rng)
        self._drafts = np.arange(n)
        self._drafts[differs] = np.roll(differs, 1)
        self._half = np.arange(n_embd) < n_embd // 2
        self._n_vocab = len(vocab.tokens)

    def content(
        self, t: TensorSpec, dtype: GGMLQuantizationType, random: Content
    ) -> NDArray[np.uint8] | Content:
        """Return the data of `t`: `random`, unless the cycle needs other values."""
        part = t.name.removesuffix(".weight").split(".", 2)[-1]
        match part:
            case "token_embd":  # tokens outside the cycle copy tokens of the cycle
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
            case "nextn.eh_proj":  # the token's half of its input
                return encoded(np.eye(t.ne[1], t.ne[0]) * STRENGTH, dtype)
        return random


def words(normal: NDArray[np.integer], rng: np.random.Generator) -> NDArray[np.integer]:
    """Return the tokens of a text, each once: mostly the first ids, which are sorted by frequency.

    In llama.cpp's documentation, 3% of tokens of a 248,320-token vocabulary are not in the first
    28,672 and occur for the first time.
    """
    first, others = (rng.permutation(part) for part in np.split(normal, [FREQUENT]))
    n_rare = min(round(RARE * LONGEST), others.size)
    return rng.permutation(np.concatenate((first[: LONGEST - n_rare], others[:n_rare])))


def spread(n: int, share: float, rng: np.random.Generator) -> NDArray[np.integer]:
    """Choose a share of 0..n-1 at random, equal in each GROUP, so that short texts have it too."""
    groups = [np.arange(start, min(start + GROUP, n)) for start in range(0, n, GROUP)]
    counts = [round(share * (g[-1] + 1)) - round(share * g[0]) for g in groups]
    return np.concatenate([rng.permutation(g)[:c] for g, c in zip(groups, counts, strict=True)])


def encoded(x: NDArray[np.floating], dtype: GGMLQuantizationType) -> NDArray[np.uint8]:
    """Return `x` quantized to a type: uint8 [rows, bytes of a row]."""
    quantize = quantizer(TYPES[dtype])
    if quantize is None:
        raise ValueError(f"cannot quantize weights to {dtype.name}; give another --type")
    return np.frombuffer(quantize(x.astype(np.float32)), np.uint8).reshape(len(x), -1)
