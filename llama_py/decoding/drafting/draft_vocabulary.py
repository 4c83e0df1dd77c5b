"""LM head for drafting with a reduced vocabulary: frequent tokens and tokens of the text.

The LM head of a small model with a large vocabulary takes about half the time of a token. A draft
may be wrong, so a head for the usual tokens suffices (FR-Spec, arXiv 2502.14856): the vocabulary's
first tokens, which are ordered by frequency, control tokens of a chat, and tokens of texts."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import numpy as np

from ggml_py.backend import Bytes
from ggml_py.ops import mul_mat
from ggml_py.tensor import FLAG_WEIGHT, Tensor
from ggml_py.types import F32
from llama_py.batch import I32
from llama_py.context import Context
from llama_py.graph.linear import Linear
from llama_py.tokenizer.vocab import TokenType

log = logging.getLogger("llama_py")

SEEN_SHARE = 8  # one of this number of tokens is reserved for texts


class DraftVocabulary:
    """Tokens that a context may draft, and their rows of the model's head.

    ids     I32 [n] the token of each logit
    linear  the head [n_embd, n], in the model's type
    """

    def __init__(self, ctx: Context, head: Linear, rows: Bytes, n: int) -> None:
        """Copy n rows of the head; rows: u8 [n_vocab, bytes of a row] of the whole head."""
        self._rows = rows
        n_seen = n // SEEN_SHARE
        kept = _always(ctx)[: n - n_seen]
        first = np.setdiff1d(np.arange(n - n_seen + kept.size), kept)[: n - n_seen - kept.size]
        self.ids: I32 = np.zeros(n, np.int32)
        self.ids[: n - n_seen] = np.concatenate((first, kept))
        self.ids[n - n_seen :] = self.ids[0]  # reserved for tokens of texts
        self._known = set(self.ids.tolist())
        self._next, self._first_seen = n - n_seen, n - n_seen
        weight = Tensor(head.weight.type, (head.weight.ne[0], n), name="draft_head.weight")
        device = ctx.model.layer_devices[-1]
        if device.why_not(mul_mat(weight, Tensor(F32, (weight.ne[0], 1)))):
            device = ctx.devices[-1]
        weight.buffer = device.alloc(weight.nbytes)
        weight.buffer.write(0, np.ascontiguousarray(rows[self.ids]).reshape(-1))
        weight.flags |= FLAG_WEIGHT
        self.linear = Linear(weight, scale=head.scale, prec=head.prec)
        log.info(
            "draft_vocabulary: %d of %d tokens, %10s buffer size = %8.2f MiB",
            n,
            len(rows),
            device.name,
            weight.nbytes / 2**20,
        )

    def add(self, tokens: Iterable[int]) -> None:
        """Add a text's tokens to the vocabulary, replacing the least recently added ids."""
        weight = self.linear.weight
        assert weight.buffer is not None
        for id in tokens:
            if id in self._known:
                continue
            at = self._next
            self._known.discard(int(self.ids[at]))
            self._known.add(id)
            self._known.add(int(self.ids[0]))
            self.ids[at] = id
            weight.buffer.write(at * weight.nb[1], self._rows[id])
            self._next = at + 1 if at + 1 < self.ids.size else self._first_seen


def _always(ctx: Context) -> I32:
    """Return the tokens that control a conversation, anywhere in the vocabulary."""
    types = np.array(ctx.model.file.metadata.get("tokenizer.ggml.token_type", ()))
    special = (TokenType.CONTROL, TokenType.USER_DEFINED)
    return np.flatnonzero(np.isin(types, special)).astype(np.int32)


def draft_vocabulary(ctx: Context, n: int) -> DraftVocabulary | None:
    """Limit a draft context to n tokens; None if its head is not larger, or cannot be reduced, or n
    is 0."""
    p, model = ctx.params, ctx.model
    head = model.architecture.lm_head(p.nextn_layer if p.mtp else None)
    if not 0 < n < ctx.n_vocab or head is None or head.bias is not None:
        return None
    folded = model.hparams.hadamard
    rows = model.plain_bytes(head.weight.name)
    if rows is None or (folded is not None and head.weight.name in folded.products):
        return None
    made = DraftVocabulary(ctx, head, rows.reshape(ctx.n_vocab, -1), n)
    ctx.set_head(made.linear)
    return made
