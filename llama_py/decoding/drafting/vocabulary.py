"""Check that two models' tokens are compatible (common_speculative_are_compatible)."""

from __future__ import annotations

from ggml_py.errors import ModelError
from llama_py.loading.model import LoadedModel

MAX_DIFFERENCE = 128  # maximum number of tokens that exist in one vocabulary only
FIRST_CHECKED = 5  # lower ids are often special tokens with other names


def check_same_vocabulary(target: LoadedModel, draft: LoadedModel) -> None:
    """Raise ModelError if the draft model's vocabulary differs from the target's."""
    a, b = target.tokenizer, draft.tokenizer
    texts = a.vocab.texts, b.vocab.texts
    for what, ours, theirs in (
        ("its type", a.kind, b.kind),
        ("BOS", a.bos if a.add_bos else None, b.bos if b.add_bos else None),
        ("EOS", a.eos if a.add_eos else None, b.eos if b.add_eos else None),
    ):
        if ours != theirs:
            raise _different(draft, f"{what} is {theirs!r}, expected {ours!r}")
    sizes = len(texts[0]), len(texts[1])
    if abs(sizes[0] - sizes[1]) > MAX_DIFFERENCE:
        raise _different(draft, f"it has {sizes[1]} tokens, expected {sizes[0]}")
    for id in range(FIRST_CHECKED, min(sizes)):
        if texts[0][id] != texts[1][id]:
            raise _different(draft, f"token {id} is {texts[1][id]!r}, expected {texts[0][id]!r}")


def _different(draft: LoadedModel, why: str) -> ModelError:
    return ModelError(
        f"draft model {draft.file.path} has a different vocabulary: {why}; use a smaller model "
        "of the same family"
    )
