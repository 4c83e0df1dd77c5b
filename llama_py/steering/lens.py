"""Logit lens: the tokens that a model would predict if it ended at an earlier layer.

lens = logit_lens(ctx, "First Citizen:\\nBefore we")
print(lens)                                 # the most likely token of each layer and token
lens.logits["blocks.2.hook_resid_post"]     # float32 [n_tokens, n_vocab]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ggml_py._moved import former_names
from llama_py.batch import F32
from llama_py.batch.prompts import Prompt, tokenize_prompt
from llama_py.context import Context
from llama_py.tokenizer import Tokenizer

RESIDUAL = ("hook_embed", "blocks.*.hook_resid_post")
WIDTH = 10


def logit_lens(ctx: Context, prompt: Prompt, points: Sequence[str] = RESIDUAL) -> LogitLens:
    """Process a prompt in an empty context; return the result of each layer as logits.

    prompt  a text or token ids
    points  hook points or nodes of rows [n_embd]; default: embeddings and each layer's result

    Raises ContextError like `capture` and `Context.unembed`.
    """
    ids = (
        tokenize_prompt(ctx.model.tokenizer, prompt)
        if isinstance(prompt, (str, bytes))
        else list(prompt)
    )
    ctx.clear()
    with ctx.capture(*points) as values:
        own = ctx.decode(ids, "all")
    rows = {name: np.concatenate(values.history(name)) for name in values}
    logits = {name: ctx.unembed(x) for name, x in rows.items()}
    tokenizer = ctx.model.tokenizer if isinstance(prompt, (str, bytes)) else None
    return LogitLens(ids, logits, own, tokenizer)


@dataclass(frozen=True, eq=False)
class LogitLens:
    """Predictions of the next token by each layer.

    ids     processed tokens
    logits  by point, the first layer's first. [n_tokens, n_vocab]
    own     logits of the model: of the last layer
    """

    ids: list[int]
    logits: dict[str, F32]
    own: F32
    tokenizer: Tokenizer | None = None

    def top(self, k: int = 1) -> npt.NDArray[np.int64]:
        """Return the k most likely ids, the best first, [n_points, n_tokens, k]."""
        all_of = np.stack([*self.logits.values()])
        return np.argsort(-all_of, axis=-1, kind="stable")[..., :k]

    def ranks(self, ids: Sequence[int]) -> npt.NDArray[np.int64]:
        """Return the number of tokens that each layer ranks above ids[i] after token i. [n_points,
        n_tokens]"""
        all_of = np.stack([*self.logits.values()])
        chosen = np.take_along_axis(all_of, np.array(ids)[None, :, None], -1)
        found: npt.NDArray[np.int64] = (all_of > chosen).sum(-1)
        return found

    def probabilities(self) -> npt.NDArray[np.float64]:
        """Return probabilities [n_points, n_tokens, n_vocab]."""
        x = np.stack([*self.logits.values()]).astype(np.float64)
        x = np.exp(x - x.max(-1, keepdims=True))
        found: npt.NDArray[np.float64] = x / x.sum(-1, keepdims=True)
        return found

    def kl_to_own(self) -> npt.NDArray[np.float64]:
        """Return KL(model, layer) in nats: the distance of each layer from the model's prediction.
        [n_points, n_tokens]"""
        own = LogitLens(self.ids, {"": self.own}, self.own).probabilities()
        log_own, log_mine = (np.log(np.maximum(p, 1e-300)) for p in (own, self.probabilities()))
        found: npt.NDArray[np.float64] = (own * (log_own - log_mine)).sum(-1)
        return found

    def text(self, id: int) -> str:
        """Return the displayed text of a token."""
        if self.tokenizer is None:
            return str(id)
        return repr(self.tokenizer.token_bytes(id).decode("utf-8", "replace"))[1:-1]

    def __str__(self) -> str:
        """Return a table with a row per token and each layer's most likely next token."""
        best = self.top()[..., 0]
        names = [shorten_name(name) for name in self.logits]
        lines = ["  ".join(f"{name:>{WIDTH}}" for name in ("token", *names))]
        for i, id in enumerate(self.ids):
            cells = (self.text(id), *(self.text(int(b)) for b in best[:, i]))
            lines.append("  ".join(f"{cell[:WIDTH]:>{WIDTH}}" for cell in cells))
        return "\n".join(lines)


def shorten_name(name: str) -> str:
    """Return `3` for `blocks.3.hook_resid_post`."""
    parts = name.split(".")
    if parts[0] == "blocks" and name.endswith("hook_resid_post"):
        return parts[1]
    return name.replace("blocks.", "").replace("hook_", "")


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, short="shorten_name")
